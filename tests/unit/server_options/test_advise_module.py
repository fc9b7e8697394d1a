# SPDX-License-Identifier: GPL-2.0-or-later
"""Which mount options of the module advise proposes, and how a server gets them.

A directory tree replaces /proc, /sys and /etc.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusetune.errors import FusetuneError
from fusetune.intercept import way
from fusetune.intercept.means import means_of
from fusetune.kmod.options import OPTIONS
from fusetune.recipes.advice import advise
from fusetune.recipes.by_module import Means, tuned_type
from fusetune.recipes.load import load_recipes
from fusetune.toml.file import ConfigError
from tests.unit.conftest import Tree
from tests.unit.server_options.etc_files import run as remount
from tests.unit.server_options.oursd import RECIPE, document, serve

pytestmark = pytest.mark.slow

MODULE = """
[[module]]
option = "attr_timeout"
propose = "60"
own = ["threads"]
source = "ours(1) has none"

[[module]]
option = "no_file_caps"
workloads = ["small-write"]
class = "safe"
source = "ours(1): it has no capabilities"

[[module]]
option = "parallel_extend"
source = "ours(1): only here"
"""
ALL = Means(loaded=True, intercepts=True, library=False)
NEW = ("tuned.attr_timeout", "tuned.no_file_caps")


def write_recipe(tree: Tree, more: str = MODULE) -> Path:
    """Write oursd's recipe, whose option threads is only for libfuse 2, with ``more``."""
    text = RECIPE.replace("{way}", "mount")
    text = text.replace('since = "2.1"\nuntil = "3.0"', 'since = "2.1"\nlibrary = ["libfuse2"]')
    return tree.write("etc/recipes/ours.toml", text + more)


@pytest.fixture
def rooted(ours: Tree) -> Tree:
    """A mount of root's server, on a host with the interceptor and the module loaded."""
    assert (ours.root / "sys/module/fusetuned").is_dir()
    write_recipe(ours)
    serve(ours)
    ours.write("usr/lib/fusetune-intercept", "").chmod(0o755)
    return ours


def serve_anew(tree: Tree, *words: str, unit: str | None = None) -> None:
    shutil.rmtree(tree.root / "proc/10")
    serve(tree, *words, unit=unit)


def names(found: dict[str, Any]) -> list[str]:
    """The options of the module that are proposed."""
    return [one["option"] for one in found["changes"] if one["option"].startswith("tuned.")]


# Whether an option is proposed


def test_what_is_proposed(rooted: Tree, tell: Any) -> None:
    found = document(tell("--json"))
    timeout, caps = (one for one in found["changes"] if one["option"] in NEW)
    general = OPTIONS["attr_timeout"]
    assert (timeout["from"], timeout["to"], timeout["class"]) == (None, "60", "conditional")
    assert (timeout["about"], timeout["condition"]) == (general.about, general.condition)
    assert timeout["risk"] == general.otherwise
    assert timeout["needs"] == ["a server that runs as root"]
    assert timeout["source"] == "ours(1) has none"
    assert (caps["from"], caps["to"], caps["class"]) == ("false", "true", "safe")
    assert caps["condition"] is None
    assert "parallel_extend" not in str(found)  # unsafe
    assert found["commands"]["then"] == (
        "fusetune run -o tuned,attr_timeout=60,no_file_caps -- "
        "oursd -o cache=some,writeback a /mnt/one"
    )
    assert not any("not loaded" in note for note in found["notes"])


def test_without_the_module_advice_is_as_if_the_recipe_had_none(rooted: Tree, tell: Any) -> None:
    shutil.rmtree(rooted.root / "sys/module/fusetuned")
    with_tables = [tell(*words) for words in (("--json",), (), ("--format", "diff"))]
    write_recipe(rooted, "")
    assert [tell(*words) for words in (("--json",), (), ("--format", "diff"))] == with_tables
    assert "tuned" not in with_tables[0][1]


def test_a_module_that_can_be_loaded(rooted: Tree, tell: Any) -> None:
    shutil.rmtree(rooted.root / "sys/module/fusetuned")
    rooted.write("usr/lib/modules/6.12.1/updates/dkms/fusetuned.ko", "")
    found = document(tell("--json"))
    assert names(found) == list(NEW)
    assert "the module fusetuned is not loaded; 'fusetune module load' loads it" in found["notes"]


