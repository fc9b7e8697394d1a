# SPDX-License-Identifier: GPL-2.0-or-later
"""Configuration is accepted completely or not at all; an error names file, line and key.

The language is TOML 1.0.
"""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.desired.config import load, signature
from fusetune.desired.sections import Config, Layer, Settings
from fusetune.toml.file import ConfigError, Origin
from tests.unit.config_files import configure, wrong
from tests.unit.conftest import CHECKOUT, Tree

VALID = """\
# Ours.
[policy]
allow_users = [
    "alice",  # she asked
    1000,
]
max_dirty_percent = 250
exclude = ["fuse.rclone*"]

[watch]
idle_seconds = 5

[[mount]]
path = "/srv/*"
source = "backup:*"
server = "sshfs"
fstype = "fuse.sshfs"
read_ahead_kb = "4M"
max_background = 64
strict_limit = 0

[[mount]]
leave_alone = true
"""


# Valid files


def test_without_files_there_are_defaults(tree: Tree) -> None:
    assert load(tree.host) == Config((), Settings())
    configure(tree, "")
    assert load(tree.host) == Config((), Settings())


def test_everything_that_can_be_said(tree: Tree) -> None:
    file = configure(tree, VALID)
    config = load(tree.host)
    assert config.settings == Settings(("alice", "1000"), 250, ("fuse.rclone*",), 5)
    first, second = config.sections
    assert first.matches == {
        "path": "/srv/*",
        "source": "backup:*",
        "server": "sshfs",
        "fstype": "fuse.sshfs",
    }
    assert first.values == {"read_ahead_kb": 4096, "max_background": 64, "strict_limit": 0}
    assert first.origins == {
        "read_ahead_kb": Origin(file, 18),
        "max_background": Origin(file, 19),
        "strict_limit": Origin(file, 20),
    }
    assert (first.layer, first.origin, first.leave_alone) == (Layer.ADMIN, Origin(file, 13), None)
    assert (second.origin, second.leave_alone) == (Origin(file, 22), True)
    assert str(second.origins["leave_alone"]) == f"{file}:23"


@pytest.mark.parametrize(("size", "value"), [("1", 1), ("'2G'", 1 << 31)])
def test_the_least_and_the_largest_size(tree: Tree, size: str, value: int) -> None:
    configure(tree, f"[[mount]]\nmax_write = {size}\n")
    assert load(tree.host).sections[0].needs == {"max_write": value}


def test_the_file_that_is_installed(tree: Tree) -> None:
    """It has the defaults, and its commented-out example is valid."""
    text = (CHECKOUT / "fusetune" / "fusetune.toml").read_text()
    configure(tree, text, vendor=True)
    assert load(tree.host) == Config((), Settings())
    head, _, example = text.partition("# [[mount]]\n")
    lines = [line.removeprefix("# ") for line in example.splitlines()]
    configure(tree, head + "[[mount]]\n" + "\n".join(lines), vendor=True)
    (section,) = load(tree.host).sections
    assert section.leave_alone
    assert set(section.matches) == {"path", "source", "server", "fstype"}
    assert set(section.values) == {"read_ahead_kb", "max_background", "max_ratio"}


def test_a_file_of_the_same_name_is_replaced_whole(tree: Tree) -> None:
    configure(tree, "[watch]\nidle_seconds = 5\n[[mount]]\nmax_ratio = 1\n", vendor=True)
    configure(tree, "[[mount]]\nmax_ratio = 2\n", "mounts.d/a.toml", vendor=True)
    configure(tree, "[[mount]]\nmax_ratio = 3\n", "mounts.d/b.toml", vendor=True)
    mine = configure(tree, "[[mount]]\nmax_ratio = 4\n", "mounts.d/b.toml")
    config = load(tree.host)
    assert config.settings.idle_seconds == 5
    assert [section.values["max_ratio"] for section in config.sections] == [1, 2, 4]
    assert config.sections[2].origin == Origin(mine, 1)
    assert [section.layer for section in config.sections] == [
        Layer.VENDOR,
        Layer.VENDOR,
        Layer.ADMIN,
    ]
    mine.unlink()
    mine.symlink_to("/dev/null")
    configure(tree, "")
    config = load(tree.host)
    assert config.settings.idle_seconds == 60
    assert [section.values["max_ratio"] for section in config.sections] == [2]


