# SPDX-License-Identifier: GPL-2.0-or-later
"""What advise proposes, from a tree in place of /proc and /etc.

fstab is as fstab(5) says, units as systemd.unit(5) and systemd.service(5), and a server's command
line as its own manual.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.cli.advise_ import command
from fusetune.errors import FusetuneError
from fusetune.mounts.daemons import Daemons
from fusetune.recipes.advise import Circumstances, Plan, plan
from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.spelling import Spellings, spellings_of
from fusetune.recipes.units import assignments, mount_unit
from tests import schemas
from tests.unit.conftest import Tree, process

#: Has every way to write an option, and one of each class.
RECIPE = """\
schema = "fusetune.recipe/1"
name = "ours"
about = "Ours"

[server]
fstype = ["fuse.ours"]
program = ["oursd"]
library = ["own", "libfuse3"]
options = "{way}"
subcommands = ["mount"]
secrets = ["door"]
second = "yes"
second_because = "it keeps no state"
source = "ours(1)"

[[option]]
name = "cache"
about = "A cache"
values = ["off", "some", "all"]
default = "off"
class = "safe"
proof = "tried"
source = "ours(1), cache"

[[option]]
name = "writeback"
about = "Writes gather"
flag = true
propose = "true"
workloads = ["small-write"]
needs = ["cache=some|all"]
excludes = ["passthrough"]
class = "conditional"
condition = "no one else writes"
otherwise = "data is old"
proof = "tried"
source = "ours(1), writeback"

[[option]]
name = "passthrough"
about = "The kernel reads"
flag = true
propose = "true"
workloads = ["seq-read"]
kernel = "6.9"
root = true
class = "safe"
proof = "read"
source = "ours(1), passthrough"

[[option]]
name = "threads"
about = "Threads"
range = [1, 64]
unit = "threads"
default = "1"
propose = "8"
workloads = ["metadata"]
since = "2.1"
until = "3.0"
class = "safe"
proof = "tried"
source = "ours(1), threads"

[[option]]
name = "nosync"
about = "No sync"
flag = true
propose = "true"
class = "unsafe"
condition = "no crash comes"
otherwise = "data is lost"
proof = "read"
source = "ours(1), nosync"

[[bad]]
option = "max_read"
below = 65536
to = "131072"
kind = "harmful"
because = "requests are small"
instead = "give 131072"
source = "ours(1), max_read"

[[bad]]
option = "single"
command = "-s"
kind = "harmful"
workloads = ["metadata"]
because = "one thread serves"
instead = "leave it out"
source = "ours(1), -s"

[[bad]]
option = "readahead"
above = 131072
kind = "useless"
because = "the kernel takes less"
instead = "set read_ahead_kb"
source = "ours(1), readahead"
"""
SMALL: dict[str, Any] = {"workloads": ("small-write",)}


def recipe_with(tree: Tree, way: str = "mount", *changes: tuple[str, str]) -> Recipe:
    """Write the recipe as the administrator's, with texts changed, and return it."""
    text = RECIPE.replace("{way}", way)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return read_recipe(tree.write("etc/recipes/ours.toml", text))


def planned(recipe: Recipe, settings: dict[str, str] | None = None, **here: Any) -> Plan:
    """What is to change on Linux 6.12 where root's server is of version 2.5."""
    known: dict[str, Any] = {
        "kernel": "6.12.1-x",
        "version": "2.5",
        "library": "none",
        "root": True,
    }
    return plan(recipe, settings or {}, Circumstances(**known | here))


def values(found: Plan) -> dict[str, str | None]:
    return {change.option: change.after for change in found.changes}


# What to propose


def test_an_option_comes_with_what_it_needs(tree: Tree) -> None:
    found = planned(recipe_with(tree), **SMALL)
    assert values(found) == {"writeback": "true", "cache": "some"}
    writeback, cache = found.changes
    assert (writeback.before, writeback.class_, writeback.needs) == (
        *("false", "conditional"),
        ("cache=some",),
    )
    assert (writeback.condition, writeback.risk) == ("no one else writes", "data is old")
    assert (cache.before, cache.condition) == ("off", None)
    assert "nothing that a program can see" in cache.risk
    assert values(planned(recipe_with(tree), {"cache": "all"}, **SMALL)) == {"writeback": "true"}


