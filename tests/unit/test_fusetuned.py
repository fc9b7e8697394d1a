# SPDX-License-Identifier: GPL-2.0-or-later
"""max_pages, which only mounts of the module fusetuned have and can change while mounted.

The module shows what INIT negotiated in the file "init" of its control file system
(fusetuned(4)).
"""

import re
from functools import partial

import pytest

from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import plan, set_knobs
from fusetune.changes.journal import Journal
from fusetune.changes.state import is_tuned, knob_states, values_now
from fusetune.desired.config import load
from fusetune.desired.persist import save_now
from fusetune.desired.reconcile import reconcile
from fusetune.desired.reset import reset
from fusetune.desired.resolve import Resolver
from fusetune.desired.results import saved_for
from fusetune.errors import FusetuneError
from fusetune.knobs import LIVE, REMOUNT, Absent, Knob, knobs_of
from fusetune.knobs.remount import remount_hint
from fusetune.mounts.control import negotiated
from fusetune.mounts.mount import Mount
from fusetune.report.doctor import diagnose
from fusetune.report.documents.show import shown
from fusetune.tuner.auto import preview
from fusetune.tuner.space import searched
from tests import schemas
from tests.unit.conftest import CHECKOUT, INIT, Tree

MAX_PAGES = next(knob for knob in LIVE if knob.name == "max_pages")
FILE = "sys/fs/fusetuned/connections/41/max_pages"
INIT_FILE = "sys/fs/fusetuned/connections/41/init"


def on(tree: Tree, mount: Mount) -> Knob:
    """The knob on the mount."""
    return next(knob for knob in knobs_of(tree.host, mount) if knob.name == "max_pages")


def test_what_init_settled_on_is_stock_and_the_highest(tree: Tree, by_module: Mount) -> None:
    assert negotiated(tree.host, by_module)["max_write"] == "1048576"
    assert (on(tree, by_module).stock, on(tree, by_module).high) == (256, 256)
    now = values_now(tree.host, by_module)
    assert now["max_pages"] == 256
    assert not is_tuned(tree.host, by_module, now)
    assert is_tuned(tree.host, by_module, now | {"max_pages": 64})
    with pytest.raises(FusetuneError, match="has the kernel's default values"):
        save_now(tree.host, by_module, admin=False, dry_run=False)


def test_set_show_save_and_reset(tree: Tree, by_module: Mount) -> None:
    changes = set_knobs(tree.host, by_module, {MAX_PAGES: 128})
    assert [(c.old, c.new) for c in changes] == [(256, 128)]
    assert tree.read(FILE).strip() == "128"
    states = knob_states(tree.host, by_module, Journal(tree.host, by_module))
    init = negotiated(tree.host, by_module)
    document = schemas.check(shown(by_module, states, None, {}, init))
    assert document["init"]["max_write"] == 1 << 20
    assert document["init"]["flags"] == ["async_read", "max_pages"]
    wanted = {"name": "max_pages", "value": 128, "stock": 256, "high": 256, "set_by": "fusetune"}
    assert wanted.items() <= document["knobs"][-1].items()
    save_now(tree.host, by_module, admin=False, dry_run=False)
    saved = saved_for(tree.host, by_module)
    assert saved
    assert saved.values == {"max_pages": 128}
    assert [(c.old, c.new) for c in reset(tree.host, by_module)] == [(128, 256)]
    assert tree.read(FILE).strip() == "256"
    assert not tree.journals()


def test_more_than_init_settled_on_is_refused(tree: Tree, by_module: Mount) -> None:
    with pytest.raises(FusetuneError, match="max_pages=257: INIT negotiated 256"):
        set_knobs(tree.host, by_module, {MAX_PAGES: 257})
    assert not tree.journals()


def test_kept_for_a_larger_mount_it_does_not_hinder_the_rest(tree: Tree, by_module: Mount) -> None:
    """As after a remount with a smaller limit."""
    section = '[[mount]]\npath = "/mnt/tuned"\nmax_pages = 512\nmax_ratio = 20\n'
    tree.write("etc/fusetune.toml", section)
    kept = reconcile(Resolver(tree.host, load(tree.host)), by_module)
    assert [(c.knob.name, c.new) for c in kept.changes] == [("max_ratio", 20)]
    assert kept.refused == ["max_pages=512: INIT negotiated 256; more needs a remount"]


def test_before_init_is_answered_there_is_no_range(tree: Tree, by_module: Mount) -> None:
    (tree.root / INIT_FILE).unlink()
    assert negotiated(tree.host, by_module) == {}
    assert on(tree, by_module).stock is None
    assert not is_tuned(tree.host, by_module, values_now(tree.host, by_module))


