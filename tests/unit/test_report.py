# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects are as their schemas say, and text is fit for a terminal whatever a mount is called."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.bench.intervals import Interval
from fusetune.bench.measure import Measurement, summarise
from fusetune.bench.papers.catalogue import PAPERS
from fusetune.bench.papers.run import PaperResult, Row
from fusetune.bench.workloads import WORKLOADS
from fusetune.changes.apply import Change
from fusetune.changes.journal import Journal, Record
from fusetune.changes.state import KnobState, knob_states
from fusetune.desired.drift import Verified
from fusetune.desired.inspect import Check
from fusetune.desired.persist import Remembered
from fusetune.desired.resolve import Expected
from fusetune.desired.results import Saved
from fusetune.host import Host
from fusetune.kmod.kinds import KINDS
from fusetune.kmod.signing import Signing
from fusetune.kmod.state import Built, Loaded, Report, State
from fusetune.knobs import LIVE, SYSTEM
from fusetune.libfuse.switch import FileChange
from fusetune.libfuse.users import Server
from fusetune.mounts.mount import Mount
from fusetune.recipes.advice import Advice
from fusetune.recipes.advise import Change as Change_
from fusetune.recipes.load import load_recipes
from fusetune.report.doctor import Diagnosis, Feature
from fusetune.report.documents import every_document
from fusetune.report.documents.advice import advised
from fusetune.report.documents.auto import auto_preview, auto_result
from fusetune.report.documents.base import Document
from fusetune.report.documents.bench import bench_result
from fusetune.report.documents.changes import applied_changes, reset_changes, set_changes
from fusetune.report.documents.diagnosis import doctor_report
from fusetune.report.documents.inventory import host_report
from fusetune.report.documents.kept import forgotten_files, saved_files
from fusetune.report.documents.lib import lib_change, lib_status
from fusetune.report.documents.listing import listing
from fusetune.report.documents.modules import module_report
from fusetune.report.documents.papers import suite_result
from fusetune.report.documents.show import shown
from fusetune.report.documents.verify import Verification, verification
from fusetune.report.findings import Finding
from fusetune.report.inventory import InventoriedMount, Inventory
from fusetune.report.text import figure_text, ratio_text
from fusetune.toml.file import Origin
from fusetune.tuner.auto import Candidates, Outcome
from fusetune.tuner.search import Choice, Trial
from tests import schemas
from tests.unit.conftest import STOCK, Tree

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

odd_paths = pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))


def named(path: str) -> Mount:
    """A mount whose every name is odd."""
    return replace(SERVED, path=path, source=path, fstype="fuse." + path, also_at=(path + "2",))


def module_documents(mount: Mount) -> list[Document]:
    """A host with all of it, and one with nothing."""
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


def _work_result(odd: str) -> PaperResult:
    work = PAPERS["singh-atomic"]
    shown = Row(work.ratios[0], Interval(1.2, 1.1, 1.3), None)
    return PaperResult(work, [shown, Row(work.ratios[1], None, odd)], 1.5, 1 << 20, 3)


