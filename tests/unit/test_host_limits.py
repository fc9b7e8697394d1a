# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's limits follow the mounts that need them: fusetune raises and restores them.

None is lowered below its original value. fusetune/desired/host_limits.py explains how the kernel
uses them.
"""

import subprocess
from unittest import mock

import pytest

from fusetune.changes.apply import set_knobs
from fusetune.changes.lock import Busy, Lock
from fusetune.desired.config import load
from fusetune.desired.host_limits import (
    Needs,
    Raised,
    of_command,
    of_mount,
    of_options,
    prepare,
    raise_limits,
    release,
    unit_command,
)
from fusetune.desired.reset import reset, reset_all
from fusetune.desired.results import save
from fusetune.desired.sections import Settings
from fusetune.desired.undo import reset_mount
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE, SYSTEM, parse_number
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from tests.unit.conftest import Tree

KNOBS = {knob.name: knob for knob in (*SYSTEM, *LIVE)}
PIPE, PAGES = "fs.pipe-max-size", "fs.fuse.max_pages_limit"
TUNED = "max_pages_per_req"
MIB = 1 << 20
STOCK = {PIPE: MIB, PAGES: 256, TUNED: 0}
SECTION = "[[mount]]\npath = '{}'\noptions = '{}'\n"


@pytest.fixture
def ready(tree: Tree) -> Tree:
    """A host with all limits at their defaults."""
    tree.system()
    return tree


def limits(tree: Tree) -> dict[str, int]:
    return {name: KNOBS[name].read(tree.host, None) for name in STOCK}


def configure(tree: Tree, *sections: str, policy: str = "") -> None:
    tree.write("etc/mounts.d/mounts.toml", "".join(sections))
    tree.write("etc/fusetune.toml", policy)


def needs_of(tree: Tree, mount: Mount) -> Needs:
    return of_mount(tree.host, load(tree.host), mount, Daemons(tree.host))


def raised(tree: Tree, needs: Needs) -> dict[str, int]:
    changes = raise_limits(tree.host, needs, load(tree.host).settings).changes
    return {change.knob.name: change.new for change in changes}


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("", Needs()),
        ("writeback_cache,splice=off", Needs()),
        ("max_pages=512", Needs(512)),
        ("max_write=4M,tuned", Needs(1024, tuned=True)),
        ("max_write=4097,max_pages=1", Needs(2)),
        ("max_pages=512,max_pages=x,max_pages", Needs(512)),
    ],
)
def test_what_options_ask_for(text: str, needs: Needs) -> None:
    assert of_options(text) == needs


@pytest.mark.parametrize(
    ("needs", "values"),
    [
        (Needs(), {}),
        (Needs(255), {PIPE: MIB, PAGES: 255}),
        (Needs(256), {PIPE: 2 * MIB, PAGES: 256}),
        (Needs(512, tuned=True), {PIPE: 4 * MIB, PAGES: 512, TUNED: 512}),
        (Needs(0, 3 * MIB), {PIPE: 4 * MIB}),
        (Needs(65535, 1 << 31, True), {PIPE: 8 * MIB, PAGES: 1024, TUNED: 1024}),
    ],
)
def test_what_they_come_to_within_the_policy(needs: Needs, values: dict[str, int]) -> None:
    assert {knob.name: v for knob, v in needs.values(Settings()).items()} == values


def test_the_policy_bounds_them() -> None:
    settings = Settings(max_pipe_size=3 * MIB, max_pages=700)
    values = Needs(1024, tuned=True).values(settings)
    assert {knob.name: v for knob, v in values.items()} == {PIPE: 2 * MIB, PAGES: 700, TUNED: 512}


def test_the_section_that_counts_most(ready: Tree, mounted: Mount) -> None:
    configure(
        ready,
        "[[mount]]\nmax_write = '1M'\npipe_max_size = '4M'\noptions = 'max_pages=900'\n",
        "[[mount]]\npath = '/mnt/one'\nmax_write = '2M'\noptions = 'max_pages=300'\n",
        "[[mount]]\npath = '/mnt/two'\nmax_write = '4M'\n",
    )
    assert needs_of(ready, mounted) == Needs(512, 4 * MIB)


@pytest.mark.parametrize(
    ("section", "policy"),
    [
        ("[[mount]]\npath = '/mnt/one'\nleave_alone = true\n", ""),
        ("", "[policy]\nexclude = ['fuse.mirror*']\n"),
    ],
)
def test_what_is_left_alone_needs_nothing(
    ready: Tree, mounted: Mount, section: str, policy: str
) -> None:
    configure(ready, "[[mount]]\nmax_write = '4M'\n", section, policy=policy)
    assert needs_of(ready, mounted) == Needs()


def test_what_was_saved_counts(ready: Tree, by_module: Mount) -> None:
    save(ready.host, by_module, {"max_pages": 512}, "auto")
    assert needs_of(ready, by_module) == Needs(512, tuned=True)
    assert raised(ready, needs_of(ready, by_module)) == {
        PIPE: 4 * MIB,
        PAGES: 512,
        TUNED: 512,
    }


@pytest.mark.parametrize(
    ("words", "pages"),
    [
        (["sshfs", "host:", "/mnt/one"], 600),
        (["/usr/bin/sshfs", "host:", "one/../one", "-f"], 600),
        (["rclone", "mount", "host:", "/mnt/one"], 0),
        (["rclone", "/srv/x"], 700),
        (["bindfs", "-o", "ro,max_write=2M", "a", "b"], 512),
    ],
)
def test_a_mount_that_is_yet_to_come(
    ready: Tree, words: list[str], pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(
        ready,
        "[[mount]]\npath = '/mnt/*'\nserver = 'sshfs'\nsource = 'host:'\nmax_pages = 600\n",
        "[[mount]]\npath = '/srv/*'\nfstype = 'fuse*.rclone'\noptions = 'max_pages=700'\n",
    )
    monkeypatch.setattr("os.getcwd", lambda: "/mnt")
    assert of_command(ready.host, load(ready.host), words) == Needs(pages)


def test_only_raised_and_journalled(ready: Tree) -> None:
    assert raised(ready, Needs(512)) == {PIPE: 4 * MIB, PAGES: 512}
    assert limits(ready) == STOCK | {PIPE: 4 * MIB, PAGES: 512}
    assert raised(ready, Needs(300)) == {}
    assert raised(ready, Needs(512, 8 * MIB)) == {PIPE: 8 * MIB}
    reset(ready.host, None)
    assert limits(ready) == STOCK
    assert ready.journals() == []


def test_a_larger_value_of_the_administrators_stays(ready: Tree) -> None:
    ready.write(KNOBS[PIPE].file, f"{16 * MIB}\n")
    assert raised(ready, Needs(512)) == {PAGES: 512}
    reset_all(ready.host)
    assert limits(ready) == STOCK | {PIPE: 16 * MIB}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(("name", "above"), [(PIPE, 16 * MIB), (PAGES, 513), (TUNED, 1024)])
def test_no_limit_is_ever_lowered(ready: Tree, name: str, above: int, dry_run: bool) -> None:
    """The original is sufficient or more; other mounts may rely on it."""
    needs = Needs(512, tuned=True)
    ready.write(KNOBS[name].file, f"{above}\n")
    found = raise_limits(ready.host, needs, Settings(), dry_run=dry_run)
    assert name not in {change.knob.name for change in found.changes}
    assert all(change.new > change.old for change in found.changes if change.old)
    assert len(found.changes) == 2
    assert limits(ready)[name] == above
    raise_limits(ready.host, needs, Settings())
    before = limits(ready)
    assert raise_limits(ready.host, needs, Settings(), dry_run=dry_run) == Raised()
    for less in (Needs(), Needs(1), Needs(257, tuned=True)):
        assert raise_limits(ready.host, less, Settings(), dry_run=dry_run) == Raised()
    assert limits(ready) == before


def test_what_the_administrator_sets_stays(ready: Tree) -> None:
    set_knobs(ready.host, None, {KNOBS[PIPE]: 2 * MIB})
    found = raise_limits(ready.host, Needs(512), Settings())
    assert [change.knob.name for change in found.changes] == [PAGES]
    assert found.left == [
        f"{PIPE}={2 * MIB} was set by the administrator and is kept, but {4 * MIB} is needed"
    ]
    ready.write(KNOBS[PAGES].file, "300\n")  # by hand, after it was ours
    assert raised(ready, Needs(512)) == {}


@pytest.mark.parametrize(("pipe", "tuned"), [(MIB, {}), (2 * MIB, {TUNED: 512})])
def test_the_module_gets_no_more_than_the_administrators_pipe_holds(
    ready: Tree, pipe: int, tuned: dict[str, int]
) -> None:
    ready.write(KNOBS[PIPE].file, f"{2 * pipe}\n")
    set_knobs(ready.host, None, {KNOBS[PIPE]: pipe})
    assert raised(ready, Needs(1024, tuned=True)) == {PAGES: 1024, **tuned}


def test_nothing_is_written_for_a_dry_run(ready: Tree) -> None:
    found = raise_limits(ready.host, Needs(512), Settings(), dry_run=True)
    assert [change.new for change in found.changes] == [4 * MIB, 512]
    assert limits(ready) == STOCK
    assert not ready.host.state_dir.exists()


def test_a_limit_that_this_kernel_lacks(ready: Tree) -> None:
    for name in (PAGES, TUNED):
        (ready.root / KNOBS[name].file).unlink()
    assert raised(ready, Needs(512, tuned=True)) == {PIPE: 4 * MIB}


def test_another_one_at_work_is_waited_for_and_then_told(ready: Tree) -> None:
    with Lock(ready.host, None), pytest.raises(Busy):
        raise_limits(ready.host, Needs(512), Settings(), patience=0.1)
    assert limits(ready) == STOCK


def two(tree: Tree) -> tuple[Mount, Mount]:
    from fusetune.mounts.discover import discover

    for number in (40, 41):
        tree.mount(f"/mnt/{number}", device=f"0:{number}")
        tree.live(bdi=f"0:{number}", connection=str(number))
    one, other = discover(tree.host)
    return one, other


def test_a_reset_puts_back_what_no_other_mount_needs(ready: Tree) -> None:
    one, other = two(ready)
    configure(ready, SECTION.format("/mnt/40", "max_pages=512"))
    raised(ready, needs_of(ready, one))
    assert release(ready.host, other) == []
    assert [c.new for c in release(ready.host, one, dry_run=True)] == [256, MIB]
    assert limits(ready)[PAGES] == 512
    assert [c.new for c in release(ready.host, one)] == [256, MIB]
    assert limits(ready) == STOCK
    assert ready.journals() == []
    assert release(ready.host, one) == []


def test_reset_of_a_mount_puts_back_the_limits_too(ready: Tree) -> None:
    one, _ = two(ready)
    configure(ready, SECTION.format("/mnt/40", "max_pages=512"))
    raised(ready, needs_of(ready, one))
    set_knobs(ready.host, one, {KNOBS["read_ahead_kb"]: 256})
    for dry_run in (True, False):
        changes = reset_mount(ready.host, one, dry_run=dry_run)
        assert [c.new for c in changes] == [128, 256, MIB]
    assert limits(ready) == STOCK


def test_not_while_another_one_needs_more_than_there_was(ready: Tree) -> None:
    one, other = two(ready)
    sections = [SECTION.format(f"/mnt/{n}", f"max_pages={p}") for n, p in ((40, 900), (41, 255))]
    configure(ready, *sections)
    raised(ready, needs_of(ready, one))
    configure(ready, sections[0], SECTION.format("/mnt/41", "max_pages=300"))
    assert release(ready.host, one) == []
    configure(ready, *sections)
    release(ready.host, one)
    assert limits(ready) == STOCK
    assert other.path == "/mnt/41"


def test_what_was_set_since_is_not_put_back_with_a_mount(ready: Tree) -> None:
    one, _ = two(ready)
    raised(ready, Needs(512))
    raised(ready, Needs(900))
    set_knobs(ready.host, None, {KNOBS[PIPE]: 8 * MIB})
    assert [c.knob.name for c in release(ready.host, one)] == [PAGES]
    assert limits(ready) == STOCK | {PIPE: 8 * MIB}
    reset(ready.host, None)
    assert limits(ready) == STOCK


def test_raised_once_more_after_it_was_put_back(ready: Tree) -> None:
    one, _ = two(ready)
    set_knobs(ready.host, None, {KNOBS["enable_uring"]: 1})  # so that the journal stays
    for _ in range(2):
        assert raised(ready, Needs(512)) == {PIPE: 4 * MIB, PAGES: 512}
        assert [c.new for c in release(ready.host, one)] == [256, MIB]


def test_no_failure_keeps_a_server_from_being_mounted(ready: Tree) -> None:
    with mock.patch("os.geteuid", return_value=0):
        assert prepare(ready.host, ["sshfs", "host:", "/mnt/one"], "max_pages=512") is None
        assert limits(ready)[PAGES] == 512
        configure(ready, "[[mount]]\nwrong = 1\n")
        problem = prepare(ready.host, ["sshfs", "host:", "/mnt/one"], "max_pages=1024")
    assert problem
    assert "limits were not changed" in problem
    assert limits(ready)[PAGES] == 512


def test_an_unprivileged_user_raises_nothing(ready: Tree) -> None:
    with mock.patch("os.geteuid", return_value=1000):
        assert prepare(ready.host, ["sshfs"], "max_pages=512") is None
    assert limits(ready) == STOCK


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            "{ path=/usr/bin/sshfs ; argv[]=/usr/bin/sshfs -f h: /mnt ; ignore_errors=no }\n",
            ["/usr/bin/sshfs", "-f", "h:", "/mnt"],
        ),
        ("\n", None),
    ],
)
def test_the_command_of_a_unit(said: str, words: list[str] | None) -> None:
    done = subprocess.CompletedProcess([], 0, said, "")
    with mock.patch("subprocess.run", return_value=done):
        if words:
            assert unit_command("x.service") == words
        else:
            with pytest.raises(FusetuneError, match="no ExecStart="):
                unit_command("x.service")


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("[policy]\nmax_pages = 0\n", 2, "must be a whole number from 1 to 65535"),
        ("[policy]\nmax_pipe_size = '4k'\n", 2, "must be a number of bytes, such as '4M'"),
        ("[[mount]]\nmax_write = true\n", 2, "must be a number of bytes"),
        ("[[mount]]\npipe_max_size = 'large'\n", 2, "must be a number of bytes"),
    ],
)
def test_wrong_values(ready: Tree, text: str, line: int, what: str) -> None:
    ready.write("etc/fusetune.toml", text)
    with pytest.raises(FusetuneError, match=rf"fusetune\.toml:{line}: \w+ {what}"):
        load(ready.host)


def test_the_policy_is_configured(ready: Tree) -> None:
    configure(ready, policy="[policy]\nmax_pipe_size = '2M'\nmax_pages = 300\n")
    settings = load(ready.host).settings
    assert (settings.max_pipe_size, settings.max_pages) == (parse_number("2M"), 300)
    assert raised(ready, Needs(1024)) == {PIPE: 2 * MIB, PAGES: 300}
