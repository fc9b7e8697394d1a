# SPDX-License-Identifier: GPL-2.0-or-later
"""A server's own configuration file: read, shown as a diff, written by remount, undone."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetune.desired import remount as remounting
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.recipes.edit import Edit
from fusetune.toml.file import ConfigError
from tests.unit.conftest import Tree
from tests.unit.server_options.etc_files import files, run, undone
from tests.unit.server_options.oursd import document, recipe_with, serve

pytestmark = pytest.mark.slow

FILE = "etc/ours/ours.conf"
FSTAB = "a /mnt/one fuse.ours ro 0 0\n"
CONFIG = "# ours\nauthorization hunter2\nTHREADS 1 # few\nadd Authorization hunter2\n"
SERVER = """\
file = "/etc/ours/ours.conf"
file_format = "{form}"
file_other = ["conf", "OURS_CONF"]
"""


def with_file(tree: Tree, form: str = "space", more: str = "", *, mounted: bool = True) -> None:
    """Let only the file have threads and the bad option single."""
    recipe_with(
        tree,
        "mount",
        ('secrets = ["door"]', f"{SERVER.replace('{form}', form)}{more}\nsecrets = ['door']"),
        ('name = "threads"', 'name = "threads"\ncommand = ""\nfstab = ""\nfile = "THREADS"'),
        ('command = "-s"', 'command = ""\nfile = "SINGLE"'),
    )
    serve(tree)
    tree.write("etc/fstab", FSTAB if mounted else "")


@pytest.fixture
def davfs(ours: Tree) -> Tree:
    """A mount whose server has a file with a section for each mount."""
    with_file(ours, more='file_sections = ["{point}"]')
    ours.write(FILE, CONFIG)
    return ours


def metadata(tell: Any) -> dict[str, Any]:
    return document(tell("--json", "-w", "metadata"))


def threads(found: dict[str, Any]) -> Any:
    return next((one["to"] for one in found["changes"] if one["option"] == "threads"), None)


# advise


def test_a_section_of_this_mount(davfs: Tree, tell: Any) -> None:
    found = metadata(tell)
    assert [(one["option"], one["from"], one["to"]) for one in found["changes"]] == [
        ("threads", "1", "8")
    ]
    assert found["notes"] == []
    (edit,) = found["edits"]
    assert edit["file"] == str(davfs.root / FILE)
    assert edit["diff"].endswith(
        "@@ -2,3 +2,5 @@\n authorization ***\n THREADS 1 # few\n add Authorization ***\n"
        "+[/mnt/one]\n+THREADS 8\n"
    )
    for words in (("--json",), (), ("--format", "diff")):
        assert "hunter2" not in tell(*words)[1]


@pytest.mark.parametrize("section", ["", "[/mnt/one]\n"])
def test_a_value_of_the_administrators_stays(davfs: Tree, tell: Any, section: str) -> None:
    davfs.write(FILE, f"{section}THREADS 4\n")
    assert threads(metadata(tell)) is None


def test_another_mounts_section_does_not_count(davfs: Tree, tell: Any) -> None:
    davfs.write(FILE, "[/mnt/two]\nTHREADS 4\n")
    assert threads(metadata(tell)) == "8"


def test_a_file_without_sections_concerns_every_mount(ours: Tree, tell: Any) -> None:
    with_file(ours, "shell")
    ours.write(FILE, "THREADS='1'")
    found = metadata(tell)
    assert found["edits"][0]["diff"].endswith(
        "-THREADS='1'\n\\ No newline at end of file\n+THREADS=8\n\\ No newline at end of file\n"
    )
    assert found["notes"] == [
        f"THREADS in {ours.root / FILE}: the change affects every mount of ours on this host"
    ]


def test_a_bad_option_is_taken_out_where_it_stands(davfs: Tree, tell: Any) -> None:
    davfs.write(FILE, "THREADS 4\nSINGLE true\n")
    found = metadata(tell)
    assert "-SINGLE true\n+# fusetune: SINGLE true\n" in found["edits"][0]["diff"]
    assert found["notes"][0].startswith(f"SINGLE in {davfs.root / FILE}: the change affects every")


def test_a_bad_value_is_changed_where_it_stands(davfs: Tree, tell: Any) -> None:
    recipe = davfs.read("etc/recipes/ours.toml")
    named = recipe.replace('option = "max_read"', 'option = "max_read"\nfile = "MAX"')
    davfs.write("etc/recipes/ours.toml", named)
    davfs.write(FILE, "[/mnt/one]\nTHREADS 4\nMAX 4096\n")
    (edit,) = metadata(tell)["edits"]
    assert "-MAX 4096\n+MAX 131072\n" in edit["diff"]
    (davfs.root / "proc/10/cmdline").write_text("oursd\0-o\0max_read=4096\0a\0")
    (edit,) = metadata(tell)["edits"]
    assert edit["file"].endswith("/etc/fstab")


@pytest.mark.parametrize(
    ("lines", "known"),
    [("[client.a]\nTHREADS = 4\n", None), ("[client.a]\nTHREADS = 1\n", "8")],
)
def test_a_narrower_section_counts_and_stays(
    ours: Tree, tell: Any, lines: str, known: str | None
) -> None:
    with_file(ours, "ini", 'file_sections = ["global", "client"]')
    ours.write(FILE, f"{lines}[client]\nTHREADS = 2\n")
    found = metadata(tell)
    assert threads(found) == known
    assert found["edits"] == []
    told = f"THREADS is set in [client.a] of {ours.root / FILE}, which is not edited"
    assert found["notes"] == [told] * (known is not None)


def test_a_line_that_cannot_be_changed_is_told(davfs: Tree, tell: Any) -> None:
    davfs.write(FILE, "[/mnt/one]\nTHREADS 1 2\nSINGLE true\nSINGLE true # and\n")
    found = metadata(tell)
    assert threads(found) is None  # whatever that is, somebody chose it deliberately
    davfs.write(FILE, "SINGLE true false\nSINGLE true\n")
    found = metadata(tell)
    assert (
        f"{davfs.root / FILE} has a syntax in which fusetune cannot set SINGLE" in (found["notes"])
    )


def test_a_file_that_ranks_above_counts(ours: Tree, tell: Any) -> None:
    with_file(ours, "shell", 'file_above = ["/etc/ours/more.d/*.local"]')
    ours.write(FILE, "THREADS=1\n")
    ours.write("etc/ours/more.d/a.local", "THREADS=4\n")
    assert threads(metadata(tell)) is None


def _link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to("real")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _no_directory(path: Path) -> None:
    path.unlink()
    path.parent.rmdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_link, "it is a symbolic link"),
        (_fifo, "it is not a regular file"),
        (lambda path: path.chmod(0o646), "users other than root can write it"),
        (lambda path: path.write_bytes(b"#" * 65537), "it is larger than 64 KiB"),
        (lambda path: path.write_bytes(b"THREADS \0\n"), "it is not valid text"),
        (_no_directory, "ours does not exist"),
    ],
    ids=["link", "fifo", "writable", "large", "binary", "missing"],
)
def test_a_file_that_is_not_read(
    davfs: Tree, tell: Any, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(davfs.root / FILE)
    found = metadata(tell)
    assert found["edits"] == []
    (note,) = (one for one in found["notes"] if one.startswith("set THREADS"))
    assert note.startswith("set THREADS to 8 in /etc/ours/ours.conf, which was not read: ")
    assert note.endswith(why)


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (("oursd", "-o", "ro,conf=/x", "a"), ()),
        (("oursd", "a"), ("OURS_CONF=/x",)),
    ],
)
def test_a_server_with_another_file(
    davfs: Tree, tell: Any, words: tuple[str, ...], environment: tuple[str, ...]
) -> None:
    for name in ("exe", "cwd"):
        (davfs.root / "proc/10" / name).unlink()
    (davfs.root / "proc/10/cmdline").write_text("\0".join([*words, ""]))
    os.symlink("/usr/bin/oursd", davfs.root / "proc/10/exe")
    (davfs.root / "proc/10/environ").write_text("\0".join([*environment, ""]))
    found = metadata(tell)
    assert found["edits"] == []
    assert any("names another file for this mount" in one for one in found["notes"])


@pytest.mark.parametrize("file", ["/home/a.conf", "/etc/../home/a.conf", "a.conf"])
def test_a_recipe_names_only_files_of_etc(ours: Tree, file: str) -> None:
    with pytest.raises(
        ConfigError, match=r"ours\.toml:\d+: file_format needs the full path of a file in /etc"
    ):
        recipe_with(ours, "mount", ('secrets = ["door"]', f'file_format = "ini"\nfile = "{file}"'))


# remount and reset


@pytest.mark.parametrize(
    "before",
    [CONFIG, CONFIG.rstrip("\n"), CONFIG.replace("\n", "\r\n"), "", "# \udcff\n[/mnt/one]", None],
    ids=["", "no newline", "crlf", "empty", "no utf-8", "missing"],
)
def test_the_file_comes_back_byte_for_byte(davfs: Tree, before: str | None, capsys: Any) -> None:
    tree, path = davfs, davfs.root / FILE
    if before is None:
        path.unlink()
    else:
        path.write_bytes(os.fsencode(before))
        path.chmod(0o640)
    was = files(tree)
    assert run(tree, "-w", "metadata") == 0
    assert b"[/mnt/one]" in path.read_bytes()
    assert b"THREADS 8" in path.read_bytes()
    backup = path.with_name("ours.conf.fusetune-backup")
    assert (backup.read_bytes() if backup.exists() else None) == was.get(path)
    assert (path.stat().st_mode & 0o777) == (0o644 if before is None else 0o640)
    state = [content for file, content in files(tree).items() if "var/lib" in str(file)]
    assert state
    assert not any(b"hunter2" in content for content in state)
    assert run(tree, "-w", "metadata") == 0  # pending
    assert run(tree, "reset") == 0
    assert undone(tree) == was
    assert path.parent.is_dir()
    assert "hunter2" not in capsys.readouterr().out


def test_fstab_and_the_file_at_once(davfs: Tree) -> None:
    was = files(davfs)
    assert run(davfs) == 0
    assert davfs.read("etc/fstab") == "a /mnt/one fuse.ours ro,passthrough 0 0\n"
    assert davfs.read(FILE) == f"{CONFIG}[/mnt/one]\nTHREADS 8\n"
    assert run(davfs, "reset") == 0
    assert undone(davfs) == was


def test_a_file_that_another_tool_changed_meanwhile(
    davfs: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither it nor fstab, which is written first, has remount's contents."""

    def check(_host: Host, edit: Edit) -> None:
        if edit.form:
            davfs.write(FILE, "THREADS 2\n")

    monkeypatch.setattr(remounting, "check", check)
    with pytest.raises(FusetuneError, match=r"another program changed .*ours\.conf meanwhile"):
        run(davfs)
    assert davfs.read(FILE) == "THREADS 2\n"
    assert davfs.read("etc/fstab") == FSTAB
    assert not list((davfs.host.state_dir / "remount").glob("*.json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('"sed", "-n", "s/^{key} //p", "{file}"', None),
        ('"sed", "-n", "s/^THREADS 1 # /password=/p", "{file}"', "password=***"),
        ('"grep", "{key} 9", "{file}"', "no output"),
    ],
    ids=["reads it", "reads something else", "fails"],
)
def test_a_server_that_checks_its_file(ours: Tree, words: str, said: str | None) -> None:
    with_file(ours, more=f'file_sections = ["{{point}}"]\nfile_check = [{words}]')
    ours.write(FILE, CONFIG)
    was = files(ours)
    if said is None:
        assert run(ours) == 0
        assert "THREADS 8" in ours.read(FILE)
        return
    with pytest.raises(FusetuneError) as failed:
        run(ours)
    assert f"does not read THREADS as 8 from the new file; it reports: {said}; " in str(
        failed.value
    )
    assert files(ours) == was