def test_of_two_that_exclude_each_other_the_first_is_proposed(tree: Tree) -> None:
    found = planned(recipe_with(tree))
    assert values(found) == {"writeback": "true", "cache": "some", "threads": "8"}
    assert found.named == ["passthrough is not proposed: it does not go with writeback=true"]
    set_already = planned(recipe_with(tree), {"passthrough": "true"})
    assert "writeback" not in values(set_already)
    assert set_already.named == ["writeback is not proposed: it does not go with passthrough=true"]


@pytest.mark.parametrize(
    ("here", "proposed"),
    [
        ({}, True),
        ({"kernel": "6.8.0"}, False),
        ({"kernel": "6.10"}, True),
        ({"root": False}, False),
    ],
)
def test_kernel_and_root(tree: Tree, here: dict[str, Any], proposed: bool) -> None:
    found = planned(recipe_with(tree), workloads=("seq-read",), **here)
    assert ("passthrough" in values(found)) is proposed
    if proposed:
        (change,) = found.changes
        assert change.needs == ("Linux 6.9 or later", "a server that runs as root")
        assert change.source == "ours(1), passthrough (read, not tried)"


@pytest.mark.parametrize(
    ("version", "proposed"),
    [
        ("2.0.9", False),
        ("2.1", True),
        ("2.10", True),
        ("3.0.7", True),
        ("3.1", False),
        (None, True),
    ],
)
def test_versions(tree: Tree, version: str | None, proposed: bool) -> None:
    found = planned(recipe_with(tree), workloads=("metadata",), version=version)
    assert values(found) == ({"threads": "8"} if proposed else {})
    if version is None:
        assert found.changes[0].needs == ("ours 2.1 or later", "ours 3.0 or earlier")


@pytest.mark.parametrize(
    ("library", "proposed"),
    [("libfuse2", True), ("libfuse3", False), ("none", False), (None, False)],
)
def test_libraries(tree: Tree, library: str | None, proposed: bool) -> None:
    recipe = recipe_with(tree, "mount", ('since = "2.1"', 'library = ["libfuse2"]'))
    found = planned(recipe, workloads=("metadata",), library=library)
    assert ("threads" in values(found)) is proposed


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"threads": "1"}, {"threads": "8"}),
        ({"threads": "2"}, {}),  # the administrator's choice
        ({"threads": "8"}, {}),
        ({"threads": "2", "single": "true"}, {"single": None}),
        ({"threads": "2", "single": "false"}, {}),
        ({"threads": "2", "max_read": "4096"}, {"max_read": "131072"}),
        ({"threads": "2", "max_read": "65536"}, {}),
        ({"threads": "2", "max_read": "4K"}, {"max_read": "131072"}),
        ({"threads": "2", "max_read": "much"}, {}),
    ],
)
def test_what_is_set_already(
    tree: Tree, settings: dict[str, str], wanted: dict[str, str | None]
) -> None:
    assert values(planned(recipe_with(tree), settings, workloads=("metadata",))) == wanted


def test_a_workload_that_does_not_suffer(tree: Tree) -> None:
    found = planned(recipe_with(tree), {"single": "true"}, workloads=("rand-read",))
    assert values(found) == {}


def test_mixed_is_what_it_does(tree: Tree) -> None:
    assert values(planned(recipe_with(tree), workloads=("mixed",))) == {"passthrough": "true"}


def test_unsafe_options_are_never_proposed_and_named_if_set(tree: Tree) -> None:
    recipe = recipe_with(tree)
    assert "nosync" not in values(planned(recipe))
    found = planned(recipe, {"nosync": "true", "readahead": "1M"}, workloads=("rand-read",))
    assert values(found) == {}
    assert found.named == [
        "readahead does nothing here: the kernel takes less; set read_ahead_kb",
        "nosync is set and unsafe unless no crash comes: data is lost",
    ]


