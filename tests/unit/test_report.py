# SPDX-License-Identifier: GPL-2.0-or-later
"""Text is safe for a terminal with any name of a mount, and agrees with the objects."""

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.changes.journal import Journal, Record
from fusetune.changes.state import KnobState, knob_states
from fusetune.cli import list_
from fusetune.desired.drift import Verified
from fusetune.desired.inspect import Check
from fusetune.desired.resolve import Expected
from fusetune.knobs import LIVE
from fusetune.mounts.mount import Mount
from fusetune.report.doctor import Diagnosis
from fusetune.report.documents.base import Document
from fusetune.report.documents.diagnosis import doctor_report
from fusetune.report.documents.listing import listing
from fusetune.report.documents.show import shown
from fusetune.report.documents.verify import verification
from fusetune.report.text import figure_text, ratio_text
from fusetune.toml.file import Origin
from tests import schemas
from tests.unit.conftest import STOCK, Tree
from tests.unit.sample_documents import (
    SERVED,
    all_documents,
    expected,
    kept_documents,
    named,
    odd_paths,
    verify_documents,
)
from tests.unit.sample_imports import import_documents

# list


def test_what_the_configuration_leaves_alone_is_listed_so(
    tree: Tree, mounted: Mount, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the configuration is invalid, what is left alone by default."""
    tree.mount("/var/lib/lxcfs", device="0:41", fstype="fuse.lxcfs")
    file = tree.root / "etc/fusetune.toml"
    for text, reason in (
        ("[[mount]]\npath = '/mnt/one'\nleave_alone = true\n", f"{file}:3 sets leave_alone"),
        ("[[mount]]\npath = '/mnt/one'\n", None),
        ("[[mount]]\npath = 1\n", None),
    ):
        tree.write("etc/fusetune.toml", text)
        list_.command.main(["--json"], prog_name="list", obj=tree.host, standalone_mode=False)
        said = capsys.readouterr()
        one, lxcfs = schemas.validate(json.loads(said.out))["mounts"]
        assert (one["path"], one["excluded_reason"]) == ("/mnt/one", reason)
        assert lxcfs["excluded_reason"] == "lxcfs shows container limits, not files"
        assert (str(file) in said.err) == (text.endswith("= 1\n"))


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
            # A line of a diff keeps the file's tabs.
            rest = line.replace("\t", "") if line[:1] in "+- " else line
            assert rest.isprintable(), document.SCHEMA
            line.encode("utf-8")


def test_a_path_is_printed_whole_and_unchanged() -> None:
    for path in ("/mnt/[bold]markup[/bold]", "/mnt/" + "long" * 200, "/mnt/größe 日本"):
        assert path in listing([(replace(SERVED, path=path), STOCK, False, None)]).as_text()


def test_no_mount() -> None:
    assert listing([]).as_text() == "no FUSE mount\n"


def test_absent_values_are_dashes() -> None:
    lines = lines_of(
        listing([(SERVED, STOCK, False, None), (SERVED, {"max_ratio": 7}, True, None)])
    )
    assert lines[0].split() == ["mount", "type", "bdi", *sorted(STOCK), "tuned"]
    assert lines[1].split()[3:] == ["9", "12", "1", "128", "1", "no"]
    assert lines[2].split()[3:] == ["-", "-", "7", "-", "-", "yes"]


def test_verify_tells_each_difference_and_who_made_it() -> None:
    document = verify_documents(SERVED)[1]
    assert document.differences == 1  # values that policy forbids or that are absent do not count
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
        (3, "other", None, "another program"),
        (7, "fusetune", 7, "fusetune (set)"),
        (1, "stock", 7, "another program"),
        (3, "other", 7, "another program"),
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
    assert texts[3] == ["no values are kept"]
    assert texts[4] == [
        "/etc/mnt.toml: the kernel's defaults -> nothing",
        "/etc/mnt.toml: nothing -> nothing",
    ]


def test_what_became_of_each_section_is_told() -> None:
    texts = [lines_of(document) for document in import_documents(SERVED)]
    assert texts[0][-4:] == [
        f"[[mount]] path=/mnt source={SERVED.source}: imported",
        "[[mount]] for all mounts: unchanged",
        f"[[mount]] path=/mnt: kept (of {SERVED.source})",
        "/etc/mnt.toml: 1 section of the configuration",
    ]
    assert "1 section of the configuration not imported: use --admin to import them" in texts[1]


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
        assert "may use 40 % of the host's dirty limit" in out
        assert ("max_dirty_percent is 100" in out) == (bound is not None)
        assert ("left alone in other mount namespaces (containers): 2 FUSE mounts" in out) == (
            elsewhere > 0
        )


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
