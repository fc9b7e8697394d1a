# SPDX-License-Identifier: GPL-2.0-or-later
"""The line of each key in a configuration file is found, however it is written."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.toml import lines
from fusetune.toml.file import ConfigError, TomlFile
from fusetune.toml.lines import lines_of

_VALUES = st.sampled_from(
    [
        "1",
        "'x'",
        "[\n  1,\n\n  2, # ]\n]",
        '"""\n[[mount]]\na = 1\n# """',
        "'''\nb = [\n'''",
        "{ inner = [1, { deep = 2 }] }",
        "[[\n1], [2\n]]",
        '"# no comment" # [mount]',
        "1979-05-27T07:32:00Z",
    ]
)
_BETWEEN = st.sampled_from(["", "\n", "# comment [\n", "  \n# a = 1\n\n"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["[[mount]]", "[ 'table' ]", "  [[ mount ]] # [x]"]),
            st.lists(st.tuples(_VALUES, _BETWEEN), max_size=4),
            _BETWEEN,
        ),
        max_size=6,
    )
)
def test_every_key_is_found_where_it_was_put(
    tables: list[tuple[str, list[tuple[str, str]], str]],
) -> None:
    text = ""
    wanted: dict[tuple[str | int, ...], int] = {}
    mounts = 0
    for number, (heading, values, between) in enumerate(tables):
        line = text.count("\n") + 1
        where: tuple[str | int, ...] = (f"table{number}",)
        if "mount" in heading:
            where = ("mount", mounts)
            mounts += 1
        text += heading.replace("'table'", f"table{number}") + "\n" + between
        wanted[where] = line
        for position, (value, after) in enumerate(values):
            wanted[(*where, f"key{position}")] = text.count("\n") + 1
            text += f"key{position} = {value}\n{after}"
    found = lines_of(text)
    assert {place: found.get(place) for place in wanted} == wanted


def test_long_values_take_no_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file to import may be anybody's. Only lines that may end a value are tried."""
    monkeypatch.setattr(lines, "_MOST_PARSED", 10_000)
    names = "".join(f'  "{number}",\n' for number in range(2000))
    assert lines_of(f"a = [\n{names}]\nb = 1\n")["b",] == 2003
    nested = "  [1],\n" * 2000
    with pytest.raises(tomllib.TOMLDecodeError, match="at line 1 occupies too many lines"):
        lines_of(f"a = [\n{nested}]\n")
    file = TomlFile(Path("x.toml"), f"a = [\n{nested}]\n")
    with pytest.raises(ConfigError, match=r"x\.toml: the value at line 1"):
        file.origin(("a",))
