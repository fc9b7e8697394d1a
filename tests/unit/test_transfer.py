# SPDX-License-Identifier: GPL-2.0-or-later
"""One host imports what another exports, and checks it like user input."""

import time
import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from fusetune.desired import exported
from fusetune.desired.config import load
from fusetune.desired.exported import Exported, chosen, parsed, text_of
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import Saved, saved_for, store
from fusetune.desired.transfer import Imported, Importer, import_sections, read
from fusetune.desired.volume import Volume
from fusetune.errors import FusetuneError
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError
from tests.unit.conftest import Tree, process
from tests.unit.sample_run import RUN

VOLUME = Volume("fuse.mirrorfs", "mirrorfs", "1.0", "6.12", 0, ("ro",), "source")
SAVED = Saved(
    *("/mnt/one", "fuse.mirrorfs", "source", {"read_ahead_kb": 4096}, "auto", 1700000000.0),
    *(1.5, (1.2, 1.9), RUN, VOLUME),
)
SECTION = '[[mount]]\npath = "/mnt/one"\nread_ahead_kb = "2M"\n'


@pytest.fixture
def here(tree: Tree) -> Tree:
    tree.write("proc/sys/kernel/osrelease", "6.12.9-amd64\n")
    return tree


def imported(tree: Tree, found: Exported, *, dry_run: bool = False) -> list[Imported]:
    resolver = Resolver(tree.host, load(tree.host))
    return list(Importer(tree.host, resolver, dry_run=dry_run).results(found))


def again(found: Exported) -> Exported:
    """Return what another host reads of an export."""
    return parsed(text_of(found).encode(), "x.toml")


def only(*results: Saved) -> Exported:
    return Exported("6.12", results, [])


def test_everything_arrives_as_it_was(here: Tree, tmp_path: Path) -> None:
    store(here.host, SAVED)
    here.write("etc/fusetune.toml", SECTION)
    found = chosen(here.host, load(here.host), [])
    assert again(found) == found
    assert found.results == [SAVED]
    other = Tree(tmp_path / "other")
    other.write("proc/sys/kernel/osrelease", "6.12.1-other\n")
    (done,) = imported(other, again(found))
    assert (done.action, done.why, done.differs) == ("imported", None, ())
    mount = Mount("/mnt/one", "fuse.mirrorfs", "source", "0:40")
    assert saved_for(other.host, mount) == SAVED
    assert [one.action for one in imported(other, again(found))] == ["unchanged"]


def test_a_dry_run_writes_nothing(here: Tree) -> None:
    (done,) = imported(here, only(SAVED), dry_run=True)
    assert done.action == "imported"
    assert not (here.host.state_dir / "saved").exists()
    file, _ = import_sections(here.host, [{"path": "/x", "max_ratio": 2}], dry_run=True)
    assert not file.exists()


def test_a_newer_result_of_this_host_stays(here: Tree) -> None:
    own = replace(SAVED, values={"read_ahead_kb": 512}, time=SAVED.time + 1)
    store(here.host, own)
    (done,) = imported(here, only(SAVED))
    assert done.action == "kept"
    assert done.why
    assert "newer" in done.why
    older = replace(own, time=SAVED.time - 1)
    store(here.host, older)
    assert [one.action for one in imported(here, only(SAVED))] == ["imported"]


def test_one_from_the_future_is_no_newer_than_now(here: Tree) -> None:
    (done,) = imported(here, only(replace(SAVED, time=1e12)))
    assert done.saved.time < 1e11
    store(here.host, replace(SAVED, values={"read_ahead_kb": 512}, time=time.time() + 1e6))
    assert [one.action for one in imported(here, only(SAVED))] == ["imported"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"volume": replace(VOLUME, kernel="6.1")}, "Linux 6.1, but this host has 6.12"),
        (
            {"values": {"max_ratio": 40}, "volume": replace(VOLUME, owner_uid=1000)},
            "unprivileged user's mount (uid 1000)",
        ),
        ({"values": {"max_ratio": 70}}, "max_dirty_percent"),
    ],
)
def test_what_is_not_for_this_host_is_refused(
    here: Tree, changed: dict[str, Any], why: str
) -> None:
    here.write("etc/fusetune.toml", "[policy]\nmax_dirty_percent = 50\n")
    (done,) = imported(here, only(replace(SAVED, **changed)))
    assert done.action == "refused"
    assert why in (done.why or "")
    assert not (here.host.state_dir / "saved").exists()


