# SPDX-License-Identifier: GPL-2.0-or-later
"""A document of each kind that fusetune prints, for a mount of any name."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusetune.bench.intervals import Interval
from fusetune.bench.latency import Latencies, Latency
from fusetune.bench.measure import Measurement, summarise
from fusetune.bench.papers.catalogue import PAPERS
from fusetune.bench.papers.run import PaperResult, Row
from fusetune.bench.usage import Cpu, Usage, Usages
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import Change
from fusetune.changes.journal import Record
from fusetune.changes.state import KnobState
from fusetune.desired.drift import Verified
from fusetune.desired.history import Entry, History
from fusetune.desired.inspect import Check
from fusetune.desired.kept import Remembered
from fusetune.desired.resolve import Expected
from fusetune.desired.sharing import Shared
from fusetune.desired.undo import Reset
from fusetune.kmod.kinds import KINDS
from fusetune.kmod.signing import Signing
from fusetune.kmod.state import Built, Loaded, Report, State
from fusetune.knobs import LIVE, SYSTEM
from fusetune.libfuse.switch import FileChange
from fusetune.libfuse.users import Server
from fusetune.mounts.bdi import DirtyPages
from fusetune.mounts.mount import Mount
from fusetune.profile.module import parse_counters
from fusetune.recipes.edit import Edit
from fusetune.remount.undo import Undone
from fusetune.report.doctor import Diagnosis, Feature
from fusetune.report.documents import every_document
from fusetune.report.documents.auto import auto_result
from fusetune.report.documents.auto_preview import auto_preview
from fusetune.report.documents.base import Document
from fusetune.report.documents.bench import bench_result
from fusetune.report.documents.changes import applied_changes, reset_changes, set_changes
from fusetune.report.documents.diagnosis import doctor_report
from fusetune.report.documents.explain import explanation
from fusetune.report.documents.history import history_document
from fusetune.report.documents.inventory import host_report
from fusetune.report.documents.kept import forgotten_files, saved_files
from fusetune.report.documents.layers import layers_below
from fusetune.report.documents.lib import lib_change, lib_status
from fusetune.report.documents.listing import ListedLayer, Listing, listing
from fusetune.report.documents.modules import module_report
from fusetune.report.documents.papers import suite_result
from fusetune.report.documents.show import shown
from fusetune.report.documents.verify import Verification, verification
from fusetune.report.explain import Explained
from fusetune.report.findings import Finding
from fusetune.report.inventory import InventoriedMount, Inventory
from fusetune.toml.file import Origin
from fusetune.tuner.auto import Candidates, Outcome
from fusetune.tuner.earlier import WarmStart
from fusetune.tuner.guards import Guarded
from fusetune.tuner.search import Choice, Trial
from tests.unit.conftest import STOCK
from tests.unit.sample_advice import advice_documents, layers_of, remount_documents
from tests.unit.sample_imports import import_documents
from tests.unit.sample_metrics import COUNTED
from tests.unit.sample_run import RUN, saved_by
from tests.unit.sample_traffic import traffic_documents

PATHS = [
    "/mnt/plain",
    "/mnt/a b",
    "/mnt/new\nline\ttab\rreturn",
    "/mnt/\udcff\udc80",
    "/mnt/größe 日本",
    '/mnt/"quoted"\\',
    "/mnt/\x1b[31mred\x1b[0m",
    "/mnt/[bold]markup[/bold]",
    "/mnt/" + "long" * 200,
]
SERVED = Mount("/mnt", "fuse.x", "source", "0:40", bdi="0:40", connection="40", owner_uid=1000)
NAMES = sorted(document.SCHEMA for document in every_document())
GONE = [KnobState(knob, None, None, "it is not there") for knob in LIVE]

odd_paths = pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))


def named(path: str) -> Mount:
    """A mount all of whose names are odd."""
    return replace(SERVED, path=path, source=path, fstype="fuse." + path, also_at=(path + "2",))


def module_documents(mount: Mount) -> list[Document]:
    """A host with everything, and one with nothing."""
    ours, stock = Loaded("fusetuned", False, "0.1.0", "0123ABC"), Loaded("fuse", True, None, None)
    signing = Signing(True, "integrity", True, ["mokutil --import /var/lib/dkms/mok.pub"])
    built = [
        Built("6.12.94", "installed", "0.1.0"),
        Built("6.1.0", "failed", None, "error: why", ["error: why"], "/var/lib/dkms/make.log"),
    ]
    full = State(KINDS[0], ours, stock, False, ["0.1.0"], built, [mount.path], [mount.path], True)
    bare = State(KINDS[0], None, None, None, [], [], [], [], False)
    return [
        module_report(Report("6.12.94", signing, [full], [("dkms", "install")])),
        module_report(Report("6.12.94", Signing(None, None, False), [bare]), dry_run=True),
    ]


def _paper_result(odd: str) -> PaperResult:
    paper = PAPERS["singh-atomic"]
    row = Row(paper.ratios[0], Interval(1.2, 1.1, 1.3), None)
    return PaperResult(paper, [row, Row(paper.ratios[1], None, odd)], 1.5, 1 << 20, 3)


def all_documents(mount: Mount) -> list[Document]:
    """One object of each kind for the mount, and one with as much as possible absent."""
    return [
        *module_documents(mount),
        *listing_documents(mount),
        *show_documents(mount),
        *change_documents(mount),
        *history_documents(mount),
        *kept_documents(mount),
        *import_documents(mount),
        *verify_documents(mount),
        *report_documents(mount),
        *lib_documents(mount),
        *traffic_documents(mount),
        *auto_documents(mount),
        *bench_documents(mount),
        *advice_documents(mount),
        *remount_documents(mount),
        *doctor_documents(mount),
    ]


def listing_documents(mount: Mount) -> list[Document]:
    """``list``: of no mount, of several, of an excluded one, and of layers."""
    bare = replace(mount, bdi=None, connection=None)
    return [
        listing([]),
        listing(
            [
                (mount, STOCK, False, None),
                (bare, {}, False, None),
                (mount, {"max_ratio": 20}, True, None),
            ]
        ),
        listing([(mount, STOCK, False, "/etc/fusetune/fusetune.toml:4 sets leave_alone")]),
        listed_tree(mount),
    ]


def show_documents(mount: Mount) -> list[Document]:
    """``show``: of a mount with each kind of result, of a bare one, and of the host."""
    bare = replace(mount, bdi=None, connection=None)
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    host = [KnobState(knob, 1, who, None) for knob in SYSTEM for who in ("stock", "fusetune")]
    return [
        shown(mount, states, saved_by(mount, "auto"), expected(mount)),
        shown(mount, states, saved_by(mount, "save"), {}),
        shown(bare, GONE, None, {}),
        shown(None, host, None, {}),
    ]


def change_documents(mount: Mount) -> list[Document]:
    """``set``, ``reset`` and ``apply``: with and without changes."""
    change = Change(LIVE[0], mount, "/sys/class/bdi/0:40/read_ahead_kb", 128, 256)
    on_host = Change(SYSTEM[0], None, "/proc/sys/fs/pipe-max-size", 1 << 20, 1 << 21)
    edit = Edit(Path(f"/etc{mount.path}"), "a\n", None)
    kept = Remembered(Path(f"/var{mount.path}"), STOCK, None)
    return [
        set_changes([change, on_host], dry_run=False),
        set_changes([], dry_run=True),
        reset_changes(Reset([change, on_host], [Undone([edit])], [kept]), dry_run=True),
        applied_changes([change], dry_run=False),
        applied_changes([], dry_run=True),
    ]


def history_documents(mount: Mount) -> list[Document]:
    """``history`` and ``explain``: a change, runs with each outcome, and nothing."""
    changed = {"read_ahead_kb": (128, 2048)}
    measured: dict[str, Any] = {"workloads": ["seq-read"], "reasons": ["max_ratio: why"]}
    gain: dict[str, Any] = {"gain": 1.42, "ci95": (1.3, 1.55)}
    entries = [
        Entry(1_700_000_000.5, "set", "admin", changed),
        Entry(1_700_000_001.5, "auto", None, changed, **gain, **measured),
        Entry(1_700_000_002.5, "auto --live", None, **measured),
    ]
    return [
        history_document(mount.path, History(entries), 2),
        history_document(None, History(), 20),
        explanation(mount, [Explained(KnobState(LIVE[0], 128, "stock", None), ["it is 128"])]),
        explanation(None, [Explained(KnobState(SYSTEM[0], None, None, "gone"), ["it is gone"])]),
    ]


def auto_documents(mount: Mount) -> list[Document]:
    """``auto``: with a gain, without, and before it measures."""
    bare = replace(mount, bdi=None, connection=None)
    mixed, metadata = WORKLOADS["mixed"], WORKLOADS["metadata"]
    interval = Interval(1.5, 1.2, 1.9)
    by_workload = {"mixed": (1e6, 1.5e6, interval), "metadata": (9.0, 10.0, interval)}
    better = Choice(STOCK, True, interval, by_workload, ("read_ahead_kb: why",))
    same = Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())
    trials = [Trial(STOCK, ({"mixed": 1e6}, {"mixed": 1.1e6}))]
    took = Latencies()
    took.add(STOCK, {"mixed": Counter({2e6: 2.0, 3e7: 1.0})})
    usages = Usages()
    usages.add(STOCK, {"mixed": Usage(False, 2.0, Cpu(1.0, 0.5), Cpu(0.25, 0.5), 12 << 20)})
    gained = Outcome(
        *(mount, [mixed, metadata], STOCK, STOCK, better),
        *(trials, 12.5, 1 << 20, 40, ["why not more"]),
        guarded=[Guarded(STOCK, "mmap-read (random)", Interval(0.5, 0.4, 0.6))],
        start=STOCK,
        latencies=took,
        usages=usages,
        warm_start=WarmStart(STOCK, 9.0, holds=False),
        run=RUN,
    )
    searched = Candidates("max_ratio", "/sys/class/bdi/0:40/max_ratio", 1, (1, 2))
    return [
        auto_result(gained),
        auto_result(Outcome(bare, [mixed], STOCK, STOCK, same)),
        auto_preview(mount, [mixed], [searched]),
        auto_preview(bare, [mixed], []),
    ]


def bench_documents(mount: Mount) -> list[Document]:
    """``bench``: of a mount, of tmpfs, of an absent one; and of a paper."""
    figures = [summarise(WORKLOADS[name], [100.0, 110.0, 90.0]) for name in ("mixed", "metadata")]
    used = Usage(True, 0.5, Cpu(0.1, 0.2), None, None)
    figures[0] = replace(figures[0], latency=Latency(0.001, 0.02), usage=used)
    return [
        bench_result(
            [
                Measurement(mount.path, mount, figures, 1.5, 1 << 20, 3),
                Measurement("tmpfs itself", None, figures),
                Measurement("mirrorfs, passthrough", None, [], absent="this kernel lacks it"),
            ]
        ),
        suite_result([_paper_result(mount.path)]),
    ]


def doctor_documents(mount: Mount) -> list[Document]:
    """``doctor``: of a host that lacks nothing, and of one with findings."""
    lacking = [Feature(LIVE[0], None, "not there"), Feature(SYSTEM[0], 5, None)]
    findings = [Finding("fio", "fio is absent", "apt install fio"), _finding(mount)]
    return [
        doctor_report(Diagnosis([Feature(LIVE[0], 5, None)], [], 0, None, 0)),
        doctor_report(
            Diagnosis(lacking, findings, dirty_percent=40, max_dirty_percent=100, elsewhere=2)
        ),
    ]


def listed_tree(mount: Mount) -> Listing:
    """``list --tree`` of a mount on all of `layers_of`."""
    below = layers_below(layers_of(mount))
    (one,) = listing([(mount, STOCK, False, None)]).mounts
    layers = [ListedLayer(each.path, each.fstype, each.device, True, []) for each in below]
    return Listing([replace(one, below=below)], layers)


def expected(mount: Mount, refused: str | None = None) -> dict[str, Expected]:
    """Values from a line of a file of the mount's name, and from a saved result."""
    directory = Path(f"/etc{mount.path}")
    shared = Shared(directory / "saved.json", saved_by(mount, "auto"), 2)
    return {
        "max_ratio": Expected(7, Origin(directory / "fusetune.toml", 3), refused),
        "read_ahead_kb": Expected(1, Origin(directory / "saved.json"), None, shared),
        "strict_limit": Expected(0, Origin(directory / "saved.json")),
        "congestion_threshold": Expected(8, Origin(directory / "saved.json")),
    }