def all_documents(mount: Mount) -> list[Document]:
    """One object of each kind for the mount, and one with as much as possible absent."""
    bare = replace(mount, bdi=None, connection=None)
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    gone = [KnobState(knob, None, None, "it is not there") for knob in LIVE]
    host = [KnobState(knob, 1, who, None) for knob in SYSTEM for who in ("stock", "fusetune")]
    change = Change(LIVE[0], mount, "/sys/class/bdi/0:40/read_ahead_kb", 128, 256)
    on_host = Change(SYSTEM[0], None, "/proc/sys/fs/pipe-max-size", 1 << 20, 1 << 21)
    mixed, metadata = WORKLOADS["mixed"], WORKLOADS["metadata"]
    interval = Interval(1.5, 1.2, 1.9)
    better = Choice(
        STOCK,
        True,
        interval,
        {"mixed": (1e6, 1.5e6, interval), "metadata": (9.0, 10.0, interval)},
        ("read_ahead_kb: why",),
    )
    same = Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())
    trials = [Trial(STOCK, ({"mixed": 1e6}, {"mixed": 1.1e6}))]
    figures = [summarise(workload, [100.0, 110.0, 90.0]) for workload in (mixed, metadata)]
    return [
        *module_documents(mount),
        listing([]),
        listing([(mount, STOCK, False), (bare, {}, False), (mount, {"max_ratio": 20}, True)]),
        listing([(replace(mount, fstype="fuse.lxcfs"), STOCK, False)]),
        shown(mount, states, saved_by(mount, "auto"), expected(mount)),
        shown(mount, states, saved_by(mount, "save"), {}),
        shown(bare, gone, None, {}),
        shown(None, host, None, {}),
        set_changes([change, on_host], dry_run=False),
        set_changes([], dry_run=True),
        reset_changes([change, on_host], dry_run=True),
        applied_changes([change], dry_run=False),
        applied_changes([], dry_run=True),
        *kept_documents(mount),
        *verify_documents(mount),
        *report_documents(mount),
        *lib_documents(mount),
        auto_result(
            Outcome(
                mount,
                [mixed, metadata],
                STOCK,
                STOCK,
                better,
                trials,
                12.5,
                1 << 20,
                40,
                ["why not more"],
            )
        ),
        auto_result(Outcome(bare, [mixed], STOCK, STOCK, same)),
        auto_preview(
            mount, [mixed], [Candidates("max_ratio", "/sys/class/bdi/0:40/max_ratio", 1, (1, 2))]
        ),
        auto_preview(bare, [mixed], []),
        bench_result(
            [
                Measurement(mount.path, mount, figures, 1.5, 1 << 20, 3),
                Measurement("tmpfs itself", None, figures),
                Measurement("mirrorfs, passthrough", None, [], absent="this kernel lacks it"),
            ]
        ),
        suite_result([_work_result(mount.path)]),
        *advice_documents(mount),
        doctor_report(Diagnosis([Feature(LIVE[0], 5, None)], [], 0, None, 0)),
        doctor_report(
            Diagnosis(
                [Feature(LIVE[0], None, "not there"), Feature(SYSTEM[0], 5, None)],
                [Finding("fio", "fio is absent", "apt install fio"), _finding(mount)],
                dirty_percent=40,
                max_dirty_percent=100,
                elsewhere=2,
            )
        ),
    ]


def saved_by(mount: Mount, by: str) -> Saved:
    """What ``auto`` or ``save`` keeps."""
    saved = Saved(mount.path, mount.fstype, mount.source, {"max_ratio": 5}, by, 9.0)
    return replace(saved, gain=1.5, ci95=(1.2, 1.9)) if by == "auto" else saved


def expected(mount: Mount, refused: str | None = None) -> dict[str, Expected]:
    """Values from a line of a file of the mount's name, and from a saved result."""
    directory = Path(f"/etc{mount.path}")
    return {
        "max_ratio": Expected(7, Origin(directory / "fusetune.toml", 3), refused),
        "read_ahead_kb": Expected(1, Origin(directory / "saved.json")),
        "strict_limit": Expected(0, Origin(directory / "saved.json")),
        "congestion_threshold": Expected(8, Origin(directory / "saved.json")),
    }


def kept_documents(mount: Mount) -> list[Document]:
    """What ``save`` and ``forget`` say."""
    file = Path(f"/etc{mount.path}.toml")
    return [
        saved_files(Remembered(file, None, {"max_ratio": 5}), dry_run=False),
        saved_files(Remembered(file, STOCK, STOCK), dry_run=True),
        forgotten_files([Remembered(file, STOCK, None)] * 2, dry_run=True),
        forgotten_files([], dry_run=False),
    ]


def verify_documents(mount: Mount) -> list[Verification]:
    """What ``verify`` says: of mounts as they should be, others, and where it cannot be told."""
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
    """What ``lib`` says: a file written, wanted, removed; and servers of every kind."""
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