def test_without_a_volume_the_kernel_of_the_file_counts(here: Tree) -> None:
    plain = replace(SAVED, volume=None)
    assert [one.action for one in imported(here, Exported("6.1", [plain], []))] == ["refused"]
    assert [one.action for one in imported(here, Exported("6.12", [plain], []))] == ["imported"]


def test_what_differs_here_is_told(here: Tree) -> None:
    here.mount("/mnt/one", options="rw,user_id=0,group_id=0,max_read=65536")
    here.live()
    process(here, 7, "otherfs", fds={3: "40"})
    (done,) = imported(here, only(SAVED))
    assert done.action == "imported"
    assert done.differs == (
        "the server: mirrorfs there, otherfs here",
        "the server's version: 1.0 there, unknown here",
        "mount options: ro there, max_read=65536 here",
    )


def test_mounts_are_exported_by_name_also_when_they_are_gone(here: Tree) -> None:
    store(here.host, SAVED)
    store(here.host, replace(SAVED, path="/mnt/two"))
    here.write("etc/fusetune.toml", SECTION.replace("one", "three"))
    config = load(here.host)
    assert [one.path for one in chosen(here.host, config, ["/mnt/two"]).results] == ["/mnt/two"]
    found = chosen(here.host, config, ["/mnt/three"])
    assert (found.results, found.sections) == ([], [{"path": "/mnt/three", "read_ahead_kb": 2048}])
    with pytest.raises(FusetuneError, match="/mnt/four does not exist"):
        chosen(here.host, config, ["/mnt/one", "/mnt/four"])
    here.mount("/mnt/four")
    with pytest.raises(FusetuneError, match="nothing is saved for /mnt/four"):
        chosen(here.host, config, ["/mnt/one", "/mnt/four"])


def test_secrets_stay(here: Tree) -> None:
    source = "https://alice:hunter2@dav.example/x"
    secret = replace(SAVED, source=source, volume=replace(VOLUME, source=source))
    assert "hunter2" not in text_of(only(secret))
    here.write("etc/fusetune.toml", SECTION + f'source = "{source}"\n')
    exported = chosen(here.host, load(here.host), [])
    assert len(exported.sections) == 1
    assert "hunter2" not in text_of(exported)


BROKEN = {
    "not TOML": (b"= 3", "not valid TOML"),
    "not text": (b"\xff", "not valid TOML"),
    "deep": (b"x = " + b"[" * 100_000, "not valid TOML"),
    "another file": (b'schema = "other"', "its schema is not fusetune.export/1"),
    "a list": (b'schema = "fusetune.export/1"\nkernel = "6.12"\nresult = 3', "damaged"),
    "no kernel": (b'schema = "fusetune.export/1"', "damaged"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_export_is_an_error_of_one_line(name: str) -> None:
    content, why = BROKEN[name]
    with pytest.raises(FusetuneError) as error:
        parsed(content, "x.toml")
    assert str(error.value).startswith("x.toml: ")
    assert why in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "damage",
    [
        ("read_ahead_kb = 4096", "read_ahead_kb = -1"),
        ("read_ahead_kb = 4096", "no_such_knob = 1"),
        ("read_ahead_kb = 4096", 'read_ahead_kb = "4096"'),
        ("time = 1700000000.0", "time = nan"),
        ('by = "auto"', 'by = "mallory"'),
        ('path = "/mnt/one"', 'path = "mnt/one"'),
        ('path = "/mnt/one"', "path = 3"),
        ("owner_uid = 0", 'owner_uid = "0"'),
        ("schema = 4", "schema = 5"),
    ],
)
def test_a_damaged_result_is_named(damage: tuple[str, str]) -> None:
    text = text_of(only(SAVED, SAVED))
    assert text.count(damage[0]) >= 2
    changed = "".join([*text.rpartition(damage[0])[:1], damage[1], text.rpartition(damage[0])[2]])
    with pytest.raises(FusetuneError, match=r"^x\.toml: result 2: "):
        parsed(changed.encode(), "x.toml")


def test_a_wrong_section_is_named_by_its_line() -> None:
    text = text_of(Exported("6.12", [], [{"path": "/x", "max_ratio": 2}]))
    wrong = text.replace("max_ratio", "max_ration")
    line = wrong[: wrong.index("max_ration")].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"^x\.toml:{line}: .*did you mean max_ratio"):
        parsed(wrong.encode(), "x.toml")