def test_an_option_that_needs_an_unsafe_one_is_not_proposed(tree: Tree) -> None:
    recipe = recipe_with(tree, "mount", ('"cache=some|all"', '"nosync"'))
    assert values(planned(recipe, **SMALL)) == {}


def test_an_option_that_is_left_out_stands_in_no_ones_way(tree: Tree) -> None:
    worse = ('option = "single"\ncommand = "-s"', 'option = "passthrough"\nvalue = "true"')
    recipe = recipe_with(tree, "mount", worse, ('workloads = ["metadata"]\nbecause', "because"))
    found = planned(recipe, {"passthrough": "true"}, **SMALL)
    assert values(found) == {"writeback": "true", "cache": "some", "passthrough": None}


# Command lines


def spellings(recipe: Recipe) -> list[Spellings]:
    return [spellings_of(recipe.server, option) for option in recipe.option]


SET = {"cache": "some", "writeback": "true"}


@pytest.mark.parametrize(
    ("way", "before", "settings", "after"),
    [
        ("mount", "oursd a /m", {}, "oursd -o cache=some,writeback a /m"),
        ("mount", "oursd a /m -o ro", {}, "oursd a /m -o ro,cache=some,writeback"),
        ("mount", "oursd a /m -oro -f", {}, "oursd a /m -oro,cache=some,writeback -f"),
        (
            "mount",
            "oursd -o cache=off,ro -o x,cache=all a /m",
            {"cache": "all"},
            "oursd -o cache=some,ro -o x,writeback a /m",
        ),
        ("mount", "oursd -o cache=some\\,x a /m", {"cache": "some\\,x"}, None),
        (
            "mount",
            "oursd a /m -- -o cache=all",
            {},
            "oursd -o cache=some,writeback a /m -- -o cache=all",
        ),
        ("long", "oursd mount a /m", {}, "oursd mount --cache=some --writeback a /m"),
        ("long", "oursd a /m", {}, "oursd --cache=some --writeback a /m"),
        ("long", "oursd --cache all a", {"cache": "all"}, "oursd --writeback --cache=some a"),
        ("long", "oursd --cache=all a", {"cache": "all"}, "oursd --writeback --cache=some a"),
        (
            "long",
            "oursd --writeback=false --cache some a",
            {"writeback": "false", "cache": "some"},
            "oursd --writeback --cache=some a",
        ),
        ("long", "oursd --writeback a", {"writeback": "true"}, "oursd --cache=some --writeback a"),
        (
            "long",
            "oursd a /m -o cache=off",
            {"cache": "off"},
            "oursd --writeback a /m -o cache=some",
        ),
        ("single", "oursd -v mount a /m", {}, "oursd -v mount -cache=some -writeback a /m"),
        ("single", "oursd --cache=all a", {"cache": "all"}, "oursd -writeback -cache=some a"),
        ("single", "oursd -cache all a", {"cache": "all"}, "oursd -writeback -cache=some a"),
        ("single", "oursd -own x a", {}, "oursd -cache=some -writeback -own x a"),
    ],
)
def test_command_lines(
    tree: Tree, way: str, before: str, settings: dict[str, str], after: str | None
) -> None:
    recipe = recipe_with(tree, way)
    words = before.split(" ")
    line = CommandLine(words, spellings(recipe), way, recipe.server.subcommands)
    assert line.words() == words
    assert line.settings() == settings
    if after is not None:
        assert " ".join(line.changed(SET)) == after


def test_options_that_are_left_out(tree: Tree) -> None:
    recipe = recipe_with(tree)
    words = ["oursd", "-o", "writeback", "a", "-o", "ro,cache=all"]
    line = CommandLine(words, spellings(recipe), "mount")
    assert line.changed({"writeback": None, "cache": None}) == ["oursd", "a", "-o", "ro"]
    assert line.changed({"writeback": "false"}) == ["oursd", "a", "-o", "ro,cache=all"]