def test_the_means_of_a_host(rooted: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert means_of(rooted.host) == ALL
    rooted.write("usr/lib/x86_64-linux-gnu/fusetune/libfuse3.so.3", "")
    assert means_of(rooted.host) == replace(ALL, library=True)
    monkeypatch.setattr(way, "__file__", str(rooted.root / "a" / "b" / "way.py"))
    (rooted.root / "usr/lib/fusetune-intercept").unlink()
    with pytest.raises(FusetuneError):
        way.interceptor(rooted.host)
    assert means_of(rooted.host) == Means(loaded=True, intercepts=False, library=True)
    (rooted.root / "usr/lib/x86_64-linux-gnu/fusetune/libfuse3.so.3").unlink()
    assert means_of(rooted.host) is None


def test_the_tuned_library_alone_brings_what_it_knows(rooted: Tree) -> None:
    maps = "1-2 r-xp 0 8:1 9 /lib/x86_64-linux-gnu/libfuse{}\n"
    means = Means(loaded=True, intercepts=False, library=True)
    for library, wanted in (("3.so.3.14.0", ["tuned.no_file_caps"]), (".so.2.9.9", [])):
        rooted.write("proc/10/maps", maps.format(library))
        found = advise(rooted.host, rooted.only(), load_recipes(rooted.host), means=means)
        assert [one.option for one in found.changes if "tuned." in one.option] == wanted


def test_an_option_of_the_server_goes_before(rooted: Tree, tell: Any) -> None:
    rooted.write("proc/10/maps", "1-2 r-xp 0 8:1 9 /lib/x86_64-linux-gnu/libfuse.so.2.9.9\n")
    found = document(tell("--json", "-w", "metadata"))
    assert [one["option"] for one in found["changes"]] == ["threads"]
    # A server that is too old does not have the option.
    rooted.write("var/lib/dpkg/info/ours.list", "/usr/bin/oursd\n")
    rooted.write("var/lib/dpkg/status", "Package: ours\nVersion: 2.0-1\n")
    assert names(document(tell("--json", "-w", "metadata"))) == ["tuned.attr_timeout"]


def test_what_is_not_known_counts_as_there(rooted: Tree, tell: Any) -> None:
    (rooted.root / "proc/10/maps").unlink()
    assert names(document(tell("--json"))) == ["tuned.no_file_caps"]


def test_an_option_of_the_server_that_is_set(rooted: Tree, tell: Any) -> None:
    serve_anew(rooted, "oursd", "-o", "threads=4", "a", "/mnt/one")
    assert names(document(tell("--json"))) == ["tuned.no_file_caps"]


def test_only_for_a_server_of_roots_on_this_host(rooted: Tree, tell: Any) -> None:
    for pid, number in (("10", 1), ("self", 2)):
        (rooted.root / f"proc/{pid}/ns").mkdir()
        os.symlink(f"mnt:[{number}]", rooted.root / f"proc/{pid}/ns/mnt")
    assert names(document(tell("--json"))) == []
    (rooted.root / "proc/10/ns/mnt").unlink()
    assert names(document(tell("--json"))) == list(NEW)
    rooted.write("proc/10/status", "Uid:\t1000\t1000\t1000\t1000\n")
    assert names(document(tell("--json"))) == []


def test_for_workloads_that_gain(rooted: Tree, tell: Any) -> None:
    assert names(document(tell("--json", "-w", "seq-read"))) == ["tuned.attr_timeout"]


def test_a_mount_that_has_some_already(rooted: Tree) -> None:
    mount = rooted.only()
    mount = replace(mount, fstype="fusetuned.ours", options=("rw", "max_pages=64", "no_file_caps"))
    recipes = load_recipes(rooted.host)
    found = advise(rooted.host, mount, recipes, ["metadata"], means=ALL)
    assert [one.option for one in found.changes] == ["tuned.attr_timeout"]
    options = "tuned,max_pages=64,no_file_caps,attr_timeout=60"
    assert found.then == f"fusetune run -o {options} -- oursd a /mnt/one"
    # Its own options do not remove the module's.
    found = advise(rooted.host, mount, recipes, ["small-write"], means=ALL)
    assert found.then
    assert found.then.startswith(f"fusetune run -o {options} -- oursd -o ")
    write_recipe(rooted, "")
    bare = replace(mount, options=("rw",))
    found = advise(rooted.host, bare, load_recipes(rooted.host), ["small-write"], means=ALL)
    assert found.then == "fusetune run -o tuned -- oursd -o cache=some,writeback a /mnt/one"


# How the server gets it


def test_the_line_of_fstab(rooted: Tree, tell: Any) -> None:
    rooted.write("etc/fstab", "a\t/mnt/one  fuse.ours   ro,cache=all 0 0\n")
    (edit,) = document(tell("--json", "-w", "metadata"))["edits"]
    line = "+a\t/mnt/one  fusetune.ours   ro,cache=all,attr_timeout=60 0 0\n"
    assert edit["diff"].endswith(line)
    rooted.write("etc/fstab", line[1:])
    assert names(document(tell("--json", "-w", "metadata"))) == ["tuned.attr_timeout"]
    assert document(tell("--json", "-w", "metadata"))["edits"] == []  # it waits for the next mount


@pytest.mark.parametrize("line", ["ours#a /mnt/one fuse ro", "a /mnt/one fuse.ours ro,max_pages=9"])
def test_a_line_of_fstab_that_cannot_say_it(rooted: Tree, tell: Any, line: str) -> None:
    """Without the server's name, or with an option that mount.fusetune(8) would consume."""
    rooted.write("etc/fstab", f"{line} 0 0\n")
    found = document(tell("--json", "-w", "metadata"))
    assert found["edits"] == []
    assert found["notes"] == ["tuned.attr_timeout cannot be set in fstab"]
    assert found["commands"]["then"].startswith("fusetune run -o tuned,attr_timeout=60 -- ")


def test_fstab_of_a_server_that_mount_fusetune_gives_the_library(rooted: Tree) -> None:
    rooted.write("proc/10/maps", "1-2 r-xp 0 8:1 9 /lib/x86_64-linux-gnu/libfuse3.so.3.14.0\n")
    rooted.write("etc/fstab", "a /mnt/one fuse.ours ro 0 0\n")
    means = Means(loaded=True, intercepts=True, library=True)
    recipes = load_recipes(rooted.host)
    found = advise(rooted.host, rooted.only(), recipes, ["metadata"], means=means)
    assert (found.edits, found.notes) == ([], ["tuned.attr_timeout cannot be set in fstab"])


def test_a_mount_unit(rooted: Tree, tell: Any) -> None:
    unit = "[Mount]\nWhat=a\nWhere=/mnt/one\nType=fuse.ours\nOptions=ro\n"
    rooted.write("etc/systemd/system/mnt-one.mount", unit)
    (edit,) = document(tell("--json", "-w", "metadata"))["edits"]
    added = "+[Mount]\n+Type=fusetune.ours\n+Options=ro,attr_timeout=60\n"
    assert edit["diff"].endswith(added)


def test_a_service(rooted: Tree, tell: Any) -> None:
    text = "[Service]\nExecStart=/usr/bin/oursd a /mnt/one\n"
    rooted.write("etc/systemd/system/ours.service", text)
    serve_anew(rooted, unit="ours.service")
    how = "'fusetune enable ours.service -o tuned,attr_timeout=60{}' gives the service the module's"
    found = document(tell("--json", "-w", "metadata"))
    assert (found["edits"], found["notes"]) == ([], [f"{how.format('')} options"])
    found = document(tell("--json", "-w", "small-write"))
    assert len(found["edits"]) == 1
    options = ",no_file_caps"
    after = " options, after you have changed the files above"
    assert found["notes"][-1] == how.format(options) + after


@pytest.mark.parametrize(
    ("fstype", "wanted"),
    [
        ("fuse.a", "fusetune.a"),
        ("fuse3.a.b", "fusetune.a.b"),
        ("fusetune.a", "fusetune.a"),
        ("ntfs-3g", "fusetune.ntfs-3g"),
        ("fuse", None),
        ("fuse.", None),
        ("auto", None),
        ("fuseblk.a", None),
    ],
)
def test_types_of_fstab(fstype: str, wanted: str | None) -> None:
    assert tuned_type(fstype) == wanted


def test_remount_leaves_them_out(rooted: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    rooted.write("etc/fstab", "a /mnt/one fuse.ours ro 0 0\n")
    remount(rooted, "--dry-run", "--accept", "writeback")
    said = capsys.readouterr().out
    assert "writeback" in said
    assert "tuned" not in said


# Errors in recipes


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('"attr_timeout"', '"attr_timeot"', "option must be one of async_dio, async_read"),
        ('propose = "60"\n', "", "propose: attr_timeout takes a value"),
        ('propose = "60"', 'propose = "0"', "propose: 0 is out of its range"),
        ('propose = "60"', 'propose = "1m"', "propose must match"),
        ('class = "safe"', 'propose = "1"', "propose: no_file_caps takes no value"),
        ('"threads"', '"thread"', "own: this recipe has no option 'thread'"),
        ('"threads"]', '"threads"]\nexcludes = ["x"]', "excludes: this recipe has no option 'x'"),
        ('class = "safe"', 'condition = "x"', "condition and otherwise need a class"),
        ('class = "safe"', 'class = "unsafe"', "a unsafe option has a condition"),
    ],
)
def test_an_error_in_a_recipe(tree: Tree, old: str, new: str, what: str) -> None:
    assert old in MODULE
    write_recipe(tree, MODULE.replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        load_recipes(tree.host)
    assert what in str(raised.value)


def test_each_option_that_is_not_safe_has_its_condition() -> None:
    for name, one in OPTIONS.items():
        wanted = one.class_ != "safe"
        assert (one.condition is not None, one.otherwise is not None) == (wanted, wanted), name
        assert bool(one.range) == bool(one.unit) == bool(one.value), name
