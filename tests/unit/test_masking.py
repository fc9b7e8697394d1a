# SPDX-License-Identifier: GPL-2.0-or-later
"""Secrets in command lines, options and files are masked, however they are spelled."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.masking import (
    MASK,
    is_secret,
    mask_config_line,
    mask_fstab_line,
    mask_items,
    mask_line,
    mask_text,
    mask_words,
)

SECRET = "hunter2"  # noqa: S105 - of nobody

#: Command lines as users write them, each with the secret in some place.
COMMANDS = [
    "sshfs h: /m -o password=hunter2",
    "sshfs h: /m -o allow_other,PassWord=hunter2,ro",
    "sshfs h: /m -opassword=hunter2",
    "sshfs h: /m -oallow_other,passwd=hunter2",
    "sshfs h: /m -o 'password=a\\,hunter2'",
    "sshfs h: /m -o 'password=\"a,hunter2\",ro'",
    "sshfs h: /m -o 'ssh_command=sshpass -p hunter2 ssh'",
    "sshfs h: /m -o ssh_command=sshpass\\ -phunter2\\ ssh",
    "sshpass -p hunter2 sshfs h: /m",
    "/usr/bin/sshpass -phunter2 sshfs h: /m",
    "rclone mount r: /m --sftp-pass hunter2",
    "rclone mount r: /m --sftp-pass=hunter2",
    "rclone mount r: /m --password-command 'echo hunter2'",
    "rclone mount r: /m --s3-secret-access-key hunter2",
    "rclone mount r: /m --header 'Authorization: Bearer hunter2'",
    "rclone mount r: /m --webdav-bearer-token=hunter2",
    "rclone mount ':sftp,host=x,pass=hunter2:/d' /m",
    "rclone mount ':sftp,host=x,pass=\"a,hunter2\":/d' /m",
    "curlftpfs ftp://me:hunter2@h/d /m",
    "curlftpfs ftp://h/d /m -o user=me:hunter2",
    "curlftpfs ftp://h/d /m -o ro,proxy_user=me:hunter2",
    "curlftpfs h /m -u me:hunter2",
    "juicefs mount redis://:hunter2@h/1 /m",
    "juicefs mount 'redis://:p@ss/hunter2@h/1' /m",
    "juicefs mount 'mysql://me:hunter2@(h:3306)/d' /m",
    "juicefs mount me:hunter2@h/d /m",
    "juicefs mount https://hunter2@h/d /m",
    "juicefs mount META /m --access-key hunter2 --secretkey=hunter2",
    "blobfuse2 mount /m --sas 'sv=1&sig=hunter2'",
    "blobfuse2 mount /m 'https://a.b/c?sv=1&sig=hunter2'",
    "gocryptfs -extpass 'echo hunter2' c /m",
    "gocryptfs --extpass=echo --extpass=hunter2 c /m",
    "encfs --extpass='/bin/echo hunter2' c /m",
    "s3fs b /m -o use_sse=custom:k,secretAccessKey=hunter2",
    'ourfs \'{"password": "hunter2"}\' /m',
    "ourfs --opt password:hunter2 /m",
    "ourfs ApiKey=hunter2 /m",
    "ourfs --db_pwd -hunter2 /m",
    "env AWS_SECRET_ACCESS_KEY=hunter2 ourfs /m",
    "RCLONE_SFTP_PASS=hunter2 rclone mount r: /m",
    "ourfs -o x=y,AUTH_TOKEN=hunter2",
    "ourfs --token=/hunter2",
    "ourfs --credential hunter2",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_secret_is_never_shown(command: str) -> None:
    words = shlex.split(command)
    assert SECRET in " ".join(words)
    masked = mask_words(words)
    assert SECRET not in " ".join(masked)
    assert any(MASK in word for word in masked)
    assert SECRET not in mask_line(command)


@pytest.mark.parametrize(
    "command",
    [
        "mergerfs -o cache.files=auto-full,passthrough.io=rw,xattr=nosys /a:/b /m",
        "sshfs me@h:/srv /m -o IdentityFile=/root/.ssh/id,reconnect,ro",
        "s3fs b /m -o passwd_file=/etc/passwd-s3fs,ro -o url=https://s3.example",
        "gocryptfs -passfile /etc/pw -allow_other c /m",
        "rclone mount sftp://me@h/d /m --vfs-cache-mode writes --attr-timeout 1s",
        "gcsfuse --key-file /etc/key.json b /m",
        "ceph-fuse --keyring=/etc/ceph/k -o kernel_cache,hard_remove /m",
    ],
)
def test_what_is_no_secret_is_shown(command: str) -> None:
    words = shlex.split(command)
    assert mask_words(words) == words


def test_names_that_a_recipe_adds() -> None:
    words = ["ourfs", "-P", SECRET, f"-P{SECRET}", "-o", f"ro,door={SECRET}", f"--door={SECRET}"]
    assert SECRET in " ".join(mask_words(words))
    shown = mask_words(words, ["-P", "door"])
    assert shown == ["ourfs", "-P", MASK, f"-P{MASK}", "-o", f"ro,door={MASK}", f"--door={MASK}"]


def test_the_rest_of_a_command_stays() -> None:
    words = ["sshfs", "h:", "/m", "-o", f"ro,password={SECRET},allow_other", "-f"]
    assert mask_words(words) == ["sshfs", "h:", "/m", "-o", f"ro,password={MASK},allow_other", "-f"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"h: /m cifs user=me,password={SECRET},ro 0 0", "h: /m cifs user=me,password=***,ro 0 0"),
        (f"ftp://me:{SECRET}@h /m fuse.curlftpfs ro 0 0", "ftp://***@h /m fuse.curlftpfs ro 0 0"),
        (f'h: /m fuse.x ro,pass="a,{SECRET}",x 0 0', "h: /m fuse.x ro,pass=*** 0 0"),
        (f"# h: /m fuse.x password={SECRET}", "# h: /m fuse.x password=***"),
        (f"password = {SECRET}", "password = ***"),
        (f"password: {SECRET} of mine", "password:*** *** of mine"),
        (f'Environment="PASS=a {SECRET}" B=c', 'Environment="PASS=***'),
        (f"ExecStart=ourfs --password {SECRET} /m", "ExecStart=ourfs --password *** /m"),
        (f"ExecStart=ourfs --password \\ {SECRET} /m", "ExecStart=ourfs --password ***"),
    ],
)
def test_lines_of_files(line: str, shown: str) -> None:
    mask = mask_fstab_line if " 0 0" in line else mask_line
    assert mask(line) == shown


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("add_header Authorization hunter2", "add_header ***"),
        ("send Authorization hunter2", "send Authorization ***"),
        ("\tpassword\thunter2 # x", "\tpassword ***"),
        ("# password hunter2", "# password ***"),
        ('key = "hunter2"', "key ***"),
        ("X_PROXY='http://me:hunter2@h'", "X_PROXY='http://***@h'"),
        ("cache_size 50 # MiByte", "cache_size 50 # MiByte"),
        ("keyring = /etc/ceph/keyring", "keyring = /etc/ceph/keyring"),
        ("password", "password"),
    ],
)
def test_lines_of_configuration_files(line: str, shown: str) -> None:
    assert mask_config_line(line) == shown


@pytest.mark.parametrize(
    "token",
    ["AKIA" + "A" * 16, "ghp_" + "a1" * 15, "glpat-" + "b" * 20, "eyJhbGciOiJ9.eyJzdWIiOiIx.c2ln"],
)
def test_tokens_by_their_form(token: str) -> None:
    assert mask_text(f"-x {token}") == f"-x {MASK}"


_NAMES = st.sampled_from(
    ["password", "PASSWD", "Pass", "sftp-pass", "secret_key", "apiKey", "auth.token", "pw", "pwd"]
)


@given(_NAMES, st.sampled_from(["=", ": ", " = ", ":"]), st.sampled_from(["", "--", "x,", "?a=b&"]))
def test_names_in_every_place(name: str, joint: str, before: str) -> None:
    assert is_secret(name)
    assert SECRET not in mask_text(f"{before}{name}{joint}{SECRET}")
    assert SECRET not in mask_items(f"ro,{before}{name}{joint}{SECRET}")
    assert SECRET not in " ".join(mask_words(["a", f"{before}{name}{joint}{SECRET}", "b"]))
