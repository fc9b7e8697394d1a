# SPDX-License-Identifier: GPL-2.0-or-later
"""What save and forget write; everything else in an administrator's file is kept.

Comments and spaces mean nothing in TOML, but they do to people.
"""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from fusetune.changes.apply import make, plan
from fusetune.changes.journal import TRIAL, Journal
from fusetune.changes.lock import Busy, Lock
from fusetune.desired.config import load
from fusetune.desired.persist import forget_kept, save_now
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import save, saved_for, saved_path
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError
from tests.unit.conftest import STOCK, Tree
from tests.unit.knob_values import knobs

ADMINS = """\
# The administrator's file.
[watch]
idle_seconds = 5  # soon

# About one.
[[mount]]
path = "/mnt/one"  # its path
read_ahead_kb = "1M"   # measured in May
# max_background = 3
max_ratio = 2

# About two.
[[mount]]
path = "/mnt/two"
max_ratio = 3

# The end.
"""


@pytest.fixture
def tuned(tree: Tree, mounted: Mount) -> Mount:
    """The usual mount, with values that are not the kernel's."""
    tree.live(values={"max_ratio": 20, "read_ahead_kb": 512})
    return mounted


def text_of(directory: Path) -> dict[str, str]:
    """Every file below, by its name."""
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_save_keeps_what_is_not_stock(tree: Tree, tuned: Mount) -> None:
    written = save_now(tree.host, tuned, admin=False, dry_run=False)
    assert written.file == saved_path(tree.host, tuned)
    assert (written.before, written.after) == (None, {"read_ahead_kb": 512, "max_ratio": 20})
    saved = saved_for(tree.host, tuned)
    assert saved
    assert (saved.values, saved.by, saved.gain) == (written.after, "save", None)
    tree.live(values={"max_ratio": 30})
    again = save_now(tree.host, tuned, admin=False, dry_run=False)
    assert (again.before, again.after) == (written.after, {"max_ratio": 30})


@pytest.mark.parametrize("admin", [False, True])
def test_what_a_run_tries_is_not_saved(tree: Tree, tuned: Mount, admin: bool) -> None:
    with Lock(tree.host, tuned):
        trial = plan(tree.host, tuned, knobs(max_ratio=70, max_background=48))
        make(tree.host, Journal(tree.host, tuned), trial, TRIAL)
        with pytest.raises(Busy):
            save_now(tree.host, tuned, admin=admin, dry_run=False)
    for dry_run in (True, False):  # as if the run was killed
        written = save_now(tree.host, tuned, admin=admin, dry_run=dry_run)
        assert written.after == {"read_ahead_kb": 512, "max_ratio": 20}


@pytest.mark.parametrize("admin", [False, True])
def test_there_is_nothing_to_keep_of_a_stock_mount(tree: Tree, mounted: Mount, admin: bool) -> None:
    with pytest.raises(FusetuneError, match=r"^/mnt/one has the kernel's default values"):
        save_now(tree.host, mounted, admin=admin, dry_run=False)


@pytest.mark.parametrize("admin", [False, True])
def test_a_dry_run_writes_nothing(tree: Tree, tuned: Mount, admin: bool) -> None:
    tree.write("etc/fusetune.toml", ADMINS)
    save(tree.host, tuned, {"max_ratio": 5}, "auto")
    before = text_of(tree.root)
    written = save_now(tree.host, tuned, admin=admin, dry_run=True)
    assert written.before != written.after
    assert forget_kept(tree.host, "/mnt/one", admin=admin, dry_run=True)
    assert text_of(tree.root) == before


def test_a_wrong_configuration_is_told_and_not_edited(tree: Tree, tuned: Mount) -> None:
    tree.write("etc/fusetune.toml", ADMINS + "[polcy]\n")
    before = text_of(tree.root)
    for admin in (False, True):
        with pytest.raises(ConfigError):
            save_now(tree.host, tuned, admin=admin, dry_run=False)
    with pytest.raises(ConfigError):
        forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert text_of(tree.root) == before