def test_the_sections_of_a_later_import_replace_those_of_an_earlier_one(here: Tree) -> None:
    first = {"path": "/x", "max_ratio": 2}
    file, _ = import_sections(here.host, [first, {"path": "/y", "max_ratio": 3}], dry_run=False)
    before = file.read_text()
    import_sections(here.host, [first], dry_run=False)
    assert file.read_text() == before
    import_sections(here.host, [{"path": "/x", "max_ratio": 9}], dry_run=False)
    assert tomllib.loads(file.read_text())["mount"] == [
        {"path": "/x", "max_ratio": 9},
        {"path": "/y", "max_ratio": 3},
    ]
    assert [one.values for one in load(here.host).sections] == [{"max_ratio": 9}, {"max_ratio": 3}]


def test_sections_of_this_host_stay(here: Tree) -> None:
    """Those that another file has; equal ones are not written twice."""
    here.write("etc/fusetune.toml", "[[mount]]\nmax_ratio = 2\n[[mount]]\npath = '/z'\n")
    masked = "source = 'https://me:secret@x/'\n"
    own = here.write("etc/mounts.d/zz.toml", f"{SECTION}[[mount]]\n{masked}max_ratio = '3'\n")
    found = again(chosen(here.host, load(here.host), []))
    file, done = import_sections(here.host, found.sections, dry_run=False)
    assert [one.action for one in done] == ["unchanged"] * 4
    assert not file.exists()
    Path(own).write_text(SECTION.replace("2M", "4M"))
    _, done = import_sections(here.host, found.sections, dry_run=False)
    assert [one.action for one in done] == ["unchanged", "unchanged", "kept", "imported"]
    assert done[2].selects == {"path": "/mnt/one"}
    assert done[2].why == f"this host's own section selects the same mounts: {own}:1"
    assert [one["max_ratio"] for one in tomllib.loads(file.read_text())["mount"]] == [3]


def test_sections_that_select_the_same_mounts_are_imported_as_one(
    here: Tree, tmp_path: Path
) -> None:
    here.write("etc/fusetune.toml", SECTION + "max_ratio = 2\n")
    here.write("etc/mounts.d/a.toml", SECTION.replace("2M", "4M"))
    found = again(chosen(here.host, load(here.host), []))
    _, done = import_sections(here.host, found.sections, dry_run=False)
    assert [one.action for one in done] == ["unchanged"]
    other = Tree(tmp_path / "other")
    _, done = import_sections(other.host, found.sections, dry_run=False)
    assert [one.action for one in done] == ["imported"]
    (section,) = load(other.host).sections
    assert section.values == {"read_ahead_kb": 4096, "max_ratio": 2}


def test_a_file_that_others_changed_by_hand_is_not_overwritten(here: Tree) -> None:
    here.write("etc/mounts.d/imported.toml", "[[mount]]\nmax_ration = 3\n")
    with pytest.raises(ConfigError, match=r"imported\.toml:2"):
        import_sections(here.host, [{"path": "/x", "max_ratio": 2}], dry_run=False)
    assert here.read("etc/mounts.d/imported.toml") == "[[mount]]\nmax_ration = 3\n"


def test_a_huge_file_and_none_at_all(here: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FusetuneError, match="No such file"):
        read(here.host, here.root / "absent", None)
    monkeypatch.setattr(exported, "_LARGEST", 100)
    file = here.write("x.toml", "x" * 101)
    with pytest.raises(FusetuneError, match="so it is not an export"):
        read(here.host, file, None)


def test_what_is_not_known_stays_so() -> None:
    """TOML has no null."""
    bare = replace(SAVED, gain=None, ci95=None, volume=replace(VOLUME, version=None))
    unknown = replace(RUN, conditions=replace(RUN.conditions, version=None))
    found = only(bare, replace(bare, run=None, volume=None), replace(bare, run=unknown))
    assert list(again(found).results) == list(found.results)


def test_a_run_is_exported_with_its_samples() -> None:
    (found,) = again(only(SAVED)).results
    assert found.run
    assert asdict(found.run) == asdict(RUN)