def kept_documents(mount: Mount) -> list[Document]:
    """``save`` and ``forget``."""
    file = Path(f"/etc{mount.path}.toml")
    return [
        saved_files(Remembered(file, None, {"max_ratio": 5}), dry_run=False),
        saved_files(Remembered(file, STOCK, STOCK), dry_run=True),
        forgotten_files([Remembered(file, STOCK, None)] * 2, dry_run=True),
        forgotten_files([], dry_run=False),
        forgotten_files([Remembered(file, {}, None), Remembered(file, None, None)], dry_run=False),
    ]


def verify_documents(mount: Mount) -> list[Verification]:
    """``verify``: of correct mounts, of others, and of unknown state."""
    wanted = expected(mount, f"policy of {mount.path}")
    knobs = {knob.name: knob for knob in LIVE}
    states = [
        KnobState(knobs["max_ratio"], 1, "stock", None),
        KnobState(knobs["read_ahead_kb"], 1, "fusetune", None),
        KnobState(knobs["strict_limit"], None, None, "it is not there"),
        KnobState(knobs["congestion_threshold"], 9, "stock", None),
    ]
    last = Record("read_ahead_kb", 128, 1, f"apply {mount.path}", 9.0)
    checks = [
        Check(state, wanted[state.knob.name], last if state.set_by == "fusetune" else None)
        for state in states
    ]
    return [
        verification([]),
        verification(
            [
                Verified(mount, checks),
                Verified(mount, left_alone=f"the file of {mount.path} says so"),
                Verified(replace(mount, bdi=None), problem=f"no journal of {mount.path}"),
            ]
        ),
    ]


