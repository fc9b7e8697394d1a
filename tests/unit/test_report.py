# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects are as their schemas say, and text is fit for a terminal whatever a mount is called."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from fusetune.desired.drift import Check, Verified
from fusetune.desired.persist import Remembered
from fusetune.desired.resolve import Expected
from fusetune.desired.results import Saved
from fusetune.desired.sections import Origin
from fusetune.kmod.kinds import KINDS
from fusetune.kmod.signing import Signing
from fusetune.kmod.state import Built, Loaded, Report, State
from fusetune.knobs import LIVE, SYSTEM
from fusetune.libfuse.switch import FileChange
from fusetune.libfuse.users import Server
from fusetune.mounts.mount import Mount
from fusetune.report import documents, text
from fusetune.report.doctor import Diagnosis, Feature, Finding
from fusetune.report.inventory import InventoriedMount, Inventory
from fusetune.report.text import figure_text, gain_text
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
COMMANDS = [
    "apply",
    "auto",
    "auto-preview",
    "bench",
    "bench-suite",
    "doctor",
    "forget",
    "lib-change",
    "lib-status",
    "list",
    "module",
    "report",
    "reset",
    "save",
    "set",
    "show",
    "verify",
]

odd_paths = pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))


def named(path: str) -> Mount:
    """A mount whose every name is odd."""
    return replace(SERVED, path=path, source=path, fstype="fuse." + path, also_at=(path + "2",))


def module_documents(mount: Mount) -> list[dict[str, Any]]:
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
        documents.module_object(Report("6.12.94", signing, [full], [("dkms", "install")])),
        documents.module_object(
            Report("6.12.94", Signing(None, None, False), [bare]), dry_run=True
        ),
    ]


def _work_result(odd: str) -> PaperResult:
    work = PAPERS["singh-atomic"]
    shown = Row(work.ratios[0], Interval(1.2, 1.1, 1.3), None)
    return PaperResult(work, [shown, Row(work.ratios[1], None, odd)], 1.5, 1 << 20, 3)


def all_documents(mount: Mount) -> list[dict[str, Any]]:
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
        documents.list_object([]),
        documents.list_object(
            [(mount, STOCK, False), (bare, {}, False), (mount, {"max_ratio": 20}, True)]
        ),
        documents.list_object([(replace(mount, fstype="fuse.lxcfs"), STOCK, False)]),
        documents.show_object(mount, states, saved_by(mount, "auto"), expected(mount)),
        documents.show_object(mount, states, saved_by(mount, "save"), {}),
        documents.show_object(bare, gone, None, {}),
        documents.show_object(None, host, None, {}),
        documents.changes_object("set", [change, on_host], dry_run=False),
        documents.changes_object("set", [], dry_run=True),
        documents.changes_object("reset", [change, on_host], dry_run=True),
        documents.changes_object("apply", [change], dry_run=False),
        documents.changes_object("apply", [], dry_run=True),
        *kept_documents(mount),
        *verify_documents(mount),
        *report_documents(mount),
        *lib_documents(mount),
        documents.auto_object(
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
        documents.auto_object(Outcome(bare, [mixed], STOCK, STOCK, same)),
        documents.preview_object(
            mount, [mixed], [Candidates("max_ratio", "/sys/class/bdi/0:40/max_ratio", 1, (1, 2))]
        ),
        documents.preview_object(bare, [mixed], []),
        documents.bench_object(
            [
                Measurement(mount.path, mount, figures, 1.5, 1 << 20, 3),
                Measurement("tmpfs itself", None, figures),
                Measurement("mirrorfs, passthrough", None, [], absent="this kernel lacks it"),
            ]
        ),
        documents.suite_object([_work_result(mount.path)]),
        documents.doctor_object(Diagnosis([Feature(LIVE[0], 5, None)], [], 0, None, 0)),
        documents.doctor_object(
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


def kept_documents(mount: Mount) -> list[dict[str, Any]]:
    """What ``save`` and ``forget`` say."""
    file = Path(f"/etc{mount.path}.toml")
    return [
        documents.kept_object("save", [Remembered(file, None, {"max_ratio": 5})], dry_run=False),
        documents.kept_object("save", [Remembered(file, STOCK, STOCK)], dry_run=True),
        documents.kept_object("forget", [Remembered(file, STOCK, None)] * 2, dry_run=True),
        documents.kept_object("forget", [], dry_run=False),
    ]


def verify_documents(mount: Mount) -> list[dict[str, Any]]:
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
        documents.verify_object([]),
        documents.verify_object(
            [
                Verified(mount, checks),
                Verified(mount, left_alone=f"the file of {mount.path} says so"),
                Verified(replace(mount, bdi=None), problem=f"no journal of {mount.path}"),
            ]
        ),
    ]


def lib_documents(mount: Mount) -> list[dict[str, Any]]:
    """What ``lib`` says: a file written, wanted, removed; and servers of every kind."""
    file = Path(f"/etc{mount.path}.conf")
    kinds = {"tuned": "/a.so", "stock": "/b.so", "libfuse2": "/c.so", "none": None}
    found = [Server(9, mount.path, library, uses) for uses, library in kinds.items()]
    return [
        documents.lib_change_object(FileChange(file, None, "text\n", "restart"), dry_run=True),
        documents.lib_change_object(FileChange(file, "text\n", "text\n", "restart"), dry_run=False),
        documents.lib_change_object(FileChange(file, "text\n", None, "restart"), dry_run=False),
        documents.lib_status_object([Path(mount.path)], found),
        documents.lib_status_object([], []),
    ]


def report_documents(mount: Mount) -> list[dict[str, Any]]:
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
        documents.report_object(host),
        documents.report_object(replace(host, mounts=[one, bare], problems=[problem])),
    ]