def test_only_toml_files_count(tree: Tree) -> None:
    for name in ("mounts.d/a.toml.bak", "mounts.d/.a.toml.new", "mounts.d/._a.toml", "other.toml"):
        configure(tree, "garbage", name)
    assert load(tree.host) == Config((), Settings())


def test_its_signature_changes_with_every_change(tree: Tree) -> None:
    seen = [signature(tree.host)]
    one = configure(tree, "")
    seen.append(signature(tree.host))
    configure(tree, "[[mount]]", "mounts.d/a.toml", vendor=True)
    seen.append(signature(tree.host))
    one.write_text("# longer")
    seen.append(signature(tree.host))
    configure(tree, "[[mount]]", "mounts.d/a.toml")
    seen.append(signature(tree.host))
    assert all(one not in seen[:number] for number, one in enumerate(seen))
    assert signature(tree.host) == seen[-1]


def test_an_edit_in_place_that_leaves_the_length_changes_it(tree: Tree) -> None:
    """20 becomes 30: only the time of the last change differs, not inode or size."""
    file = configure(tree, "[[mount]]\nmax_ratio = 20\n")
    os.utime(file, ns=(0, 10**18))
    before, state = signature(tree.host), file.stat()
    file.write_text("[[mount]]\nmax_ratio = 30\n")
    os.utime(file, ns=(0, 10**18 + 1))
    assert (file.stat().st_ino, file.stat().st_size) == (state.st_ino, state.st_size)
    assert signature(tree.host) != before


def test_a_file_put_in_its_place_changes_it(tree: Tree) -> None:
    """As editors do: with the same length and time, and another inode."""
    file = configure(tree, "[[mount]]\nmax_ratio = 20\n")
    before, state = signature(tree.host), file.stat()
    new = file.with_name("new")
    new.write_text("[[mount]]\nmax_ratio = 30\n")
    os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
    new.rename(file)
    assert file.stat().st_mtime_ns == state.st_mtime_ns
    assert signature(tree.host) != before


