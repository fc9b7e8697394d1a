# SPDX-License-Identifier: GPL-2.0-or-later
"""advise's output about a mount: text, JSON, and errors about unreadable files.

A directory tree replaces /proc and /etc.
"""

import os
from typing import Any

import pytest

from fusetune.cli.advise_ import command
from fusetune.errors import FusetuneError
from fusetune.mounts.daemons import Daemons
from tests.unit.conftest import Tree
from tests.unit.server_options.oursd import RECIPE, document, recipe_with, serve

# Output


def test_the_keys_are_those_of_the_contract(ours: Tree, tell: Any) -> None:
    serve(ours)
    code, _ = told = tell("--json")
    found = document(told)
    assert code == 0
    assert list(found) == [
        *("schema", "mount", "server", "recipe", "changes", "commands", "edits", "notes"),
        *("layers", "limits"),
    ]
    assert list(found["server"]) == ["program", "version", "library"]
    assert list(found["commands"]) == ["now", "then"]
    wanted = {"option", "from", "to", "gain", "measured", "class", "condition", "risk", "needs"}
    assert all(wanted | {"about", "slows", "source"} == set(change) for change in found["changes"])
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
    assert "  needs cache=some\n  slows down metadata\n" in text
    assert "  gain not measured\n  source: ours(1), writeback\n" in text
    assert "then: oursd -o cache=some,writeback a /mnt/one\n" in text


def test_nothing_to_say_is_one_line(ours: Tree, tell: Any) -> None:
    serve(ours, "oursd", "-o", "threads=8", "a", "/mnt/one")
    assert tell("-w", "metadata") == (4, "/mnt/one: recipe ours proposes no change\n")
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
        "no recipe describes this server; docs/recipes.md and fusetune-advise(8) explain how to "
        "add one to /etc/fusetune/recipes",
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


# Unreadable files


def test_without_its_process(ours: Tree, tell: Any) -> None:
    found = document(tell("--json"))
    assert found["commands"] == {"now": None, "then": None}
    seen, supposed = found["notes"][-2:]
    assert seen.startswith("the process that serves the mount was not found")
    assert supposed == "the current options are unknown; the advice assumes the defaults"
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
    with pytest.raises(FusetuneError, match="/mnt/nfs is not a FUSE mount: the kernel speaks NFS"):
        command.main(["/mnt/nfs"], prog_name="advise", obj=ours.host, standalone_mode=False)


def test_the_process_of_a_mount(ours: Tree) -> None:
    serve(ours)
    assert Daemons(ours.host).processes(ours.only()) == {"10": "/usr/bin/oursd"}
