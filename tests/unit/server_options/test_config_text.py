# SPDX-License-Identifier: GPL-2.0-or-later
"""Settings in servers' configuration files in each format, and texts with other values.

davfs2 as described in davfs2.conf(5), cvmfs and Ceph as their own parsers read.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.recipes.config_text import FORMATS, ConfigText, Setting

POINT = ("", "/m")
CLIENT = ("", "global", "client")
GENERAL = ("",)


def set_to(
    form: str, text: str, value: str | None, sections: Sequence[str]
) -> tuple[str, list[Setting]] | None:
    """Return the text with another value of a_b and the changes; None if it cannot be changed."""
    now = ConfigText(text, form)
    changes = now.changes("a_b", value, sections)
    if changes is None:
        return None
    for one in changes:
        now = now.changed(one)
    return str(now), changes


def back(form: str, text: str, changes: Sequence[Setting]) -> str | None:
    now: ConfigText | None = ConfigText(text, form)
    for one in reversed(changes):
        now = now and now.without(one)
    return None if now is None else str(now)


@pytest.mark.parametrize(
    ("form", "sections", "before", "after"),
    [
        ("space", POINT, "", "[/m]\na_b 7\n"),
        ("space", POINT, "x 1", "x 1\n[/m]\na_b 7"),
        ("space", POINT, "x 1\r\n", "x 1\r\n[/m]\r\na_b 7\r\n"),
        ("space", POINT, "a_b 1\n[/n]\na_b 2\n", "a_b 1\n[/n]\na_b 2\n[/m]\na_b 7\n"),
        ("space", POINT, '[/m/]\n a_b\t"1" # one\n', "[/m/]\n a_b\t7 # one\n"),
        ("space", POINT, "[/m]\nx 1\n\n# n\n[/n]\n", "[/m]\nx 1\na_b 7\n\n# n\n[/n]\n"),
        ("space", ("", 'a "b'), "", '"[a \\"b]"\na_b 7\n'),
        ("space", ("", "/a b"), '"[/a b]"\na_b 1\n', '"[/a b]"\na_b 7\n'),
        ("space", ("", "/a b"), "[/a\\ b]\na_b 1\n", "[/a\\ b]\na_b 7\n"),
        ("shell", GENERAL, "", "a_b=7\n"),
        ("shell", GENERAL, "a_b=1\nexport a_b='2' # two\n", "a_b=1\nexport a_b=7 # two\n"),
        ("shell", GENERAL, "if x; then\n  c=1\nfi\n#a_b=1", "if x; then\n  c=1\nfi\n#a_b=1\na_b=7"),
        ("shell", GENERAL, 'a_b="1"\r\n', "a_b=7\r\n"),
        ("ini", CLIENT, "[global]\na b = 1\n", "[global]\na b = 1\n[client]\na_b = 7\n"),
        ("ini", CLIENT, '[client]\n\ta  b="1" ; x\n[osd]\n', "[client]\n\ta  b=7 ; x\n[osd]\n"),
        ("ini", CLIENT, "[client]\n; a_b = 1\n[osd]\n", "[client]\na_b = 7\n; a_b = 1\n[osd]\n"),
        ("ini", CLIENT, "[client]\na_b = 1 2\n", "[client]\na_b = 7\n"),
        ("ini", CLIENT, "[client]\na-b = 1\n", "[client]\na-b = 1\na_b = 7\n"),
    ],
)
def test_a_value(form: str, sections: Sequence[str], before: str, after: str) -> None:
    done = set_to(form, before, "7", sections)
    assert done is not None
    assert done[0] == after
    assert back(form, *done) == before


@pytest.mark.parametrize(
    ("form", "sections", "before", "after"),
    [
        (
            *("space", POINT, "a_b 1 # x\r\n[/n]\r\na_b 2\r\n[/m]\r\n a_b 3"),
            "# fusetune: a_b 1 # x\r\n[/n]\r\na_b 2\r\n[/m]\r\n# fusetune:  a_b 3",
        ),
        ("shell", GENERAL, "# a_b=1\na_b=1\n", "# a_b=1\n# fusetune: a_b=1\n"),
        ("ini", CLIENT, "[osd]\na_b = 1\n", "[osd]\na_b = 1\n"),
    ],
)
def test_a_line_that_is_taken_out(
    form: str, sections: Sequence[str], before: str, after: str
) -> None:
    done = set_to(form, before, None, sections)
    assert done is not None
    assert done[0] == after
    assert back(form, *done) == before


@pytest.mark.parametrize(
    ("form", "sections", "text"),
    [
        ("space", POINT, "[/m]\na_b 1 2\n"),
        ("space", ("", "/m\nx 1"), ""),
        ("shell", GENERAL, "a_b=$(nproc)\n"),
        ("shell", GENERAL, "a_b=1; c=2\n"),
        ("shell", GENERAL, "c=1 \\"),
        ("ini", CLIENT, "[client]\na_b = 1 \\\n2\n"),
        ("ini", CLIENT, "[client]\nc = 1 \\\n[osd]\n[mon]\n"),
    ],
)
def test_lines_that_are_not_changed(form: str, sections: Sequence[str], text: str) -> None:
    assert set_to(form, text, "7", sections) is None


def test_a_value_that_would_need_quotes_is_not_written() -> None:
    assert set_to("shell", "", "1;reboot", GENERAL) is None


def test_a_line_inside_another_is_no_setting() -> None:
    text = ConfigText("[client]\nx = 1 \\\na_b = 2\n", "ini")
    assert text.of("a_b", CLIENT) == []


@pytest.mark.parametrize(
    ("edited", "left"),
    [
        ("[/m]\na_b 9\n", None),  # somebody's own value
        ("[/m]\nc 1\na_b 7\n", "[/m]\nc 1\n"),
        ("[/m]\n", "[/m]\n"),
        ("", ""),
    ],
)
def test_what_somebody_edited_since(edited: str, left: str | None) -> None:
    done = set_to("space", "", "7", POINT)
    assert done is not None
    assert back("space", edited, done[1]) == left


def test_a_line_that_was_taken_out_and_is_gone_stays_gone() -> None:
    done = set_to("shell", "a_b=1\n", None, GENERAL)
    assert done is not None
    assert back("shell", "", done[1]) is None
    assert back("shell", "a_b=2\n", done[1]) == "a_b=2\n"


_LINE = st.sampled_from(
    [
        *("a_b 1", "a_b=1", "a_b = 1", " a_b 'x'", 'a_b "1 2" # x', "export a_b=2", "a-b = 3"),
        *("[/m]", "[/n]", '"[/m]"', "[client]", "[global]", "[client.a]", "# a_b 1", "; a_b = 1"),
        *("", " ", "x 1", "x=1", "x = 1 \\", "# fusetune: x 1", "[/m"),
    ]
) | st.text(max_size=12)
_SECTIONS = {"space": POINT, "shell": GENERAL, "ini": CLIENT}


@given(
    st.lists(_LINE, max_size=8),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from(["7", None]),
)
def test_any_text_comes_back(lines: list[str], end: str, form: str, value: str | None) -> None:
    text = end.join(lines)
    done = set_to(form, text, value, _SECTIONS[form])
    if done is None:
        return
    after, changes = done
    assert back(form, after, changes) == text
    found = ConfigText(after, form).of("a_b", _SECTIONS[form])
    in_last = [one.value for one in found if one.section == _SECTIONS[form][-1]]
    assert (in_last[-1:] == ["7"]) if value else (found == [])
