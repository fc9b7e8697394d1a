# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/benchmarks.md has the current text of each table's benchmark."""

import pytest

from tests.bench.__main__ import SECTIONS, command
from tests.bench.page import HEAD, PAGE, heading, read


def test_the_page_has_the_head_and_all_sections_in_their_order() -> None:
    assert PAGE.read_text(encoding="utf-8").startswith(HEAD)
    assert list(read()) == [section.title for section in SECTIONS.values()]


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_was_made_by_the_bench_as_it_is(name: str) -> None:
    section = SECTIONS[name]
    paragraphs = read()[section.title].strip().split("\n\n")
    assert paragraphs[0].startswith(command(name))
    assert paragraphs[1] == section.about
    for cells in section.headings:
        assert any(paragraph.startswith(heading(cells)) for paragraph in paragraphs)
