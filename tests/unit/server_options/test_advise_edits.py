# SPDX-License-Identifier: GPL-2.0-or-later
"""The edits of files that advise proposes, as patch(1) applies them.

The formats are those of fstab(5), systemd.unit(5) and systemd.service(5).
"""

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fusetune.cli.advise_ import command
from fusetune.recipes.fstab import fstab_line
from fusetune.recipes.units import assignments, mount_unit
from tests.unit.conftest import Tree
from tests.unit.server_options.oursd import document, recipe_with, serve

pytestmark = pytest.mark.slow

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


def test_patch_applies_the_diff_of_a_line_that_is_not_utf8(
    ours: Tree, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    serve(ours)
    line = b"a /mnt/one fuse.ours ro,x-comment=M\xfcnchen 0 0\n"
    ours.write("etc/fstab", "").write_bytes(line)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(errors="backslashreplace")  # as the command line does
    command.main(["/mnt/one", "--format", "diff"], obj=ours.host, standalone_mode=False)
    diff = capsysbinary.readouterr().out.replace(os.fsencode(ours.root)[1:] + b"/", b"")
    subprocess.run(["patch", "-p1", "-d", ours.root], input=diff, check=True, capture_output=True)
    patched_line = (ours.root / "etc/fstab").read_bytes()
    assert b"x-comment=M\xfcnchen" in patched_line
    assert b"writeback" in patched_line


@pytest.mark.parametrize(("source", "edited"), [("a", "a"), ("c", "a"), ("b", None)])
def test_the_first_line_for_a_mount_point(source: str, edited: str | None) -> None:
    """mount(8) uses it. A mount of another line's source was not made by it."""
    text = "a /mnt/one fuse.ours noauto 0 0\nb /mnt/one fuse.ours noauto 0 0\n"
    line = fstab_line(text, ["/mnt/one"])
    assert line
    assert (line.source if line.may_make(source) else None) == edited
    assert line.put_into(text, "new").startswith("a /mnt/one fuse.ours new 0 0\nb /mnt/one")


def test_only_the_line_of_the_source_is_edited(ours: Tree, tell: Any) -> None:
    serve(ours)
    ours.write("etc/fstab", "b /mnt/one fuse.ours ro 0 0\na /mnt/one fuse.ours ro 0 0\n")
    assert ours.only().source == "a"
    assert document(tell("--json", "-w", "small-write"))["edits"] == []


def test_only_spaces_and_tabs_separate_fields() -> None:
    text = "a\u00a0b\t/mnt/one fuse.ours ro,x-c=a\u00a0b\x0bc 0 0\n"
    line = fstab_line(text, ["/mnt/one"])
    assert line
    assert (line.source, line.options) == ("a\u00a0b", "ro,x-c=a\u00a0b\x0bc")


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


def test_a_later_drop_in_would_outweigh_ours(ours: Tree, tell: Any) -> None:
    """As `systemctl edit` writes it."""
    override = "[Service]\nExecStart=\nExecStart=/usr/bin/oursd z /mnt/one\n"
    serve(ours, unit="ours.service")
    ours.write("usr/lib/systemd/system/ours.service", UNIT)
    file = ours.write("etc/systemd/system/ours.service.d/override.conf", override)
    found = document(tell("--json", "-w", "small-write"))
    assert found["edits"] == []
    why = "sets ExecStart=, and systemd reads it after fusetune's: change the options there"
    assert f"{file} {why}" in found["notes"]
    file.write_text("[Service]\nNice=5\n")
    assert len(document(tell("--json", "-w", "small-write"))["edits"]) == 1


def test_a_later_drop_in_of_a_mount_unit(ours: Tree, tell: Any) -> None:
    serve(ours)
    unit = "[Mount]\nWhat=a\nWhere=/mnt/one\nType=fuse.ours\nOptions=ro,cache=off\n"
    ours.write("etc/systemd/system/mnt-one.mount", unit)
    override = ours.write(
        "etc/systemd/system/mnt-one.mount.d/override.conf", "[Mount]\nOptions=ro\n"
    )
    found = document(tell("--json", "-w", "small-write"))
    assert found["edits"] == []
    assert any(note.startswith(f"{override} sets Options=, and ") for note in found["notes"])


@pytest.mark.parametrize(
    "command",
    [
        r"/usr/bin/oursd -o ro,x=/a\x20b z /mnt/one",
        r'/usr/bin/oursd -o "ro,x=/a\tb" z /mnt/one',
        r"/usr/bin/oursd -o x=\\\x20 z /mnt/one",
        "@/usr/bin/oursd oursd z /mnt/one",
        "-@/usr/bin/oursd oursd z /mnt/one",
    ],
)
def test_commands_that_cannot_be_written_again(ours: Tree, tell: Any, command: str) -> None:
    """C escapes, and a separate argv[0] (systemd.service(5))."""
    serve(ours, unit="ours.service")
    ours.write("etc/systemd/system/ours.service", f"[Service]\nExecStart={command}\n")
    assert document(tell("--json", "-w", "small-write"))["edits"] == []


def test_a_drop_in_that_leads_nowhere_is_passed_over(ours: Tree, tell: Any) -> None:
    serve(ours, unit="ours@one.service")
    ours.write("usr/lib/systemd/system/ours@.service", UNIT)
    there = ours.root / "etc/systemd/system/ours@.service.d"
    there.mkdir(parents=True)
    (there / "dangling.conf").symlink_to("/nonexistent")
    assert len(document(tell("--json", "-w", "small-write"))["edits"]) == 1


def test_a_service_that_starts_a_script(ours: Tree, tell: Any) -> None:
    serve(ours, unit="ours.service")
    ours.write("etc/systemd/system/ours.service", "[Service]\nExecStart=/usr/bin/start-ours\n")
    found = document(tell("--json"))
    assert found["edits"] == []
    assert (
        "ours.service starts the server through another program; see 'systemctl cat ours.service'"
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
    assert any("*** replaces a possible secret" in note for note in found["notes"])


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
    ours.mount("/mnt", "0:60", "autofs", "/etc/auto.mnt", number=22, parent=1)
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
        ("/mnt/.hidden", "mnt-.hidden.mount"),
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