def lib_documents(mount: Mount) -> list[Document]:
    """``lib``: a file written, planned, removed; and servers of every kind."""
    file = Path(f"/etc{mount.path}.conf")
    kinds = {"tuned": "/a.so", "stock": "/b.so", "libfuse2": "/c.so", "none": None}
    found = [Server(9, mount.path, library, uses) for uses, library in kinds.items()]
    return [
        lib_change(FileChange(file, None, "text\n", "restart"), dry_run=True),
        lib_change(FileChange(file, "text\n", "text\n", "restart"), dry_run=False),
        lib_change(FileChange(file, "text\n", None, "restart"), dry_run=False),
        lib_status([Path(mount.path)], found),
        lib_status([], []),
    ]


def report_documents(mount: Mount) -> list[Document]:
    """``report`` of one mount, and of a host without any."""
    wanted = expected(mount, f"policy of {mount.path}")
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    one = InventoriedMount(
        *(mount, states, wanted, None, saved_by(mount, "auto"), 3, frozenset(wanted)),
        dirty=DirtyPages(5, 100, 75, 12),
        counters=parse_counters(COUNTED),
        history=History((Entry(1_700_000_000.5, "set", mount.path, {"max_ratio": (1, 20)}),)),
    )
    why = f"the file of {mount.path} says so"
    bare = InventoriedMount(replace(mount, bdi=None), GONE, {}, why, None, None, frozenset())
    below = {mount.device: layers_of(mount)}
    diagnosis = Diagnosis([], [_finding(mount)], 40, 100, 2, below=below)
    problem = f"no journal of {mount.path}"
    modules = [Loaded("fuse", True, None, None), Loaded("fusetuned", False, "0.1.0", "0123ABC")]
    host = Inventory("6.12", "x86_64", 2, 1 << 30, modules, ["3.14.0"], [], diagnosis, [])
    return [host_report(host), host_report(replace(host, mounts=[one, bare], problems=[problem]))]


def _finding(mount: Mount) -> Finding:
    return Finding("stock", "it has the kernel's default values", "fusetune auto it", mount)
