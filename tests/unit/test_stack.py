# SPDX-License-Identifier: GPL-2.0-or-later
"""What a mount lies on is found from /proc and /sys only, whatever servers claim.

fdinfo is as proc_pid_fdinfo(5) says, branches are mergerfs(1)'s, layers those of the kernel's
Documentation/filesystems/overlayfs.rst.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from fusetune.cli.list_ import command
from fusetune.host import Host
from fusetune.mounts.discover import discover
from fusetune.mounts.stack import Stacks
from fusetune.mounts.words import paths_in
from tests import schemas
from tests.unit.conftest import Tree, process

Found = list[tuple[str, str]]


def upper(tree: Tree, *words: str, source: str = "x", connection: str = "49", **how: str) -> None:
    """Add /mnt/up, which process 10 serves with these arguments before its mount point."""
    tree.mount("/mnt/up", "0:49", "fuse.upper", source, number=60)
    process(tree, 10, "upperd", *words, "/mnt/up", fds={3: connection}, **how)


def opened(tree: Tree, pid: int, fd: int, mount: int, flags: int = os.O_DIRECTORY) -> None:
    """Let a process have an open file in the mount with this number."""
    (tree.root / f"proc/{pid}/fd/{fd}").symlink_to("/dev/full")
    text = f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t{mount}\nino:\t1\n"
    tree.write(f"proc/{pid}/fdinfo/{fd}", text)


@pytest.fixture
def two(tree: Tree) -> Tree:
    """FUSE mounts at /mnt/a and /mnt/b."""
    tree.mount("/mnt/a", "0:40", "fuse.lower", "lower", number=51)
    tree.mount("/mnt/b", "0:41", "fuse.lower", "lower", number=52)
    return tree


def below(tree: Tree, path: str = "/mnt/up") -> Found:
    """Where each mount below one is, and how it was found."""
    mounts = discover(tree.host)
    stacks = Stacks(tree.host, mounts)
    (mount,) = (one for one in mounts if one.path == path)
    return [(one.path, one.found_by.value) for one in stacks.below(mount)]


# Each way of finding


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["/mnt/a"], ["/mnt/a"]),
        (["/mnt/a/deep/"], ["/mnt/a"]),
        (["/mnt/../mnt/a"], ["/mnt/a"]),
        (["-o", "x,lowerdir=/mnt/b:/mnt/a/y,upperdir=/z"], ["/mnt/b", "/mnt/a", "/"]),
        (["--cipher=/mnt/a"], ["/mnt/a"]),
        (["/mnt/a=RW:/mnt/b/c=NC,1G"], ["/mnt/a", "/mnt/b"]),
        (["/mnt/?"], ["/mnt/a", "/mnt/b"]),
        (["/mnt/a/*"], ["/mnt/a"]),
        (["/srv/data"], ["/"]),
        # not a location of files here: another host's, a log, a device, a similar name
        (["host:/mnt/a"], []),
        (["--log=/var/log/x", "host:/mnt/a"], []),
        (["/dev/sda1"], []),
        (["/mnt/ab"], ["/"]),
        (["-o", "allow_other"], []),
    ],
)
def test_arguments(two: Tree, words: list[str], found: list[str]) -> None:
    upper(two, *words)
    two.mount("/dev", "0:6", "devtmpfs", number=53)
    assert below(two) == [(path, "argument") for path in found]


def test_a_relative_argument(two: Tree) -> None:
    upper(two, "./a", cwd="/mnt")
    assert below(two) == [("/mnt/a", "argument")]


def test_a_relative_argument_of_a_server_in_the_background(two: Tree) -> None:
    upper(two, "mnt/a")
    assert below(two) == []


def test_open_files_count_above_arguments(two: Tree) -> None:
    upper(two, "/mnt/a", source="/mnt/b")
    opened(two, 10, 5, 51)
    assert below(two) == [("/mnt/a", "open file")]


def test_an_open_file_of_fuse_and_an_open_directory_of_others(two: Tree) -> None:
    upper(two)
    opened(two, 10, 5, 52, flags=os.O_RDWR)
    opened(two, 10, 6, 22, flags=os.O_WRONLY)  # a log
    assert below(two) == [("/mnt/b", "open file")]
    opened(two, 10, 7, 22)
    assert below(two) == [("/mnt/b", "open file"), ("/", "open file")]


def test_standard_streams_and_what_is_not_mounted_here_do_not_count(two: Tree) -> None:
    upper(two)
    opened(two, 10, 1, 51)
    opened(two, 10, 8, 999)
    two.write("proc/10/fdinfo/9", "pos:\t0\nno such line\n")
    (two.root / "proc/10/fd/9").symlink_to("/dev/full")
    assert below(two) == []


def test_the_source_counts_only_if_nothing_else_is_known(two: Tree) -> None:
    two.mount("/mnt/up", "0:49", "fuse.upper", "/mnt/a/x:/mnt/b", number=60)
    assert below(two) == [("/mnt/a", "source"), ("/mnt/b", "source")]


def test_a_bind_mount_leads_to_its_super_block(two: Tree) -> None:
    two.mount("/srv/bound", "0:41", "fuse.lower", root="/deep", number=53)
    upper(two, "/srv/bound/dir")
    assert below(two) == [("/mnt/b", "argument")]


def test_what_is_covered_is_not_meant(two: Tree) -> None:
    two.mount("/mnt", "0:45", "tmpfs", number=54)
    upper(two, "/mnt/a")
    assert below(two) == [("/mnt", "argument")]


def test_a_mount_over_its_own_source(tree: Tree) -> None:
    tree.mount("/mnt/up", "0:40", "fuse.lower", number=51)
    tree.mount("/mnt/up", "0:49", "fuse.upper", number=60, parent=51)
    process(tree, 10, "upperd", "/mnt/up", "/mnt/up", fds={3: "49"})
    mounts = discover(tree.host)
    found = Stacks(tree.host, mounts).below(mounts[1])
    assert [one.device for one in found] == ["0:40"]


def test_an_image_on_a_fuse_mount(two: Tree) -> None:
    two.mount("/mnt/up", "7:3", "fuseblk", "/dev/loop3", number=60)
    two.write("sys/dev/block/7:3/loop/backing_file", "/mnt/a/image (deleted)\n")
    assert below(two) == [("/mnt/a", "loop device")]


def test_the_kernels_overlay_on_a_fuse_mount(two: Tree) -> None:
    options = "rw,lowerdir=/mnt/b:/usr,upperdir=/mnt/a/up,workdir=/mnt/a/work"
    two.mount("/srv/over", "0:60", "overlay", "overlay", options, number=55)
    upper(two, "/srv/over")
    mounts = discover(two.host)
    stacks = Stacks(two.host, mounts)
    found = stacks.down(mounts[-1])
    assert [(one.path, one.found_by.value) for one in found] == [
        *(("/mnt/b", "mount option"), ("/", "mount option"), ("/mnt/a", "mount option")),
        ("/srv/over", "argument"),
    ]


def test_the_last_mount_point_is_a_servers_own_where_the_kernel_does_not_tell(two: Tree) -> None:
    process(two, 9, "lowerd", "/srv", "/mnt/a", fds={3: ""})
    upper(two, "/mnt/a", connection="")
    assert below(two) == [("/mnt/a", "argument")]
    assert below(two, "/mnt/a") == [("/", "argument")]


def test_two_mounts_of_one_process_do_not_lie_on_each_other(two: Tree) -> None:
    process(two, 9, "both", "/mnt/a", "/mnt/b", fds={3: "40", 4: "41"})
    assert (below(two, "/mnt/a"), below(two, "/mnt/b")) == ([], [])


def test_a_server_of_another_mount_namespace(two: Tree) -> None:
    upper(two, "/inside/a", "/inside/b")
    for name, link in (("self", "mnt:[1]"), ("10", "mnt:[2]")):
        (two.root / f"proc/{name}/ns").mkdir()
        (two.root / f"proc/{name}/ns/mnt").symlink_to(link)
    line = "70 1 {} / {} rw - fuse.lower x rw,user_id=0\n"
    two.write("proc/10/mountinfo", line.format("0:41", "/inside/b"))
    with (two.root / "proc/10/mountinfo").open("a") as stream:
        stream.write(line.replace("70", "71").format("0:77", "/inside/a"))
    opened(two, 10, 5, 71)
    mounts = discover(two.host)
    found = Stacks(two.host, mounts).below(mounts[-1])
    assert [(one.path, one.elsewhere, one.found_by.value) for one in found] == [
        ("/inside/a", True, "open file"),
        ("/mnt/b", False, "argument"),
    ]


# What only a dishonest server would claim


@pytest.mark.parametrize(
    "word",
    [
        *("/mnt/a\0", "/" * 100_000, "/" + "x/" * 50_000, "a=" * 50_000 + "/mnt/a"),
        *("/mnt/\x1b[31m", "\udcff/mnt/a", ":" * 50_000, "," * 50_000, "/[" * 20_000, "/mnt/["),
    ],
    ids=range(10),
)
def test_hostile_words(two: Tree, word: str) -> None:
    assert all(path.startswith("/") and len(path) <= 4097 for path in paths_in(word))
    two.mount("/mnt/up", "0:49", "fuse.upper", word, number=60)
    assert {path for path, _ in below(two)} <= {"/", "/mnt/a"}


@pytest.mark.parametrize("point", ["/mnt/c:/mnt/b", "/mnt/a,b", "/mnt/[a]", "/mnt/*"])
def test_a_mount_point_that_looks_like_several(two: Tree, point: str) -> None:
    two.mount(point, "0:42", "fuse.lower", number=53)
    upper(two, f"{point}/x")
    assert below(two) == [(point, "argument")]


def _circle(tree: Tree, count: int) -> None:
    for number in range(count):
        source = f"/mnt/{(number + 1) % count}"
        tree.mount(f"/mnt/{number}", f"0:{100 + number}", "fuse.x", source, number=100 + number)


def test_a_circle_ends(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    _circle(tree, 3)
    mounts = discover(tree.host)
    assert [one.path for one in Stacks(tree.host, mounts).down(mounts[0])] == ["/mnt/2", "/mnt/1"]
    assert _tree_of(tree, capsys) == ["/mnt/0", "└─/mnt/1", "  └─/mnt/2", "    └─/mnt/0"]


def _tree_of(tree: Tree, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    command.main(["--tree", *words], prog_name="list", obj=tree.host, standalone_mode=False)
    _, *lines = capsys.readouterr().out.splitlines()
    return [line.partition(" fuse")[0].partition(" ext4")[0].rstrip() for line in lines]


@pytest.mark.slow
def test_a_circle_of_a_thousand(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    _circle(tree, 1000)
    assert len(_tree_of(tree, capsys)) == 1001


def test_many_ways_down_are_drawn_once(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    # 2 to the power of 30 ways lead from the top to the bottom.
    for level in range(30):
        for side in "ab":
            sources = f"/mnt/{level + 1}a:/mnt/{level + 1}b" if level < 29 else "x"
            number = 100 + 2 * level + (side == "b")
            path = f"/mnt/{level}{side}"
            tree.mount(path, f"0:{number}", "fuse.x", sources, number=number)
    assert len(_tree_of(tree, capsys)) == 2 + 2 * 2 * 29


# list --tree


def test_the_tree(two: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    upper(two, "/mnt/a:/mnt/b")
    process(two, 9, "lowerd", "/srv", "/mnt/a", fds={3: "40"})
    assert _tree_of(two, capsys) == ["/mnt/up", "├─/mnt/a", "│ └─/", "└─/mnt/b"]


def test_the_tree_as_json(two: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    upper(two, "/mnt/a")
    process(two, 9, "lowerd", "/srv", "/mnt/a", fds={3: "40"})
    for words in (["--json"], ["--json", "--tree"]):
        command.main(words, prog_name="list", obj=two.host, standalone_mode=False)
    flat, deep = capsys.readouterr().out.split("}\n{")
    plain = schemas.validate(json.loads(flat + "}"))
    found = schemas.validate(json.loads("{" + deep))
    assert plain["layers"] is None
    assert {one["below"] for one in plain["mounts"]} == {None}
    assert [one["path"] for one in found["mounts"]] == ["/mnt/a", "/mnt/b", "/mnt/up"]
    assert found["mounts"][2]["below"] == [
        {
            "path": "/mnt/a",
            "fstype": "fuse.lower",
            "device": "0:40",
            "found_by": "argument",
            "elsewhere": False,
        }
    ]
    assert [(one["path"], one["fstype"], one["below"]) for one in found["layers"]] == [
        ("/", "ext4", [])
    ]


# How much is read


def test_a_command_line_with_very_many_paths(tree: Tree) -> None:
    """They are looked up for each mount of the process."""
    tree.mount("/mnt/one", "0:40", "fuse.x", number=40)
    tree.mount("/mnt/two", "0:41", "fuse.x", number=41)
    many = "lowerdir=" + "/mnt/two:" * 4000
    process(tree, 10, "x", "/mnt/two", many, "/mnt/one", fds={3: "40"})
    stacks = Stacks(tree.host, discover(tree.host))
    assert list(stacks._words_once("10")) == ["/mnt/two"]


@dataclass(frozen=True)
class CountingHost(Host):
    """Records which files were requested."""

    asked: list[str] = field(default_factory=list)

    def path(self, relative: str) -> str:
        """Return the path, and record it."""
        self.asked.append(relative)
        return super().path(relative)


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let children's work be counted as well."""

    def each(work: Callable[[str], object], names: Sequence[str]) -> dict[str, object]:
        return {name: work(name) for name in names}

    for module in ("daemons", "stack"):
        monkeypatch.setattr(f"fusetune.mounts.{module}.each_in_time", each)