def advice_documents(mount: Mount) -> list[Document]:
    """What ``advise`` says: with changes, without any, and without a recipe."""
    odd = mount.path
    (recipe,) = (one for one in load_recipes(Host()) if one.recipe.name == "mirrorfs")
    left_out = Change_("direct_io", odd, "true", None, "conditional", odd, odd, (), odd)
    new = Change_("writeback", odd, None, odd, "safe", None, odd, (odd, "Linux 6.9"), odd)
    full = Advice(
        *(mount, odd, odd, "1.2", "libfuse3", recipe, [left_out, new], f"a {odd}", f"b {odd}"),
        *([(f"/etc{odd}", f"-{odd}\n+b\n")], [odd], [odd]),
    )
    bare = Advice(replace(mount, bdi=None), "", None, None, None, None)
    return [advised(full, []), advised(replace(full, changes=()), []), advised(bare, [odd])]


def report_documents(mount: Mount) -> list[Document]:
    """What ``report`` says of one mount, and of a host without any."""
    wanted = expected(mount, f"policy of {mount.path}")
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    one = InventoriedMount(
        mount, states, wanted, None, saved_by(mount, "auto"), 3, frozenset(wanted)
    )
    gone = [KnobState(knob, None, None, "it is not there") for knob in LIVE]
    why = f"the file of {mount.path} says so"
    bare = InventoriedMount(replace(mount, bdi=None), gone, {}, why, None, 0, frozenset())
    diagnosis = Diagnosis([], [_finding(mount)], 40, 100, 2)
    problem = f"no journal of {mount.path}"
    modules = [Loaded("fuse", True, None, None), Loaded("fusetuned", False, "0.1.0", "0123ABC")]
    host = Inventory("6.12", "x86_64", 2, 1 << 30, modules, ["3.14.0"], [], diagnosis, [])
    return [
        host_report(host),
        host_report(replace(host, mounts=[one, bare], problems=[problem])),
    ]


def _finding(mount: Mount) -> Finding:
    return Finding("stock", "it has the kernel's default values", "fusetune auto it", mount)


# Objects and their schemas


@odd_paths
def test_objects_are_as_their_schemas_say(path: str) -> None:
    seen = set()
    for document in all_documents(named(path)):
        again = json.loads(document.as_json())
        assert again == schemas.check(document)
        seen.add(again["schema"])
    assert seen == {f"fusetune.{command}/1" for command in NAMES}


def test_there_is_a_schema_for_every_object() -> None:
    files = {file.stem for file in schemas.DIRECTORY.glob("*.json")}
    assert files == {*NAMES, "recipe"}  # which is read, and printed by no command


@pytest.mark.parametrize("command", NAMES)
def test_a_schema_is_one_and_says_what_it_is(command: str) -> None:
    document = schemas.schema(command)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$id"] == f"urn:fusetune:schema:{command}:1"
    assert document["properties"]["schema"]["const"] == f"fusetune.{command}/1"


