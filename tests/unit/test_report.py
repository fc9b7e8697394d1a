# SPDX-License-Identifier: GPL-2.0-or-later
"""Objects are as their schemas say, and text is fit for a terminal whatever a mount is called."""

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.apply import Change
from fusetune.auto import Candidates, Outcome
from fusetune.doctor import Diagnosis, Feature, Finding
from fusetune.knobs import LIVE, SYSTEM
from fusetune.measure import Measurement, summarise
from fusetune.mounts import Mount
from fusetune.report import objects, text
from fusetune.report.text import figure_text, gain_text
from fusetune.search import Choice, Interval, Trial
from fusetune.status import KnobState, knob_states
from fusetune.store import Journal, Saved
from fusetune.workloads import WORKLOADS
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
COMMANDS = ["auto", "auto-preview", "bench", "doctor", "list", "reset", "set", "show"]

odd_paths = pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))


def named(path: str) -> Mount:
    """A mount whose every name is odd."""
    return replace(SERVED, path=path, source=path, fstype="fuse." + path, also_at=(path + "2",))


def documents(mount: Mount) -> list[dict[str, Any]]:
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
        objects.list_object([]),
        objects.list_object([(mount, STOCK), (bare, {}), (mount, {"max_ratio": 20})]),
        objects.list_object([(replace(mount, fstype="fuse.lxcfs"), STOCK)]),
        objects.show_object(
            mount, states, Saved(mount.path, mount.fstype, mount.source, {"max_ratio": 5}, 1.5, 9.0)
        ),
        objects.show_object(bare, gone, None),
        objects.show_object(None, host, None),
        objects.changes_object("set", [change, on_host], dry_run=False),
        objects.changes_object("set", [], dry_run=True),
        objects.changes_object("reset", [change, on_host], dry_run=True),
        objects.auto_object(
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
        objects.auto_object(Outcome(bare, [mixed], STOCK, STOCK, same)),
        objects.preview_object(
            mount, [mixed], [Candidates("max_ratio", "/sys/class/bdi/0:40/max_ratio", 1, (1, 2))]
        ),
        objects.preview_object(bare, [mixed], []),
        objects.bench_object(
            [
                Measurement(mount.path, mount, figures, 1.5, 1 << 20, 3),
                Measurement("tmpfs itself", None, figures),
                Measurement("mirrorfs, passthrough", None, [], absent="this kernel lacks it"),
            ]
        ),
        objects.doctor_object(Diagnosis([], [])) | {"features": [_feature()]},
        objects.doctor_object(
            Diagnosis(
                [Feature(LIVE[0], None, "not there"), Feature(SYSTEM[0], 5, None)],
                [Finding("fio", "fio is absent", "apt install fio"), _finding(mount)],
            )
        ),
    ]


def _feature() -> dict[str, Any]:
    (feature,) = objects.doctor_object(Diagnosis([Feature(LIVE[0], 5, None)], []))["features"]
    document: dict[str, Any] = feature
    return document


def _finding(mount: Mount) -> Finding:
    return Finding("stock", "it has the kernel's default values", "fusetune auto it", mount)


def show(document: dict[str, Any]) -> None:
    """Print a document as its command would."""
    name = document["schema"].removeprefix("fusetune.").removesuffix("/1")
    if name == "show":
        text.print_show(document, long=True)
    elif name in ("set", "reset"):
        text.print_changes(document)
    elif name == "auto-preview":
        text.print_preview(document)
    else:
        getattr(text, f"print_{name}")(document)


# Objects and their schemas


@odd_paths
def test_objects_are_as_their_schemas_say(path: str) -> None:
    seen = set()
    for document in documents(named(path)):
        again = json.loads(json.dumps(document))
        assert again == document
        schemas.check(again)
        seen.add(document["schema"])
    assert seen == {f"fusetune.{command}/1" for command in COMMANDS}


def test_there_is_a_schema_for_every_object() -> None:
    assert sorted(file.stem for file in schemas.FOLDER.glob("*.json")) == COMMANDS


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
    assert set(knobs) == set(STOCK)
    for knob in LIVE:
        assert knobs[knob.name]["minimum"] == knob.low
        # max_background shows as UINT_MAX once the connection is aborted.
        top = 0xFFFFFFFF if knob.name == "max_background" else knob.high
        assert knobs[knob.name].get("maximum") == top


def test_schemas_are_strict() -> None:
    """Every field left out, added, or of another type is noticed, in every object."""
    for document in documents(SERVED):
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
    for document in documents(named(path)):
        show(document)
        printed = capsys.readouterr().out
        assert printed
        assert all(char == "\n" or char.isprintable() for char in printed), document["schema"]
        printed.encode("utf-8")


def test_a_path_is_printed_whole_and_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("/mnt/[bold]markup[/bold]", "/mnt/" + "long" * 200, "/mnt/größe 日本"):
        text.print_list(objects.list_object([(replace(SERVED, path=path), STOCK)]))
        assert path in capsys.readouterr().out.replace("\n", "")


def test_no_mount(capsys: pytest.CaptureFixture[str]) -> None:
    text.print_list(objects.list_object([]))
    assert capsys.readouterr().out == "no FUSE mount\n"


def test_absent_values_are_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    text.print_list(objects.list_object([(SERVED, STOCK), (SERVED, {"max_ratio": 7})]))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["mount", "type", "bdi", *sorted(STOCK), "tuned"]
    assert lines[1].split()[3:] == ["9", "12", "1", "128", "1", "no"]
    assert lines[2].split()[3:] == ["-", "-", "7", "-", "-", "yes"]


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
    from fusetune.apply import set_knobs

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