def test_what_somebody_set_since_stays(davfs: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    run(davfs, "-w", "metadata")
    edited = davfs.read(FILE).replace("THREADS 8", "THREADS 9") + "OTHER 1\n"
    davfs.write(FILE, edited)
    run(davfs, "reset")
    assert davfs.read(FILE) == edited
    said = capsys.readouterr().err
    assert said.endswith("ours.conf was changed since fusetune wrote it, so it was not restored\n")


def test_lines_that_somebody_added_since_stay(davfs: Tree) -> None:
    run(davfs, "-w", "metadata")
    davfs.write(FILE, f"NEW 1\n{davfs.read(FILE)}OTHER 1\n")
    run(davfs, "reset")
    assert davfs.read(FILE) == f"NEW 1\n{CONFIG}[/mnt/one]\nOTHER 1\n"


def test_a_mount_that_no_file_describes(ours: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    with_file(ours, more='file_sections = ["{point}"]', mounted=False)
    ours.write(FILE, CONFIG)
    with pytest.raises(FusetuneError, match="no file on this host defines the mount"):
        run(ours, "-w", "metadata", "--now")
    assert run(ours, "-w", "metadata", "--json") == 0
    assert json.loads(capsys.readouterr().out)["commands"] == []
    assert ours.read(FILE) == f"{CONFIG}[/mnt/one]\nTHREADS 8\n"
    assert run(ours, "reset") == 0
    assert ours.read(FILE) == CONFIG