def test_a_new_section_gets_a_file_of_its_own(tree: Tree, tuned: Mount) -> None:
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.file == tree.host.admin_dir / "mounts.d" / "mnt-one.toml"
    assert (written.before, written.after) == (None, {"read_ahead_kb": 512, "max_ratio": 20})
    (section,) = load(tree.host).sections
    assert section.matches == {"path": "/mnt/one", "fstype": "fuse.mirrorfs", "source": "source"}
    assert section.values == written.after
    (gone,) = forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert (gone.file, gone.before, gone.after) == (written.file, written.after, None)
    assert text_of(tree.host.admin_dir) == {}


@pytest.mark.parametrize("admin", [False, True])
def test_what_could_not_be_read_again_is_not_written(tree: Tree, tuned: Mount, admin: bool) -> None:
    tree.live(values=tree.values() | {"max_background": 0})
    before = text_of(tree.root)
    with pytest.raises(FusetuneError, match="max_background=0 is out of range: the smallest"):
        save_now(tree.host, tuned, admin=admin, dry_run=False)
    assert text_of(tree.root) == before


def test_what_the_section_has_follows_the_mount(tree: Tree, tuned: Mount) -> None:
    """Also back to a default, which a pattern's section may not replace then."""
    head = "[[mount]]\npath = '/mnt/one'\n"
    values = "read_ahead_kb = '4M'  # once\nmax_ratio = 20\nmax_background = 64\n"
    file = tree.write("etc/mounts.d/a.toml", head + values)
    tree.live(values=tree.values() | {"read_ahead_kb": 128})
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.before == {"read_ahead_kb": 4096, "max_ratio": 20, "max_background": 64}
    assert written.after == {"read_ahead_kb": 128, "max_ratio": 20, "max_background": 12}
    changed = "read_ahead_kb = 128  # once\nmax_ratio = 20\nmax_background = 12\n"
    assert file.read_text() == head + changed


def test_a_long_path_gets_a_file_too(tree: Tree, tuned: Mount) -> None:
    for end in "ab":
        deep = replace(tuned, path="/mnt/" + "/".join(["deep" * 20] * 4) + end)
        save_now(tree.host, deep, admin=True, dry_run=False)
        assert Resolver(tree.host, load(tree.host)).expected(deep)
    assert len(list((tree.host.admin_dir / "mounts.d").iterdir())) == 2


@pytest.mark.parametrize(
    "path",
    ["/mnt/[x]*?", "/mnt/new\nline", '/mnt/"\\', "/mnt/\x1b[31m", "/mnt/größe 日本", "/", "/mnt/#"],
)
def test_odd_names_are_meant_literally(tree: Tree, tuned: Mount, path: str) -> None:
    odd = replace(tuned, path=path, source=path, fstype="fuse." + path)
    save_now(tree.host, odd, admin=True, dry_run=False)
    expected = Resolver(tree.host, load(tree.host)).expected(odd)
    assert {name: one.value for name, one in expected.items()} == {
        "read_ahead_kb": 512,
        "max_ratio": 20,
    }
    for other in (replace(odd, path="/mnt/x"), replace(odd, source="x"), tuned):
        assert Resolver(tree.host, load(tree.host)).expected(other) == {}
    again = save_now(tree.host, odd, admin=True, dry_run=False)
    assert again.before == again.after
    assert len(load(tree.host).sections) == 1


def test_a_name_that_is_no_text_cannot_be_written(tree: Tree, tuned: Mount) -> None:
    odd = replace(tuned, path="/mnt/\udcff")
    with pytest.raises(FusetuneError, match="not UTF-8"):
        save_now(tree.host, odd, admin=True, dry_run=False)
    assert text_of(tree.host.admin_dir) == {}


