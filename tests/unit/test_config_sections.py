# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mounts a section matches, and which of two wins: the rules of fusetune.toml(5)."""

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest

from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save
from fusetune.desired.sections import path_matches
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from tests.unit.config_files import configure, wrong
from tests.unit.conftest import Tree


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/srv/a", "/srv/a", True),
        ("/srv/a", "/srv/ab", False),
        ("/srv/*", "/srv/a", True),
        ("/srv/*", "/srv/a/b", False),
        ("/srv/*", "/srv", False),
        ("/srv/*/b", "/srv/a/b", True),
        ("/srv/**", "/srv/a/b/c", True),
        ("/srv/**", "/srv", True),
        ("/srv/**", "/srvx/a", False),
        ("/srv/**/c", "/srv/c", True),
        ("/srv/**/c", "/srv/a/b/c", True),
        ("/srv/**/c", "/srv/a/b/d", False),
        ("**", "/any/thing", True),
        ("/*", "/", True),
        ("/mnt/[ab]?", "/mnt/bc", True),
        ("/mnt/[[]x]", "/mnt/[x]", True),
        ("/mnt/*", "/mnt/new\nline", True),
        ("/MNT/*", "/mnt/a", False),
    ],
)
def test_paths(pattern: str, path: str, matches: bool) -> None:
    assert path_matches(pattern, path) is matches


@pytest.mark.parametrize(
    ("matches", "count"),
    [
        ("", 1),
        ("path = '/mnt/one'", 1),
        ("path = '/srv/*'", 1),  # a bind mount of it
        ("path = '/mnt'", 0),
        ("path = '/*'", 0),
        ("fstype = 'fuse.*'", 1),
        ("fstype = 'fuse'", 0),
        ("source = 'host:/a*'", 1),  # a source is not a path
        ("source = 'host:'", 0),
        ("server = 'mirrorfs'", 0),  # nobody serves it
        ("path = '/mnt/*'\nfstype = 'fuse.mirrorfs'\nsource = '*'", 1),
        ("path = '/mnt/*'\nfstype = 'fuse.other'", 0),
    ],
)
def test_what_a_section_is_about(tree: Tree, mounted: Mount, matches: str, count: int) -> None:
    mount = replace(mounted, source="host:/a/b", also_at=("/srv/x",))
    configure(tree, f"[[mount]]\n{matches}\n")
    assert len(list(load(tree.host).matching(tree.host, mount, Daemons(tree.host)))) == count


def permutations(first: str, second: str) -> Iterator[str]:
    for one, two in (((first, 1), (second, 2)), ((second, 2), (first, 1))):
        yield "".join(f"[[mount]]\n{match}\nmax_ratio = {value}\n" for match, value in (one, two))


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("", "fstype = '*'"),
        ("fstype = '*'", "fstype = 'fuse.*'"),
        ("fstype = 'fuse.mi*'", "fstype = 'fuse.mirrorfs'"),
        ("fstype = 'fuse.mirrorfs*'", "fstype = 'fuse.mirrorfs'"),
        ("fstype = 'fuse.m?????*'", "fstype = 'fuse.mi*'"),
        ("fstype = 'fuse.[k-n]*[op]*s'", "fstype = 'fuse.mir*'"),
        ("fstype = 'fuse.mirrorfs'", "source = '*'"),
        ("source = 'source'", "path = '**'"),
        ("fstype = 'fuse.mirrorfs'\nsource = 'source'", "path = '/mnt/*'"),
        ("path = '/mnt/*'", "path = '/mnt/*'\nfstype = '*'"),
        ("path = '/mnt/**'", "path = '/mnt/on*'"),
        ("path = '/mnt/on*'\nsource = 'source'", "path = '/mnt/one'"),
    ],
)
def test_the_more_specific_section_wins(tree: Tree, mounted: Mount, less: str, more: str) -> None:
    for text in permutations(less, more):
        configure(tree, text)
        assert Resolver(tree.host, load(tree.host)).expected(mounted)["max_ratio"].value == 2


def test_of_equals_the_later_one_wins(tree: Tree, mounted: Mount) -> None:
    configure(tree, "[[mount]]\nmax_ratio = 1\n[[mount]]\nmax_ratio = 2\n")
    assert Resolver(tree.host, load(tree.host)).expected(mounted)["max_ratio"].value == 2
    configure(tree, "[[mount]]\nmax_ratio = 3\n", "mounts.d/a.toml")
    assert Resolver(tree.host, load(tree.host)).expected(mounted)["max_ratio"].value == 3


def test_layers_count_before_what_is_specific(tree: Tree, mounted: Mount) -> None:
    """For each knob separately: a knob that the upper one lacks comes from the lower one."""

    def sources() -> dict[str, str]:
        expected = Resolver(tree.host, load(tree.host)).expected(mounted)
        return {
            name: f"{one.value} {one.origin.file.parent.name}" for name, one in expected.items()
        }

    configure(
        tree,
        "[[mount]]\npath = '/mnt/one'\nmax_ratio = 2\nmax_background = 2\nread_ahead_kb = 4\n",
        "mounts.d/a.toml",
        vendor=True,
    )
    of_vendor = {"max_ratio": "2 mounts.d", "max_background": "2 mounts.d"}
    assert sources() == {"read_ahead_kb": "4 mounts.d"} | of_vendor
    save(tree.host, mounted, {"max_ratio": 3, "max_background": 3}, "save")
    of_saved = {"max_ratio": "3 saved", "max_background": "3 saved"}
    assert sources() == {"read_ahead_kb": "4 mounts.d"} | of_saved
    configure(tree, "[[mount]]\nmax_ratio = 4\n")
    of_admin = {"max_ratio": "4 etc", "max_background": "3 saved"}
    assert sources() == {"read_ahead_kb": "4 mounts.d"} | of_admin


@pytest.mark.parametrize("mode", [0o664, 0o646])
@pytest.mark.parametrize("what", ["fusetune.toml", "."])
def test_root_takes_nothing_that_others_may_write(tree: Tree, mode: int, what: str) -> None:
    file = configure(tree, "[policy]\nmax_dirty_percent = 1\n")
    place = file if what == file.name else file.parent
    place.chmod(mode | (0o111 if place.is_dir() else 0))
    with mock.patch("os.geteuid", return_value=0):
        assert "users other than root can write" in wrong(tree)
    with mock.patch("os.geteuid", return_value=1000):
        assert load(tree.host).settings.max_dirty_percent == 1