def test_a_unit_behind_the_value(tree: Tree) -> None:
    recipe = recipe_with(
        tree,
        "long",
        ('name = "threads"', 'name = "threads"\ncommand = "--threads={value}s"'),
    )
    for words in (["a", "--threads=2s"], ["a", "--threads", "2s"], ["a", "-o", "threads=2s"]):
        line = CommandLine(words, spellings(recipe), "long")
        assert line.settings() == {"threads": "2"}
        assert line.changed({"threads": "8"})[-1] in ("--threads=8s", "threads=8s")


def test_odd_spellings(tree: Tree) -> None:
    recipe = recipe_with(
        tree,
        "mount",
        ('name = "threads"', 'name = "threads"\ncommand = "-t {value}"\nalso = ["-T{value}"]'),
        ('name = "nosync"', 'name = "nosync"\ncommand = "-n"\nalso = ["-o nosync"]'),
    )
    known = spellings(recipe)
    for words in (["a", "-t", "2", "-n"], ["a", "-T2", "-o", "nosync"]):
        assert CommandLine(words, known, "mount").settings() == {"threads": "2", "nosync": "true"}
    line = CommandLine(["a", "-t", "2", "b"], known, "mount")
    assert line.changed({"threads": "8", "nosync": "true"}) == ["a", "-n", "-t", "8", "b"]
    line = CommandLine(["a", "-T2", "b"], known, "mount")
    assert line.changed({"threads": "8"}) == ["a", "-t", "8", "b"]


MIRRORFS = spellings(read_recipe(SHIPPED / "mirrorfs.toml", check_writers=False))
_WORD = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(st.lists(st.sampled_from(["-o", "--", "-o,", "-", "cache=", "--cache"]) | _WORD))
def test_any_words_come_back(words: list[str]) -> None:
    for way in ("mount", "long", "single"):
        assert CommandLine(words, MIRRORFS, way).words() == words


# Where it is mounted by


@pytest.fixture
def ours(tree: Tree) -> Tree:
    """A mount at /mnt/one of oursd, which process 10 serves."""
    recipe_with(tree)
    tree.write("proc/sys/kernel/osrelease", "6.12.1\n")
    tree.write("proc/meminfo", "MemTotal: 2048 kB\n")
    tree.system()
    tree.mount("/mnt/one", fstype="fuse.ours", source="a")
    tree.live()
    return tree


def serve(
    tree: Tree, *words: str, unit: str | None = None, environment: Sequence[str] = ()
) -> None:
    """Let process 10 serve the mount with this command line."""
    process(tree, 10, *(words or ("oursd", "a", "/mnt/one")), fds={3: "40"})
    exe = tree.root / "proc/10/exe"
    exe.unlink()
    os.symlink("/usr/bin/oursd", exe)
    tree.write("proc/10/maps", "")
    tree.write("proc/10/environ", "\0".join([*environment, ""]))
    where = f"/system.slice/{unit}" if unit else "/user.slice/session-1.scope"
    tree.write("proc/10/cgroup", f"0::{where}\n")


Told = tuple[int, str]