def test_a_mount_of_the_kernels_fuse_has_none(tree: Tree, mounted: Mount) -> None:
    assert "max_pages" not in {knob.name for knob in knobs_of(tree.host, mounted)}
    with pytest.raises(Absent, match="only mounts of the module fusetuned"):
        MAX_PAGES.read(tree.host, mounted)
    with pytest.raises(FusetuneError, match="max_pages is absent: only mounts of the module"):
        plan(tree.host, mounted, {MAX_PAGES: 64})


def test_auto_tries_no_more_than_init_settled_on(tree: Tree, by_module: Mount) -> None:
    resolver = Resolver(tree.host, load(tree.host))
    tried = {one.knob: one for one in preview(resolver, by_module, [WORKLOADS["seq-write"]])}
    assert tried["max_pages"].values == (16, 32, 64, 128, 256)
    assert tried["max_pages"].file == tree.host.path(FILE)
    knobs, now = knobs_of(tree.host, by_module), values_now(tree.host, by_module)
    refuse = partial(resolver.refusal, by_module)
    assert searched(knobs, now, [WORKLOADS["seq-write"]], refuse)[1] == []


def test_auto_leaves_it_out_elsewhere(tree: Tree, mounted: Mount) -> None:
    resolver = Resolver(tree.host, load(tree.host))
    tried = preview(resolver, mounted, [WORKLOADS["seq-write"]])
    assert "max_pages" not in {one.knob for one in tried}


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("no_file_caps", "mount with -o tuned,tuned_options=no_file_caps"),
        ("max_pages", "mount with -o tuned,tuned_options=max_pages=N"),
        ("writeback_cache", "unmount it and mount it again with '-o writeback' added"),
    ],
)
def test_what_needs_a_remount_is_told_for_the_module(
    by_module: Mount, name: str, line: str
) -> None:
    assert line in remount_hint(by_module, name)


def test_each_mount_option_of_the_module_is_named_and_no_other() -> None:
    parsed = (CHECKOUT / "dkms/fusetuned/tuned/options.c").read_text()
    options = set(re.findall(r'fsparam_\w+\("(\w+)"', parsed))
    assert {knob.tuned.partition("=")[0] for knob in REMOUNT if knob.tuned} == options


def test_the_manual_has_each_mount_option_of_the_module() -> None:
    tuned, manual = CHECKOUT / "dkms/fusetuned/tuned", (CHECKOUT / "man/fusetuned.4").read_text()
    for name in ("options.c", "forced.c"):
        options = re.findall(r'fsparam_(\w+)\("(\w+)"', (tuned / name).read_text())
        assert len(options) >= 5
        for kind, option in options:
            value = "" if kind == "flag" else " Ns = Ns Ar "
            assert f"\n.It Cm {option}{value}" in manual, option


def test_what_mount_options_forced_is_shown(tree: Tree, by_module: Mount) -> None:
    states = knob_states(tree.host, by_module, Journal(tree.host, by_module))
    for line, forced in (("", None), ("forced big_writes no_xattr\n", ["big_writes", "no_xattr"])):
        tree.write(INIT_FILE, INIT.format(256, "async_read") + line)
        what = shown(by_module, states, None, {}, negotiated(tree.host, by_module))
        assert schemas.check(what)["init"].get("forced") == forced
        assert ("overridden by mount options: big_writes no_xattr" in what.as_text()) == bool(line)


def test_what_the_module_would_bring_is_told_elsewhere(mounted: Mount) -> None:
    for knob in REMOUNT:
        assert "tuned_options" not in knob.remedy_on(mounted)
    assert "with the module fusetuned and its option no_file_caps" in remount_hint(
        mounted, "no_file_caps"
    )


def test_doctor_names_the_control_file_system_that_is_missing(tree: Tree, by_module: Mount) -> None:
    (tree.root / "sys/fs/fusetuned").rename(tree.root / "gone")
    tree.mount("/mnt/one")
    tree.live()
    found = {finding.name: finding for finding in diagnose(tree.host).findings}
    assert "fusectl" not in found
    assert found["fusetunedctl"].remedy.endswith(" /sys/fs/fusetuned/connections")


def test_connections_of_either_kind_elsewhere_are_counted(tree: Tree, by_module: Mount) -> None:
    for directory in ("fusetuned/connections/50", "fuse/connections/41", "fuse/connections/60"):
        tree.write(f"sys/fs/{directory}/waiting", "0\n")
    assert diagnose(tree.host).elsewhere == 3
