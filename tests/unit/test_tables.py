# SPDX-License-Identifier: GPL-2.0-or-later
"""Tables on a terminal have its width and every word of every cell."""

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fusetune.report.text import Table
from tests.unit.sample_documents import all_documents, named

_CELLS = st.text("ab 日é", max_size=6)
_HEADINGS = ("mount", "value", "set by", "to be kept")


def shown(table: Table, columns: int | None) -> list[str]:
    return click.unstyle(table.text(columns)).splitlines()


@given(st.lists(st.tuples(*[_CELLS] * 4), min_size=1, max_size=4), st.integers(60, 80))
def test_a_table_is_as_wide_as_the_terminal_and_has_each_word(
    rows: list[tuple[str, str, str, str]], columns: int
) -> None:
    table = Table(_HEADINGS, rows, "value")
    lines = shown(table, columns)
    assert max(map(cell_len, lines)) <= columns
    for i in range(4):
        words = [word for row in rows for word in row[i].split()]
        assert all(any(word in line for line in lines) for word in words)
    if max(map(cell_len, shown(table, None))) <= columns:
        assert lines == shown(table, None)


def test_cells_go_on_in_the_next_line() -> None:
    table = Table(("knob", "value", "set by"), [("max_ratio", "20", "an administrator")], "value")
    assert table.text(27) == (
        "\x1b[1mknob       value  set by\x1b[0m\n"
        "max_ratio     20  an\n"
        "                  administr\n"
        "                  ator\n"
    )
    assert shown(table, 35) == [
        "knob       value  set by",
        "max_ratio     20  an administrator",
    ]


def test_a_heading_of_two_lines_is_bold() -> None:
    lines = Table(("knob", "to be kept"), [("max_ratio", "20")]).text(17).splitlines()
    assert lines == [
        "\x1b[1mknob       to be\x1b[0m",
        "\x1b[1m           kept\x1b[0m",
        "max_ratio  20",
    ]


def test_where_there_is_no_room_a_row_is_a_paragraph() -> None:
    table = Table(("mount", "max_background", "tuned", ""), [("  /mnt", "12", "no", "odd")])
    assert shown(table, 24) == ["  /mnt", "    max_background 12,", "    tuned no, odd"]


@pytest.mark.parametrize("columns", [80, 50])
def test_every_table_of_a_document_fits(columns: int) -> None:
    tables = [
        part
        for document in all_documents(named("/srv/media"))
        for part in (*document.parts(), *document.explanations())
        if isinstance(part, Table) and document.SCHEMA != "top"
    ]
    assert len(tables) > 10
    for table in tables:
        assert max(map(cell_len, shown(table, columns))) <= columns