def _finding(mount: Mount) -> Finding:
    return Finding("stock", "it has the kernel's default values", "fusetune auto it", mount)


def show(document: dict[str, Any]) -> None:
    """Print a document as its command would."""
    name = document["schema"].removeprefix("fusetune.").removesuffix("/1")
    if name == "show":
        text.print_show(document, long=True)
    elif name in ("set", "reset", "apply"):
        text.print_changes(document)
    elif name in ("save", "forget"):
        text.print_kept(document)
    elif name == "auto-preview":
        text.print_preview(document)
    else:
        getattr(text, f"print_{name.replace('-', '_')}")(document)


# Objects and their schemas


@odd_paths
def test_objects_are_as_their_schemas_say(path: str) -> None:
    seen = set()
    for document in all_documents(named(path)):
        again = json.loads(json.dumps(document))
        assert again == document
        schemas.check(again)
        seen.add(document["schema"])
    assert seen == {f"fusetune.{command}/1" for command in COMMANDS}


def test_there_is_a_schema_for_every_object() -> None:
    assert sorted(file.stem for file in schemas.DIRECTORY.glob("*.json")) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
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


@pytest.mark.parametrize("command", COMMANDS)
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
        assert field.get("description") or kinds == "number", field


@pytest.mark.parametrize("command", ["list", "auto"])
def test_the_schemas_name_every_live_knob(command: str) -> None:
    document = schemas.schema(command)
    properties = document["properties"]
    knobs = (
        properties["mounts"]["items"]["properties"]["knobs"]
        if command == "list"
        else properties["before"]
    )["properties"]
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
            for spoiled in change(document):
                with pytest.raises((jsonschema.ValidationError, KeyError, AttributeError)):
                    schemas.check(spoiled)


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


@odd_paths
def test_text_is_fit_for_a_terminal(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No control character of a path or type, which any user may choose, reaches the screen."""
    for document in all_documents(named(path)):
        show(document)
        printed = capsys.readouterr().out
        assert printed
        assert all(char == "\n" or char.isprintable() for char in printed), document["schema"]
        printed.encode("utf-8")


def test_a_path_is_printed_whole_and_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("/mnt/[bold]markup[/bold]", "/mnt/" + "long" * 200, "/mnt/größe 日本"):
        text.print_list(documents.list_object([(replace(SERVED, path=path), STOCK, False)]))
        assert path in capsys.readouterr().out.replace("\n", "")


def test_no_mount(capsys: pytest.CaptureFixture[str]) -> None:
    text.print_list(documents.list_object([]))
    assert capsys.readouterr().out == "no FUSE mount\n"


def test_absent_values_are_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    text.print_list(
        documents.list_object([(SERVED, STOCK, False), (SERVED, {"max_ratio": 7}, True)])
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mount", "type", "bdi", *sorted(STOCK), "tuned"]
    assert lines[1].split()[3:] == ["9", "12", "1", "128", "1", "no"]
    assert lines[2].split()[3:] == ["-", "-", "7", "-", "-", "yes"]


def test_verify_tells_each_difference_and_who_made_it(capsys: pytest.CaptureFixture[str]) -> None:
    document = verify_documents(SERVED)[1]
    assert document["differences"] == 1  # what policy forbids, or is absent, is none
    assert document["problems"] == ["no journal of /mnt"]
    text.print_verify(document)
    heading, row, refused, absent, count = capsys.readouterr().out.splitlines()
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
        (3, None, None, "cannot be told"),
    ],
)
def test_who_changed_it(
    capsys: pytest.CaptureFixture[str], value: int, set_by: str, last: int | None, told: str
) -> None:
    knob = next(knob for knob in LIVE if knob.name == "max_ratio")
    record = Record("max_ratio", 1, last, "set", 9.0) if last else None
    check = Check(KnobState(knob, value, set_by, None), Expected(5, Origin(Path("/f"))), record)
    text.print_verify(documents.verify_object([Verified(SERVED, [check])]))
    row = capsys.readouterr().out.splitlines()[1]
    assert " ".join(row.split()) == f"/mnt max_ratio 5 {value} {told} /f"


def test_what_is_kept_is_told_by_file(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for document in kept_documents(SERVED):
        text.print_kept(document)
        shown.append(capsys.readouterr().out.splitlines())
    assert shown[0] == ["/etc/mnt.toml: nothing -> max_ratio=5"]
    assert shown[2][0].endswith(" -> nothing")
    assert shown[2][2:] == ["dry run: nothing was written"]
    assert shown[3] == ["nothing is kept"]


def test_show_tells_the_line_that_counts(capsys: pytest.CaptureFixture[str]) -> None:
    states = [KnobState(knob, 1, "other", None) for knob in LIVE]
    text.print_show(documents.show_object(SERVED, states, None, expected(SERVED)), long=False)
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["max_ratio"].endswith(" 7 (/etc/mnt/fusetune.toml:3)")
    assert lines["strict_limit"].endswith(" 0 (/etc/mnt/saved.json)")
    assert lines["max_background"].endswith(" -")


def test_doctor_tells_the_sum_of_dirty_memory(capsys: pytest.CaptureFixture[str]) -> None:
    for bound, elsewhere in ((None, 0), (100, 2)):
        text.print_doctor(documents.doctor_object(Diagnosis([], [], 40, bound, elsewhere)))
        out = capsys.readouterr().out
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
    assert gain_text({"ratio": 1.234, "ci95": [1.1, 1.4]}) == "1.23 [1.10, 1.40]"


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