def test_two_paths_of_one_file_name_both_stay(tree: Tree, tuned: Mount) -> None:
    for path in ("/mnt/a", "/mnt-a"):
        save_now(tree.host, replace(tuned, path=path), admin=True, dry_run=False)
    (file,) = text_of(tree.host.admin_dir)
    assert file == "mounts.d/mnt-a.toml"
    assert [one.matches["path"] for one in load(tree.host).sections] == ["/mnt/a", "/mnt-a"]


def test_a_file_without_a_last_line_end_is_added_to(tree: Tree, tuned: Mount) -> None:
    tree.write("etc/mounts.d/mnt-one.toml", "[[mount]]\npath = '/mnt/x'\nmax_ratio = 2")
    save_now(tree.host, tuned, admin=True, dry_run=False)
    assert [one.values["max_ratio"] for one in load(tree.host).sections] == [2, 20]


def test_a_file_that_cannot_be_added_to_stays_as_it_is(tree: Tree, tuned: Mount) -> None:
    file = tree.write("etc/mounts.d/mnt-one.toml", "mount = [{ path = '/mnt/x' }]\n")
    with pytest.raises(FusetuneError, match="cannot add a section to "):
        save_now(tree.host, tuned, admin=True, dry_run=False)
    assert file.read_text() == "mount = [{ path = '/mnt/x' }]\n"


def test_an_existing_section_is_edited_in_place(tree: Tree, tuned: Mount) -> None:
    file = tree.write("etc/fusetune.toml", ADMINS)
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.file == file
    assert written.before == {"read_ahead_kb": 1024, "max_ratio": 2}
    assert written.after == {"read_ahead_kb": 512, "max_ratio": 20}
    edited = ADMINS.replace('"1M"', "512").replace("max_ratio = 2\n", "max_ratio = 20\n")
    assert file.read_text() == edited
    assert text_of(tree.host.admin_dir) == {"fusetune.toml": file.read_text()}


def test_what_is_between_sections_stays_between_them(tree: Tree, tuned: Mount) -> None:
    """Keys that save adds and forget removes go with the section, comments after it do not."""
    one = '[[mount]]\npath = "/mnt/one"\nread_ahead_kb = "1M"  # May'
    rest = '\n\n# Do not touch the next one\n[[mount]]\npath = "/mnt/two"\nmax_ratio = 3\n'
    file = tree.write("etc/fusetune.toml", one + rest)
    tree.live(values=tree.values() | {"max_background": 64})
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.after == {"read_ahead_kb": 512, "max_ratio": 20, "max_background": 64}
    added = "\nmax_background = 64\nmax_ratio = 20"
    assert file.read_text() == one.replace('"1M"', "512") + added + rest
    forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert file.read_text() == rest.removeprefix("\n")


def test_keys_are_added_to_a_file_without_a_last_line_end(tree: Tree, tuned: Mount) -> None:
    text = "[watch]\n[[mount]]\nmax_ratio = 2\npath = '/mnt/one'"
    file = tree.write("etc/fusetune.toml", text)
    save_now(tree.host, tuned, admin=True, dry_run=False)
    assert file.read_text() == text.replace("= 2", "= 20") + "\nread_ahead_kb = 512"


@pytest.mark.parametrize("first", ["", "fstype = 'fuse.*'\nsource = 's*'\n"])
def test_the_section_that_takes_precedence_is_edited(tree: Tree, tuned: Mount, first: str) -> None:
    """The later one of two equals, otherwise the more specific one."""
    head = "[[mount]]\npath = '/mnt/one'\n"
    other = "[[mount]]\npath = '/mnt/two'\nmax_ratio = 3\n"
    plain = tree.write("etc/mounts.d/zz.toml", f"{other}{head}read_ahead_kb = 2048\n")
    specific = tree.write("etc/fusetune.toml", f"{head}{first}max_ratio = 2\n")
    file = specific if first else plain
    before = text_of(tree.host.admin_dir)
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.file == file
    assert written.after == {"read_ahead_kb": 512, "max_ratio": 20}
    after = text_of(tree.host.admin_dir)
    assert [name for name in after if after[name] != before[name]] == [
        str(file.relative_to(tree.host.admin_dir))
    ]
    expected = Resolver(tree.host, load(tree.host)).expected(tuned)
    assert {name: one.value for name, one in expected.items()} == written.after