def fields(node: Any) -> Any:
    """Every schema of a field or an item, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "properties":
                yield from value.values()
            if key in ("items", "additionalProperties") and isinstance(value, dict):
                yield value
            yield from fields(value)
    elif isinstance(node, list):
        for value in node:
            yield from fields(value)


def described(field: dict[str, Any], document: dict[str, Any]) -> str | None:
    """The description of a field, or of the shape that it refers to."""
    shape = document["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
    text: str | None = field.get("description") or shape.get("description")
    return text


@pytest.mark.parametrize("command", NAMES)
def test_every_field_is_described_and_bounded(command: str) -> None:
    document = schemas.schema(command)
    for field in fields(document):
        kinds = field.get("type", [])
        if "number" in kinds or "integer" in kinds:
            assert "minimum" in field or "exclusiveMinimum" in field
        if "object" in kinds:
            assert "additionalProperties" in field
        if "array" in kinds:
            assert "items" in field
        assert described(field, document) or kinds == "number", field


@pytest.mark.parametrize("command", ["list", "auto"])
def test_the_schemas_name_every_live_knob(command: str) -> None:
    document = schemas.schema(command)
    knobs = document["$defs"]["KnobValues"]["properties"]
    assert set(knobs) == {knob.name for knob in LIVE}
    for knob in LIVE:
        assert knobs[knob.name]["minimum"] == knob.low
        # max_background shows as UINT_MAX once the connection is aborted.
        top = 0xFFFFFFFF if knob.name == "max_background" else knob.high
        assert knobs[knob.name].get("maximum") == top


def test_schemas_are_strict() -> None:
    """Every field left out, added, or of another type is noticed, in every object."""
    for document in all_documents(SERVED):
        for change in (_without_one, _with_one_more, _with_another_type):
            for spoiled in change(document.as_object()):
                with pytest.raises((jsonschema.ValidationError, KeyError, AttributeError)):
                    schemas.validate(spoiled)


def _without_one(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: document[key] for key in document if key != left} for left in document]


def _with_one_more(document: dict[str, Any]) -> list[dict[str, Any]]:
    spoiled = [document | {"more": 1}]
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            spoiled.append(document | {key: [value[0] | {"more": 1}]})
    return spoiled


def _with_another_type(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document | {key: object()} for key in document]


# Text


def lines_of(document: Document, long: bool = False) -> list[str]:
    """The lines of the text, without the styles of headings."""
    text = click.unstyle(document.as_text(long=long))
    assert text.endswith("\n")
    return text[:-1].split("\n")


@odd_paths
def test_text_is_fit_for_a_terminal(path: str) -> None:
    """No control character of a path or type, which any user may choose, reaches the screen."""
    for document in all_documents(named(path)):
        printed = lines_of(document, long=True)
        assert printed
        for line in printed:
            assert line.isprintable(), document.SCHEMA
            line.encode("utf-8")


def test_a_path_is_printed_whole_and_unchanged() -> None:
    for path in ("/mnt/[bold]markup[/bold]", "/mnt/" + "long" * 200, "/mnt/größe 日本"):
        assert path in listing([(replace(SERVED, path=path), STOCK, False)]).as_text()


def test_no_mount() -> None:
    assert listing([]).as_text() == "no FUSE mount\n"


def test_absent_values_are_dashes() -> None:
    lines = lines_of(listing([(SERVED, STOCK, False), (SERVED, {"max_ratio": 7}, True)]))
    assert lines[0].split() == ["mount", "type", "bdi", *sorted(STOCK), "tuned"]
    assert lines[1].split()[3:] == ["9", "12", "1", "128", "1", "no"]
    assert lines[2].split()[3:] == ["-", "-", "7", "-", "-", "yes"]


def test_verify_tells_each_difference_and_who_made_it() -> None:
    document = verify_documents(SERVED)[1]
    assert document.differences == 1  # what policy forbids, or is absent, is none
    assert document.problems == ["no journal of /mnt"]
    heading, row, refused, absent, count = lines_of(document)
    assert " ".join(heading.split()) == "mount knob expected actual changed by expected from"
    assert row.split()[:5] == ["/mnt", "congestion_threshold", "8", "9", "nobody"]
    assert row.endswith("/etc/mnt/saved.json")
    assert refused == "/mnt: max_ratio is not set: policy of /mnt"
    assert absent == "/mnt: strict_limit is not set: it is not there"
    assert count == "1 as kept, 1 different"


@pytest.mark.parametrize(
    ("value", "set_by", "last", "told"),
    [
        (1, "stock", None, "nobody"),
        (3, "other", None, "somebody else"),
        (7, "fusetune", 7, "fusetune (set)"),
        (1, "stock", 7, "somebody else"),
        (3, "other", 7, "somebody else"),
        (3, None, None, "unknown"),
    ],
)
def test_who_changed_it(value: int, set_by: str, last: int | None, told: str) -> None:
    knob = next(knob for knob in LIVE if knob.name == "max_ratio")
    record = Record("max_ratio", 1, last, "set", 9.0) if last else None
    check = Check(KnobState(knob, value, set_by, None), Expected(5, Origin(Path("/f"))), record)
    row = lines_of(verification([Verified(SERVED, [check])]))[1]
    assert " ".join(row.split()) == f"/mnt max_ratio 5 {value} {told} /f"


def test_what_is_kept_is_told_by_file() -> None:
    texts = [lines_of(document) for document in kept_documents(SERVED)]
    assert texts[0] == ["/etc/mnt.toml: nothing -> max_ratio=5"]
    assert texts[2][0].endswith(" -> nothing")
    assert texts[2][2:] == ["dry run: nothing was written"]
    assert texts[3] == ["nothing is kept"]


def test_show_tells_the_line_that_counts() -> None:
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    printed = lines_of(shown(SERVED, states, None, expected(SERVED)))
    lines = {line.split()[0]: line for line in printed}
    assert lines["max_ratio"].endswith(" 7 (/etc/mnt/fusetune.toml:3)")
    assert lines["strict_limit"].endswith(" 0 (/etc/mnt/saved.json)")
    assert lines["max_background"].endswith(" -")


def test_doctor_tells_the_sum_of_dirty_memory() -> None:
    for bound, elsewhere in ((None, 0), (100, 2)):
        out = doctor_report(Diagnosis([], [], 40, bound, elsewhere)).as_text()
        assert "may keep 40 % of the host's dirty limit" in out
        assert ("at most 100 by configuration" in out) == (bound is not None)
        assert ("2 FUSE mounts are in other mount namespaces" in out) == (elsewhere > 0)


@pytest.mark.parametrize(
    ("figure", "unit", "shown"),
    [
        (0.4, "bytes_per_second", "0.4 B/s"),
        (999, "bytes_per_second", "999 B/s"),
        (1023, "bytes_per_second", "1023 B/s"),
        (1024, "bytes_per_second", "1 KiB/s"),
        (1536, "bytes_per_second", "1.5 KiB/s"),
        (1000 * 1024, "bytes_per_second", "1000 KiB/s"),
        (5 << 20, "bytes_per_second", "5 MiB/s"),
        (123456789, "bytes_per_second", "118 MiB/s"),
        (1 << 30, "bytes_per_second", "1 GiB/s"),
        (5 << 40, "bytes_per_second", "5120 GiB/s"),
        (1234.5, "operations_per_second", "1234 /s"),
        (0.2, "operations_per_second", "0 /s"),
    ],
)
def test_figures(figure: float, unit: str, shown: str) -> None:
    assert figure_text(figure, unit) == shown


@given(st.floats(1, 1e15))
def test_a_figure_reads_as_what_it_is(figure: float) -> None:
    number, unit = figure_text(figure, "bytes_per_second").split()
    scale = {"B/s": 1, "KiB/s": 1 << 10, "MiB/s": 1 << 20, "GiB/s": 1 << 30}[unit]
    assert float(number) * scale == pytest.approx(figure, rel=0.006)


def test_gain() -> None:
    assert ratio_text(1.234, [1.1, 1.4]) == "1.23 [1.10, 1.40]"


# Where the objects come from


def test_who_set_a_value(tree: Tree, mounted: Mount) -> None:
    from fusetune.changes.apply import set_knobs

    by_name = {knob.name: knob for knob in LIVE}
    set_knobs(tree.host, mounted, {by_name["max_ratio"]: 5, by_name["strict_limit"]: 0})
    tree.live(values={"max_ratio": 5, "strict_limit": 1, "read_ahead_kb": 64})
    journal = Journal(tree.host, mounted)
    found = {state.knob.name: state.set_by for state in knob_states(tree.host, mounted, journal)}
    assert found == {
        "max_ratio": "fusetune",
        "strict_limit": "stock",
        "read_ahead_kb": "other",
        "max_background": "stock",
        "congestion_threshold": "stock",
    }
    unknown = {state.set_by for state in knob_states(tree.host, mounted, None)}
    assert unknown == {None}