def _asked(tree: Tree) -> list[str]:
    """Return the files that are read to find all layers of all mounts."""
    host = CountingHost(str(tree.root))
    mounts = discover(host)
    stacks = Stacks(host, mounts)
    assert sum(len(stacks.down(mount)) for mount in mounts) >= len(mounts)
    return host.asked


@pytest.mark.usefixtures("in_this_process")
def test_reads_grow_as_the_mounts_do(tree: Tree) -> None:
    """Each mount has its own server, and lies on the previous one."""
    counts = []
    for number in range(30):
        device, path = f"0:{100 + number}", f"/mnt/{number}"
        tree.mount(path, device, "fuse.x", number=100 + number)
        source = f"/mnt/{number - 1}" if number else "/srv"
        process(tree, 1000 + number, "x", source, path, fds={3: str(100 + number)})
        opened(tree, 1000 + number, 4, 99 + number)
        if number % 10 == 9:
            counts.append(len(_asked(tree)))
    assert counts[2] - counts[1] == counts[1] - counts[0]


@pytest.mark.usefixtures("in_this_process")
def test_a_server_of_a_thousand_mounts_is_read_once(tree: Tree) -> None:
    for number in range(1000):
        tree.mount(f"/mnt/{number}", f"0:{100 + number}", "fuse.x", number=100 + number)
    process(tree, 10, "x", "/srv", fds={3 + n: str(100 + n) for n in range(1000)})
    directory = f"pos:\t0\nflags:\t0{os.O_DIRECTORY:o}\nmnt_id:\t22\nfuse_connection:\t100\n"
    tree.write("proc/10/fdinfo/3", directory)
    asked = _asked(tree)
    assert asked.count("proc/10/fd") == 2  # for /dev/fuse, and for what else is open
    assert asked.count("proc/10/fdinfo/500") == 1