def test_a_section_without_values_kept_nothing_before(tree: Tree, tuned: Mount) -> None:
    tree.write("etc/mounts.d/a.toml", "[[mount]]\npath = '/mnt/one'\nvolume_class = 'fast'\n")
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert (written.before, written.after) == (None, {"read_ahead_kb": 512, "max_ratio": 20})


def test_what_any_section_of_the_mount_has_follows_it(tree: Tree, tuned: Mount) -> None:
    """Also back to a default, in the section that takes precedence."""
    head = "[[mount]]\npath = '/mnt/one'\n"
    tree.write("etc/fusetune.toml", f"{head}max_background = 64\nmax_ratio = 2\n")
    tree.write("etc/mounts.d/zz.toml", f"{head}max_ratio = 3\n")
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.before == {"max_ratio": 3}
    assert written.after == {"max_ratio": 20, "max_background": 12, "read_ahead_kb": 512}
    expected = Resolver(tree.host, load(tree.host)).expected(tuned)
    assert {name: one.value for name, one in expected.items()} == written.after


def test_a_section_about_another_server_there_is_not_edited(tree: Tree, tuned: Mount) -> None:
    other = "[[mount]]\npath = '/mnt/one'\nserver = 'otherd'\nmax_ratio = 2\n"
    tree.write("etc/fusetune.toml", other)
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    assert written.file.name == "mnt-one.toml"
    assert text_of(tree.host.admin_dir)["fusetune.toml"] == other


def test_a_section_about_another_file_system_there_is_not_edited(tree: Tree, tuned: Mount) -> None:
    other = "[[mount]]\npath = '/mnt/one'\nfstype = 'fuse.sshfs'\nmax_ratio = 2\n"
    file = tree.write("etc/fusetune.toml", other)
    save_now(tree.host, tuned, admin=True, dry_run=False)
    assert file.read_text() == other
    expected = Resolver(tree.host, load(tree.host)).expected(tuned)
    assert expected["max_ratio"].value == 20


def test_a_link_is_followed_not_replaced(tree: Tree, tuned: Mount) -> None:
    real = tree.write("elsewhere.toml", ADMINS)
    tree.host.admin_dir.mkdir()
    link = tree.host.admin_dir / "fusetune.toml"
    link.symlink_to(real)
    save_now(tree.host, tuned, admin=True, dry_run=False)
    assert link.is_symlink()
    assert "max_ratio = 20" in real.read_text()


def test_forget_removes_the_section_and_nothing_else(tree: Tree, tuned: Mount) -> None:
    file = tree.write("etc/fusetune.toml", ADMINS)
    (forgotten,) = forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert forgotten.file == file
    assert forgotten.before == {"read_ahead_kb": 1024, "max_ratio": 2}
    begin, end = ADMINS.index("[[mount]]"), ADMINS.index("\n# About two.")
    assert file.read_text() == ADMINS[:begin] + ADMINS[end:]


def test_forget_of_every_section_of_a_path(tree: Tree, tuned: Mount) -> None:
    file = tree.write("etc/fusetune.toml", ADMINS + "[[mount]]\npath = '/mnt/one'\nmax_ratio = 9\n")
    wide = tree.write("etc/mounts.d/wide.toml", "[[mount]]\npath = '/mnt/*'\nmax_ratio = 9\n")
    forgotten = forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert [one.before for one in forgotten] == [
        {"read_ahead_kb": 1024, "max_ratio": 2},
        {"max_ratio": 9},
    ]
    assert [one.file for one in forgotten] == [file, file]
    content = tomllib.loads(file.read_text())
    assert content["mount"] == [{"path": "/mnt/two", "max_ratio": 3}]
    assert wide.exists()
    assert forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False) == []


