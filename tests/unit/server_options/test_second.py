# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line of a second instance, according to the shipped recipes."""

import pytest

from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.second import not_safe_with, second_variables, second_words
from fusetune.recipes.served import without_background

RECIPES = [read_recipe(path, check_writers=False) for path in sorted(SHIPPED.glob("*.toml"))]


def test_each_that_may_only_read_says_how() -> None:
    read_only = [one.server for one in RECIPES if one.server.second == "read-only"]
    assert len(read_only) >= 12
    assert all(server.second_with for server in read_only)


@pytest.mark.parametrize(
    ("recipe", "words", "second"),
    [
        ("gocryptfs", "gocryptfs -fg /c /m", "gocryptfs -ro -fg /c /m"),
        ("encfs", "encfs -f /c /m -o big_writes", "encfs -f /c /m -o big_writes,ro"),
        ("s3fs", "s3fs b /m -o nonempty", "s3fs b /m -o nonempty,ro"),
        ("s3fs", "s3fs b /m -o use_cache=/c", "s3fs b /m -o use_cache={private},ro"),
        ("gcsfuse", "gcsfuse --cache-dir /c b /m", "gcsfuse -o ro --cache-dir={private} b /m"),
        ("geesefs", "geesefs b /m", "geesefs -o ro b /m"),
        (
            "seaweedfs",
            "weed mount -dir=/m -cacheDir=/c --localSocket /s",
            "weed mount -readOnly -dir=/m -cacheDir={private} -localSocket={private}/socket",
        ),
        (
            "rclone",
            "rclone mount --rc r: /m",
            "rclone mount --cache-dir={private} --rc=false r: /m",
        ),
        (
            "juicefs",
            "juicefs mount --update-fstab r:// /m",
            "juicefs mount --read-only --cache-dir={private} -o ro --update-fstab=false r:// /m",
        ),
        (
            "juicefs",
            "juicefs mount --read-only -update-fstab -o ro r:// /m --cache-dir /c",
            "juicefs mount --read-only -update-fstab=false -o ro r:// /m --cache-dir={private}",
        ),
        (
            "juicefs",
            "juicefs mount -cache-dir /c r:// /m",
            "juicefs mount --read-only -o ro -cache-dir={private} r:// /m",
        ),
        ("mirrorfs", "mirrorfs /s /m", "mirrorfs -o counters={private}/counters /s /m"),
        (
            "alluxio",
            "java -cp x alluxio.fuse.AlluxioFuse -o big_writes -m /m -r /",
            "java -cp x alluxio.fuse.AlluxioFuse -o big_writes,ro -m /m -r /",
        ),
        ("bindfs", "bindfs /s /m", "bindfs /s /m"),
    ],
)
def test_the_words_of_a_second_instance(recipe: str, words: str, second: str) -> None:
    server = read_recipe(SHIPPED / f"{recipe}.toml").server
    assert " ".join(second_words(server, words.split())) == second


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ("gocryptfs -fg -notifypid=7 -q /c /m", "gocryptfs -q /c /m"),
        ("gocryptfs -fg -q /c /m", "gocryptfs -fg -q /c /m"),  # the administrator wants it
        ("gocryptfs -q -fg -notifypid=7 /c /m", "gocryptfs -q -fg -notifypid=7 /c /m"),
        ("gocryptfs -fg", "gocryptfs -fg"),
    ],
)
def test_what_gocryptfs_adds_in_the_background_is_left_out(words: str, before: str) -> None:
    added = read_recipe(SHIPPED / "gocryptfs.toml").server.background
    assert " ".join(without_background(tuple(words.split()), added)) == before


@pytest.mark.parametrize(
    ("recipe", "words", "unsafe"),
    [
        ("juicefs", "juicefs mount --writeback redis:// /m", ["--writeback"]),
        ("juicefs", "juicefs mount --writeback=false redis:// /m", []),
        ("juicefs", "juicefs mount -writeback redis:// /m", ["--writeback"]),
        ("juicefs", "juicefs mount -d --verbose -o ro redis:// /m", []),
        ("ratarmount", "ratarmount -w /o a.tar /m", ["-w"]),
        ("ratarmount", "ratarmount -cf a.tar /m", ["-c"]),
        ("ratarmount", "ratarmount -fw /o a.tar /m", ["-w"]),
        ("ratarmount", "ratarmount -w/o a.tar /m", ["-w"]),
        ("ratarmount", "ratarmount --write-overl /o a.tar /m", ["--write-overlay"]),
        ("ratarmount", "ratarmount --recreate=1 a.tar /m", ["--recreate-index"]),
        ("ratarmount", "ratarmount -f -P 4 --lazy -oallow_other - /m -- -cw", []),
        ("gcsfuse", "gcsfuse --config-file=/c b /m", ["--config-file"]),
        ("gcsfuse", "gcsfuse b /m", []),
    ],
)
def test_what_a_second_instance_is_not_safe_with(
    recipe: str, words: str, unsafe: list[str]
) -> None:
    assert not_safe_with(read_recipe(SHIPPED / f"{recipe}.toml").server, words.split()) == unsafe


@pytest.mark.parametrize(
    ("recipe", "own"),
    [
        ("juicefs", "_FUSE_FD_COMM _FUSE_STATE_PATH _JFS_META_SID JFS_SUPERVISOR JFS_SUPER_COMM"),
        ("juicefs", "__DAEMON_STAGE __DAEMON_FD_1"),
        ("goofys", "_GO_DAEMON"),
        ("geesefs", "_GO_DAEMON"),
        ("rclone", "_RCLONE_DAEMON_ _RCLONE_CONFIG_KEY_FILE"),
        ("gcsfuse", "DAEMONIZE_STATUS_FD GCSFUSE_IN_BACKGROUND_MODE GCSFUSE_STATUS_FD"),
    ],
)
def test_variables_of_a_servers_own_processes_are_not_passed_on(recipe: str, own: str) -> None:
    kept = {"PATH": "/bin", "META_PASSWORD": "x", "RCLONE_CONFIG": "/c", "CALL_VIA_MOUNT": "1"}
    server = read_recipe(SHIPPED / f"{recipe}.toml").server
    assert second_variables(server, kept | dict.fromkeys(own.split(), "1")) == kept
