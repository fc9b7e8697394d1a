# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as Markdown: a parser sees the same structure with any name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from fusetune.report.documents.diagnosis import ShownFinding
from fusetune.report.documents.inventory import HostReport
from fusetune.report.html import page
from fusetune.report.markdown import code, markdown
from fusetune.text import printable
from tests.unit.sample_documents import SERVED, named, report_documents
from tests.unit.test_html import HOSTILE

#: As in issue trackers: with tables and with HTML.
PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
NAMES = [
    *HOSTILE,
    "/mnt/a|b|c",
    "/mnt/a\\|b\\",
    "/mnt/`code` ``` \\`",
    "/mnt/\n# heading\n\n- item\n| --- |",
    "/mnt/*a* _b_ ~~c~~ [d](https://e) ![f](g) <h>",
    "/mnt/@someone #1 https://example.org www.example.org",
    "/mnt/ ",
    "/mnt/&#124;&lt;",
]


def made(path: str = "/mnt") -> HostReport:
    report = report_documents(named(path) if path != "/mnt" else SERVED)[1]
    assert isinstance(report, HostReport)
    found = ShownFinding("stock", path, f"{path} has defaults", f"fusetune auto {path}")
    return replace(report, findings=[*report.findings, found])


def tokens(text: str) -> list[Token]:
    """What a parser sees, in order, with what stands in a line."""
    return [each for one in PARSER.parse(text) for each in (one, *(one.children or ()))]


def shape(path: str) -> list[tuple[str, str]]:
    return [(one.type, one.tag) for one in tokens(markdown(made(path)))]


@pytest.mark.parametrize("path", NAMES, ids=range(len(NAMES)))
def test_a_hostile_name_is_inert_and_visible(path: str) -> None:
    assert shape(path) == shape("/mnt/a")
    text = markdown(made(path))
    assert text.replace("\n", "").isprintable()
    text.encode("utf-8")
    shown = printable(path).replace("`", "\\x60").replace("|", "\\x7c")
    codes = [one.content for one in tokens(text) if one.type == "code_inline"]
    assert shown in codes
    # No part of a name is outside of code.
    texts = [one.content for one in tokens(text) if one.type in ("text", "html_inline")]
    assert not [one for one in texts if "mnt" in one or "script" in one]


@example(text=" a ", in_table=False)
@example(text="  ", in_table=False)
@given(st.text(st.characters(blacklist_categories=("Cs",)), max_size=12), st.booleans())
def test_code_is_one_piece_of_code(text: str, in_table: bool) -> None:
    line = f"| a | b |\n| --- | --- |\n| {code(text)} | x |\n" if in_table else f"# {code(text)}\n"
    found = [one for one in tokens(line) if one.type not in ("text", "softbreak")]
    (one,) = (each for each in found if each.type == "code_inline")
    assert one.content == (printable(text).replace("`", "\\x60").replace("|", "\\x7c") or "-")
    rest = [each.content for each in tokens(line) if each.type == "text" and each.content]
    assert rest == (["a", "b", "x"] if in_table else [])


def test_it_has_the_facts_in_short() -> None:
    text = markdown(made())
    for line in (
        "- last auto: 1.50 [1.20, 1.90] times the speed before",
        "| `max_ratio` | 1 | 7 | 1 | other | **differs** `policy of /mnt` |",
        "| `read_ahead_kb` | 128 | 1 | 1 | other | **differs** |",
        "| `strict_limit` | 1 | - | - | - | `it is not there` |",
        "- desired by `/etc/mnt/fusetune.toml:3`: `max_ratio`",
        "- left alone: `the file of /mnt says so`",
        "- problem: `no journal of /mnt`",
        "8 trials in 3 blocks are on record.",
        "  `max_ratio 1 -> 20`",
        "- `/mnt has defaults`; remedy: `fusetune auto /mnt`",
    ):
        assert f"\n{line}\n" in text, line
    (curve,) = (line for line in text.splitlines() if line.startswith("| `max_ratio` | 1 | **5**"))
    assert " | 1: 1; 5: 1.50 [" in curve


def test_a_finding_on_many_mounts_is_short() -> None:
    report = made()
    findings = [
        ShownFinding("stock", f"/mnt/{i}", f"/mnt/{i} is stock", f"fusetune auto /mnt/{i}")
        for i in range(25)
    ]
    text = markdown(replace(report, findings=findings))
    assert "- `M is stock`; remedy: `fusetune auto M`\n  M: `/mnt/0`, `/mnt/1`, " in text
    assert "`/mnt/9` and 15 more\n" in text
    assert "## Findings\n\nNone.\n" in markdown(replace(report, findings=[]))


def test_no_report_for_people_shows_a_password() -> None:
    """JSON has the source as mountinfo has it."""
    report = made()
    mounts = [replace(one, source="ftp://bob:hunter2@ftp.example/") for one in report.mounts]
    report = replace(report, mounts=mounts)
    for text in (markdown(report), page(report), "".join(map(str, mounts[0].parts()))):
        assert "ftp.example" in text
        assert "hunter2" not in text
    assert "hunter2" in json.dumps(report.as_object())