@pytest.mark.parametrize(
    "keys",
    ["source = 'other'", "fstype = 'fuse.sshfs'", "server = 'otherd'", "label = 'disk'"],
)
def test_forget_leaves_sections_about_other_file_systems_there(
    tree: Tree, tuned: Mount, keys: str
) -> None:
    other = f"[[mount]]\npath = '/mnt/one'\n{keys}\nmax_ratio = 2\n"
    file = tree.write("etc/mounts.d/mnt-one.toml", other)
    written = save_now(tree.host, tuned, admin=True, dry_run=False)
    (forgotten,) = forget_kept(tree.host, "0:40", admin=True, dry_run=False)
    assert (forgotten.file, forgotten.before) == (file, written.after)
    assert file.read_text() == other


@pytest.mark.parametrize(
    "keys",
    [
        "leave_alone = true",
        "options = 'max_pages=256'",
        "accept = ['kernel_cache']",
        "volume_class = 'fast'",
        "max_write = '1M'",
    ],
)
def test_forget_removes_only_the_values_of_a_section_that_sets_more(
    tree: Tree, tuned: Mount, keys: str
) -> None:
    more = f"# One.\n[[mount]]\npath = '/mnt/one'\n# Why.\n{keys}\n# Next.\n"
    next_ = "[[mount]]\npath = '/mnt/two'\nmax_ratio = 3\n"
    file = tree.write(
        "etc/mounts.d/a.toml", more.replace("# Why", "max_ratio = 2  # two\n# Why") + next_
    )
    (forgotten,) = forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False)
    assert forgotten.before == {"max_ratio": 2}
    assert file.read_text() == more + next_
    assert forget_kept(tree.host, "/mnt/one", admin=True, dry_run=False) == []
    assert file.read_text() == more + next_


def test_forget_leaves_the_administrators_files_unless_asked(tree: Tree, tuned: Mount) -> None:
    file = tree.write("etc/fusetune.toml", ADMINS)
    save(tree.host, tuned, {"max_ratio": 5}, "auto")
    (forgotten,) = forget_kept(tree.host, "0:40", admin=False, dry_run=False)
    assert (forgotten.before, forgotten.after) == ({"max_ratio": 5}, None)
    assert saved_for(tree.host, tuned) is None
    assert file.read_text() == ADMINS
    assert tree.values() == STOCK | {"max_ratio": 20, "read_ahead_kb": 512}


def test_forget_of_what_is_not_mounted_now(tree: Tree, mounted: Mount) -> None:
    for fstype in ("fuse.one", "fuse.two"):
        save(tree.host, replace(mounted, path="/absent", fstype=fstype), {"max_ratio": 5}, "save")
    save(tree.host, mounted, {"max_ratio": 6}, "save")
    tree.write("etc/fusetune.toml", ADMINS.replace("/mnt/two", "/absent"))
    assert len(forget_kept(tree.host, "/absent", admin=True, dry_run=False)) == 3
    assert saved_for(tree.host, mounted)
    for admin in (False, True):
        with pytest.raises(FusetuneError, match="/absent does not exist"):
            forget_kept(tree.host, "/absent", admin=admin, dry_run=False)


def test_forget_removes_what_is_damaged(tree: Tree, mounted: Mount) -> None:
    save(tree.host, mounted, {"max_ratio": 6}, "save")
    saved_path(tree.host, mounted).write_text("garbage")
    (forgotten,) = forget_kept(tree.host, "/mnt/one", admin=False, dry_run=False)
    assert (forgotten.before, forgotten.file.exists()) == (None, False)