@pytest.fixture
def tell(ours: Tree, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs advise on /mnt/one; returns its exit code and what it printed."""

    def run(*words: str) -> Told:
        done = command.main(
            ["/mnt/one", *words], prog_name="advise", obj=ours.host, standalone_mode=False
        )
        return done, capsys.readouterr().out

    return run


def document(told: Told) -> dict[str, Any]:
    found: dict[str, Any] = schemas.validate(json.loads(told[1]))
    return found


def test_the_keys_are_those_of_the_contract(ours: Tree, tell: Any) -> None:
    serve(ours)
    code, _ = told = tell("--json")
    found = document(told)
    assert code == 0
    assert list(found) == [
        *("schema", "mount", "server", "recipe", "changes", "commands", "edits", "notes"),
    ]
    assert list(found["server"]) == ["program", "version", "library"]
    assert list(found["commands"]) == ["now", "then"]
    wanted = {"option", "from", "to", "gain", "measured", "class", "condition", "risk", "needs"}
    assert all(wanted | {"about", "source"} == set(change) for change in found["changes"])
    assert all((c["gain"], c["measured"]) == (None, False) for c in found["changes"])
    assert found["recipe"] == "ours"
    assert found["server"] == {"program": "/usr/bin/oursd", "version": None, "library": "own"}
    assert found["commands"] == {
        "now": "oursd a /mnt/one",
        "then": "oursd -o cache=some,writeback,threads=8 a /mnt/one",
    }


def test_the_text(ours: Tree, tell: Any) -> None:
    serve(ours)
    code, text = tell("-w", "small-write")
    assert code == 0
    assert "set writeback to true (now false)\n  Writes gather\n" in text
    assert "  only if no one else writes; otherwise data is old\n" in text
    assert "  needs cache=some\n  gain not measured\n  source: ours(1), writeback\n" in text
    assert "then: oursd -o cache=some,writeback a /mnt/one\n" in text


def test_nothing_to_say_is_one_line(ours: Tree, tell: Any) -> None:
    serve(ours, "oursd", "-o", "threads=8", "a", "/mnt/one")
    assert tell("-w", "metadata") == (4, "/mnt/one: the recipe ours has nothing to change\n")
    code, _ = told = tell("-w", "metadata", "--json")
    assert code == 4
    assert document(told)["changes"] == []
    assert tell("-w", "metadata", "--format", "diff") == (4, "")


def test_without_a_recipe(ours: Tree, tell: Any) -> None:
    (ours.root / "etc/recipes/ours.toml").unlink()
    serve(ours)
    code, _ = told = tell("--json")
    found = document(told)
    assert (code, found["recipe"], found["changes"]) == (0, None, [])
    assert found["notes"] == [
        "/mnt/one has the kernel's default values: fusetune auto /mnt/one",
        "no recipe is about this server; docs/recipes.md and fusetune-advise(8) say how to write "
        "one into /etc/fusetune/recipes",
    ]


def test_version_and_library(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.write("var/lib/dpkg/info/ours:amd64.list", "/.\n/usr/bin/oursd\n")
    ours.write(
        "var/lib/dpkg/status",
        "Package: oursd\nVersion: 9\n\nPackage: ours\nStatus: ok\nVersion: 1:2.0.3-4+b1\n",
    )
    ours.write("proc/10/maps", "1-2 r-xp 0 8:1 9 /lib/x86_64-linux-gnu/libfuse3.so.3.14.0\n")
    found = document(tell("--json"))
    assert found["server"] == {
        "program": "/usr/bin/oursd",
        "version": "2.0.3",
        "library": "libfuse3",
    }
    assert "threads" not in {change["option"] for change in found["changes"]}


def test_the_environment_sets_options(ours: Tree, tell: Any) -> None:
    recipe_with(
        ours,
        "mount",
        ('name = "threads"', 'name = "threads"\ncommand = ""\nenvironment = "OURS_THREADS"'),
    )
    serve(ours, environment=["OURS_THREADS=1", "OURS_PASSWORD=hunter2"])
    code, text = tell("--json", "-w", "metadata")
    found = document((code, text))
    assert "hunter2" not in text
    assert found["commands"]["then"] == "env OURS_THREADS=8 oursd a /mnt/one"
    ours.write("proc/10/environ", "OURS_THREADS=2\0")
    assert document(tell("--json", "-w", "metadata"))["changes"] == []


def test_an_option_of_a_configuration_file(ours: Tree, tell: Any) -> None:
    recipe_with(
        ours,
        "mount",
        ('name = "threads"', 'name = "threads"\ncommand = ""\nfile = "THREADS"'),
        ('secrets = ["door"]', 'file = "/etc/ours.conf"'),
    )
    serve(ours)
    found = document(tell("--json", "-w", "metadata"))
    assert found["notes"] == ["set THREADS to 8 in /etc/ours.conf, which was not read"]
    assert found["commands"]["then"] == found["commands"]["now"]


# What cannot be read


def test_without_its_process(ours: Tree, tell: Any) -> None:
    found = document(tell("--json"))
    assert found["commands"] == {"now": None, "then": None}
    seen, supposed = found["notes"][-2:]
    assert seen.startswith("the process that serves the mount cannot be seen")
    assert supposed == "which options are set is not known; the advice supposes the defaults"
    assert found["changes"]


@pytest.mark.parametrize("how", ["gone", "fifo", "zombie"])
def test_a_command_line_that_cannot_be_read_is_one_sentence(
    ours: Tree, tell: Any, how: str
) -> None:
    serve(ours)
    file = ours.root / "proc/10/cmdline"
    file.unlink()
    if how == "fifo":
        os.mkfifo(file)
    elif how == "zombie":
        file.write_text("")
    found = document(tell("--json"))
    why = "is empty: the process is ending" if how == "zombie" else "cannot be read"
    told = [note for note in found["notes"] if "command line" in note]
    assert told == [f"the command line of process 10, which serves the mount, {why}"]
    assert found["commands"] == {"now": None, "then": None}


def test_another_mount_namespace_is_told(ours: Tree, tell: Any) -> None:
    serve(ours)
    for pid, number in (("10", 1), ("self", 2)):
        (ours.root / f"proc/{pid}/ns").mkdir()
        os.symlink(f"mnt:[{number}]", ours.root / f"proc/{pid}/ns/mnt")
    (note,) = [n for n in document(tell("--json"))["notes"] if "namespace" in n]
    assert note.startswith("process 10, which serves the mount, is in another mount namespace")


def test_two_recipes_are_told(ours: Tree, tell: Any) -> None:
    serve(ours)
    text = RECIPE.replace("{way}", "mount").replace('name = "ours"', 'name = "any"')
    ours.write("etc/recipes/any.toml", text.replace('"fuse.ours"', '"fuse.o*"'))
    found = document(tell("--json"))
    assert found["recipe"] == "ours"
    (note,) = [n for n in found["notes"] if "recipes match" in n]
    assert "ours.toml is the most specific, not used: " in note
    assert note.endswith("any.toml")


def test_a_mount_that_is_not_fuse(ours: Tree) -> None:
    text = RECIPE.replace("{way}", "mount").replace('name = "ours"', 'name = "other"')
    other = 'fuse = false\nfuse_because = "the kernel speaks NFS to it"\nsecond = "yes"'
    text = text.replace('second = "yes"', other).replace('"fuse.ours"', '"nfs"')
    ours.write("etc/recipes/other.toml", text)
    ours.mount("/mnt/nfs", "0:50", "nfs", "a")
    with pytest.raises(FusetuneError, match="/mnt/nfs is no FUSE mount: the kernel speaks NFS"):
        command.main(["/mnt/nfs"], prog_name="advise", obj=ours.host, standalone_mode=False)


# Files


def patched(tree: Tree, found: dict[str, Any]) -> None:
    """Apply the diffs to the tree, as an administrator does to /."""
    text = "".join(edit["diff"] for edit in found["edits"]).replace(str(tree.root)[1:] + "/", "")
    subprocess.run(
        ["patch", "-p1", "-d", tree.root], input=text, text=True, check=True, capture_output=True
    )


FSTAB = """\
# what is mounted
/dev/sda1 / ext4 errors=remount-ro 0 1
/mnt/one /srv/bound none bind 0 0
a	/mnt/one/	fuse.ours   ro,cache=off,x-systemd.automount,max_read=4096 0 0
b /mnt/two fuse.ours ro 0 0
"""


def test_the_line_of_fstab(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.write("etc/fstab", FSTAB)
    found = document(tell("--json", "-w", "small-write"))
    (edit,) = found["edits"]
    assert edit["file"] == str(ours.root / "etc/fstab")
    patched(ours, found)
    assert ours.read("etc/fstab") == FSTAB.replace(
        "ro,cache=off,x-systemd.automount,max_read=4096",
        "ro,cache=some,x-systemd.automount,max_read=4096,writeback",
    )
    assert tell("--format", "diff", "-w", "small-write")[0] == 0


def test_fstab_says_what_is_set_where_the_process_does_not(ours: Tree, tell: Any) -> None:
    ours.write("etc/fstab", FSTAB)
    found = document(tell("--json", "-w", "small-write"))
    changes = {change["option"]: (change["from"], change["to"]) for change in found["changes"]}
    assert changes["max_read"] == ("4096", "131072")
    assert not any("supposes the defaults" in note for note in found["notes"])
    patched(ours, found)
    assert "max_read=131072,writeback 0 0" in ours.read("etc/fstab")


def test_a_spelling_of_fstab(ours: Tree, tell: Any) -> None:
    recipe_with(
        ours,
        "long",
        ('name = "writeback"', 'name = "writeback"\nfstab = "write_back"'),
        ('name = "cache"', 'name = "cache"\nfstab = ""'),
    )
    serve(ours)
    ours.write("etc/fstab", "a /mnt/one fuse.ours ro 0 0\n")
    found = document(tell("--json", "-w", "small-write"))
    patched(ours, found)
    assert ours.read("etc/fstab") == "a /mnt/one fuse.ours ro,write_back 0 0\n"
    assert found["notes"] == ["cache cannot be set in fstab"]
    assert found["commands"]["then"] == "oursd --cache=some --writeback a /mnt/one"


UNIT = """\
[Unit]
Description=ours

[Service]
# ExecStart=/usr/bin/oursd none
ExecStart=-/usr/bin/oursd -o "x=a b",ro \\
    ${SOURCE} \\
    /mnt/%i
"""


def test_a_drop_in_for_a_service(ours: Tree, tell: Any) -> None:
    serve(ours, unit="ours@one.service")
    ours.write("usr/lib/systemd/system/ours@.service", UNIT)
    found = document(tell("--json", "-w", "small-write"))
    (edit,) = found["edits"]
    drop_in = "etc/systemd/system/ours@one.service.d/60-fusetune-options.conf"
    assert edit["file"] == str(ours.root / drop_in)
    assert edit["diff"].startswith("--- /dev/null\n+++ b/")
    patched(ours, found)
    text = ours.read(drop_in)
    first, reset, line = text.splitlines()
    assert (first, reset) == ("[Service]", "ExecStart=")
    assert line == (
        'ExecStart=-/usr/bin/oursd -o "x=a b,ro,cache=some,writeback" ${SOURCE} /mnt/%i'
    )
    assert document(tell("--json", "-w", "small-write"))["edits"] == []


def test_the_last_drop_in_counts(ours: Tree, tell: Any) -> None:
    serve(ours, unit="ours.service")
    ours.write("usr/lib/systemd/system/ours.service", UNIT)
    ours.write(
        "etc/systemd/system/ours.service.d/50-a.conf",
        "[Service]\nExecStart=\nExecStart=/usr/bin/oursd z /mnt/one\n",
    )
    patched(ours, document(tell("--json", "-w", "small-write")))
    text = ours.read("etc/systemd/system/ours.service.d/60-fusetune-options.conf")
    assert text.endswith("\nExecStart=/usr/bin/oursd -o cache=some,writeback z /mnt/one\n")


def test_a_service_that_starts_a_script(ours: Tree, tell: Any) -> None:
    serve(ours, unit="ours.service")
    ours.write("etc/systemd/system/ours.service", "[Service]\nExecStart=/usr/bin/start-ours\n")
    found = document(tell("--json"))
    assert found["edits"] == []
    assert (
        "ours.service starts the server by another program; see 'systemctl cat ours.service'"
        in found["notes"]
    )


def test_a_service_with_secrets_gets_no_drop_in_that_would_break_it(ours: Tree, tell: Any) -> None:
    serve(ours, "oursd", "-o", "door=hunter2", "a", "/mnt/one", unit="ours.service")
    ours.write(
        "etc/systemd/system/ours.service",
        "[Service]\nExecStart=/usr/bin/oursd -o door=hunter2 a /mnt/one\n",
    )
    for words in (("--json",), (), ("--format", "diff")):
        assert "hunter2" not in tell(*words)[1]
    found = document(tell("--json"))
    assert found["edits"] == []
    assert found["commands"]["now"] == "oursd -o 'door=***' a /mnt/one"
    assert any("ours.service has secrets in its options" in note for note in found["notes"])
    assert any("*** stands for what may be a secret" in note for note in found["notes"])


def test_a_mount_unit(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.write(
        "etc/systemd/system/mnt-one.mount",
        "[Mount]\nWhat=a\nWhere=/mnt/one\nType=fuse.ours\nOptions=ro,cache=off\n",
    )
    patched(ours, document(tell("--json", "-w", "small-write")))
    text = ours.read("etc/systemd/system/mnt-one.mount.d/60-fusetune-options.conf")
    assert text == "[Mount]\nOptions=ro,cache=some,writeback\n"


def test_a_mount_unit_that_is_made_from_fstab_gets_no_drop_in(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.write("run/systemd/generator/mnt-one.mount", "[Mount]\nOptions=ro\n")
    assert document(tell("--json"))["edits"] == []


def test_autofs_is_told(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.mount("/mnt", "0:60", "autofs", "/etc/auto.mnt")
    notes = document(tell("--json"))["notes"]
    assert "autofs mounts it: change its options in the map /etc/auto.mnt" in notes


@pytest.mark.parametrize("kind", ["fstab", "other line", "source"])
def test_secrets_of_fstab_are_masked(ours: Tree, tell: Any, kind: str) -> None:
    serve(ours)
    lines = {
        "fstab": "a /mnt/one fuse.ours ro,password=hunter2,door=hunter2 0 0\n",
        "other line": "//h/x /x cifs user=u,password=hunter2 0 0\na /mnt/one fuse.ours ro 0 0\n",
        "source": "ftp://me:hunter2@h /mnt/one fuse.ours ro 0 0\n",
    }
    ours.write("etc/fstab", lines[kind])
    for words in (("--json",), (), ("--format", "diff")):
        code, text = tell(*words)
        assert code == 0
        assert "writeback" in text
        assert "hunter2" not in text


def test_a_secret_in_the_source_of_the_mount(tree: Tree, capsys: Any) -> None:
    recipe_with(tree)
    tree.write("proc/sys/kernel/osrelease", "6.12.1\n")
    tree.mount("/mnt/one", fstype="fuse.ours", source="ftp://me:hunter2@h/d")
    tree.live()
    command.main(["/mnt/one", "--json"], prog_name="a", obj=tree.host, standalone_mode=False)
    assert "hunter2" not in (text := capsys.readouterr().out)
    assert json.loads(text)["mount"]["source"] == "ftp://***@h/d"


# Units


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/", "-.mount"),
        ("/mnt/one", "mnt-one.mount"),
        ("/mnt/a b", "mnt-a\\x20b.mount"),
        ("/mnt/a-b", "mnt-a\\x2db.mount"),
        ("/.hidden/é", "\\x2ehidden-\\xc3\\xa9.mount"),
    ],
)
def test_names_of_mount_units(path: str, unit: str) -> None:
    assert mount_unit(path) == unit


def test_assignments_of_a_unit() -> None:
    assert list(assignments(UNIT, "Service", "ExecStart")) == [
        '-/usr/bin/oursd -o "x=a b",ro      ${SOURCE}      /mnt/%i'
    ]
    text = "[Service]\nExecStart = a\nExecStart=\n[Unit]\nExecStart=b\n"
    assert list(assignments(text, "Service", "ExecStart")) == ["a", ""]


def test_the_process_of_a_mount(ours: Tree) -> None:
    serve(ours)
    assert Daemons(ours.host).processes(ours.only()) == {"10": "/usr/bin/oursd"}


def test_a_line_for_the_shell_is_the_line_that_runs(ours: Tree, tell: Any) -> None:
    serve(ours, "oursd", "-o", "x=a b", "it's", "/mnt/one")
    then = document(tell("--json", "-w", "small-write"))["commands"]["then"]
    assert shlex.split(then) == [
        *("oursd", "-o", "x=a b,cache=some,writeback", "it's", "/mnt/one"),
    ]