# Errors


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("[polcy]", 1, "unknown key 'polcy': did you mean policy?"),
        ("xyz = 1", 1, "unknown key 'xyz': known are mount, policy, watch"),
        ("\n[policy]\nallow_user = []", 3, "unknown key 'allow_user': did you mean allow_users?"),
        ("[policy]\nidle_seconds = 1", 2, "unknown key 'idle_seconds'"),
        ("[policy]\n\nallow_users = 'alice'", 3, "allow_users must be a list"),
        ("[policy]\nallow_users = [true]", 2, "allow_users must be a list"),
        ("[policy]\nallow_users = [\n'a',\n-1,\n]", 2, "allow_users must be a list"),
        ("[policy]\nallow_users = ['']", 2, "allow_users must be a list"),
        ("[policy]\nmax_dirty_percent = -1", 2, "max_dirty_percent must be a whole number from 0"),
        ("[policy]\nmax_dirty_percent = true", 2, "max_dirty_percent must be a whole number"),
        ("[policy]\nmax_dirty_percent = 1.0", 2, "max_dirty_percent must be a whole number"),
        ("[policy]\nmax_dirty_percent = 100001", 2, "from 0 to 100000"),
        ("[policy]\nexclude = [1]", 2, "exclude must be a list of strings"),
        ("[watch]\nidle_seconds = '60s'", 2, "idle_seconds must be a whole number"),
        ("policy = 1", 1, "policy must be a table: write [policy]"),
        ("[[policy]]", 1, "policy must be a table: write [policy]"),
        ("\n[mount]\nmax_ratio = 1", 2, "mount must be a list of tables: write [[mount]]"),
        ("\nmount = [\n1]", 2, "mount must be a table: write [[mount]]"),
        ("[[mount]]\n[[mount]]\nmax_ration = 1", 3, "unknown key 'max_ration': did you mean max_r"),
        ("[[mount]]\nmax_ratio = 1\n\n'pa th' = 1", 4, "unknown key 'pa th': did you mean path?"),
        ('[[mount]]\n"\\u001b" = 1', 2, r"unknown key '\x1b'"),
        ("[[mount]]\nwriteback_cache = 1", 2, "writeback_cache is fixed when the mount is made"),
        ("[[mount]]\nmax_ratio = 101", 2, "max_ratio=101 is out of range: 0 to 100 percent"),
        ("[[mount]]\nmax_ratio = -1", 2, "'-1' is not a whole number"),
        ("[[mount]]\nmax_ratio = 1.5", 2, "max_ratio must be a whole number, or a string such as"),
        ("[[mount]]\nstrict_limit = true", 2, "strict_limit must be a whole number"),
        ("[[mount]]\nmax_ratio = [\n1\n]", 2, "max_ratio must be a whole number"),
        ("[[mount]]\nmax_ratio = '1K'", 2, "max_ratio counts percent"),
        ("[[mount]]\nread_ahead_kb = 3", 2, "the kernel only accepts multiples of 4"),
        ("[[mount]]\nread_ahead_kb = 'much'", 2, "'much' is not a whole number"),
        ("[[mount]]\n\npath = 1", 3, "path must be a string"),
        ("[[mount]]\nfstype = ''", 2, "fstype must be a string"),
        (
            "[[mount]]\nmax_write = 0",
            2,
            "max_write must be a number of bytes, such as '4M', from 1 to",
        ),
        ("[[mount]]\nmax_write = '3G'", 2, "from 1 to 2147483648"),
        ("[[mount]]\nleave_alone = 'no'", 2, "leave_alone must be true or false"),
        ("[[mount]]\nmax_ratio = 1\nmax_ratio = 2", 3, "not valid TOML: Cannot overwrite a value"),
        ("[[mount]]\n\nmax_ratio =", 3, "not valid TOML: "),
        ("[[mount]]\nmax_ratio = [", 2, "not valid TOML: "),
        ("garbage", 1, "not valid TOML: "),
        ("[[mount]]\nmax_ratio = " + "1" * 5000, 1, "not valid TOML: "),
        ("a = " + "[" * 5000, 1, "not valid TOML: "),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_told_with_file_line_and_key(
    tree: Tree, text: str, line: int, told: str
) -> None:
    for name in ("fusetune.toml", "mounts.d/zz.toml"):
        if name != "fusetune.toml" and not text.lstrip(" [\n").startswith("mount"):
            continue
        for vendor in (False, True):
            file = configure(tree, text, name, vendor=vendor)
            configure(tree, "[[mount]]\nmax_ratio = 2\n", "mounts.d/a.toml")
            said = wrong(tree)
            assert said.startswith(f"{file}:{line}: ")
            assert told in said
            assert said.isprintable()
            file.unlink()


def test_settings_stand_in_the_main_file_alone(tree: Tree) -> None:
    for name in ("mounts.d/a.toml", "mounts.d/fusetune.toml"):
        file = configure(tree, "\n[watch]\nidle_seconds = 1\n", name)
        assert wrong(tree) == f"{file}:2: [watch] belongs in fusetune.toml"
        file.unlink()


def test_options_stand_where_the_library_reads_them(tree: Tree) -> None:
    """The tuned libfuse3 itself reads only the files in /etc/fusetune/mounts.d."""
    text = "[[mount]]\noptions = 'direct_io'\n"
    main = "fusetune.toml"
    for name, vendor in ((main, False), (main, True), ("mounts.d/a.toml", True)):
        file = configure(tree, text, name, vendor=vendor)
        assert wrong(tree) == f"{file}:2: options are only allowed in /etc/fusetune/mounts.d"
        file.unlink()
    configure(tree, text, "mounts.d/a.toml")
    assert load(tree.host).sections[0].options == "direct_io"


def test_what_is_no_text(tree: Tree) -> None:
    file = configure(tree, "")
    file.write_bytes(b"# ok\n\xff\xfe")
    assert wrong(tree) == f"{file}: not UTF-8 text at byte 5; rewrite it"
    file.unlink()
    file.mkdir()
    assert wrong(tree) == f"cannot read {file}: Is a directory"


@given(st.one_of(st.binary(max_size=60), st.text("[]mount\n=\"'# 1,{}", max_size=40)))
def test_any_garbage_is_taken_or_told(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes | str
) -> None:
    tree = Tree(tmp_path_factory.mktemp("tree"))
    file = configure(tree, "")
    file.write_bytes(garbage.encode() if isinstance(garbage, str) else garbage)
    try:
        load(tree.host)
    except ConfigError as error:
        assert str(file) in str(error)  # noqa: PT017
