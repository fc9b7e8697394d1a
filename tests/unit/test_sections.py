# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse reads /etc/fusetune/mounts.d itself, with the same results as fusetune.

Both parsers get the same texts: the C code is compiled with sanitizers and run on them.
"""

import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest
import tomlkit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusetune.desired.config import load
from fusetune.desired.host_limits import of_mount
from fusetune.desired.sections import LIBRARY_MATCHES, MATCHES
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from tests.unit.conftest import CHECKOUT, Tree

_TUNED = CHECKOUT / "libfuse" / "tuned"
_NAMES = st.lists(st.sampled_from(["a", "b", "ab", "é", "[", "ba"]), min_size=1, max_size=4)
_PATHS = _NAMES.map(lambda names: "/" + "/".join(names))


def _likes(name: str) -> st.SearchStrategy[str]:
    """Patterns for one name, most of which match it."""
    some = [name, name, "*", "?", "[ab]*", "[!z]*", "[[]", "**", "zz", f"{name[:1]}*", f"*{name}"]
    return st.sampled_from(some)


def _patterns(value: str) -> st.SearchStrategy[str]:
    """Patterns for a path, or a word, most of which match it."""
    parts = value.split("/")
    each = st.tuples(*(st.just(part) if not part else _likes(part) for part in parts))
    whole = st.sampled_from([value, "*", "**", "/**", f"{value}/**", "/*", f"*{parts[-1]}"])
    return st.one_of(each.map("/".join), whole, _likes(parts[-1])).filter(bool)


@st.composite
def _cases(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, object]]]:
    """A mount, and sections about it."""
    about = {key: draw(_PATHS) for key in ("path", "source", "server")}
    about["fstype"] = "".join(draw(_NAMES))
    optional: dict[str, st.SearchStrategy[object]] = {
        **{key: _patterns(value) for key, value in about.items()},
        "leave_alone": st.booleans(),
        "max_ratio": st.just(5),
    }
    section = st.fixed_dictionaries({}, optional=optional)
    return about, draw(st.lists(section, max_size=6))


class _Server(Daemons):
    """One program serves every mount."""

    def __init__(self, program: str) -> None:
        self._program = program

    def of(self, mount: Mount) -> Collection[str]:
        return [self._program]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library's reader, as a program."""
    if not shutil.which("gcc"):
        pytest.skip("missing: gcc")
    program = tmp_path_factory.mktemp("sections") / "sections"
    ours = (_TUNED / f"{name}.c" for name in ("options", "sections", "glob"))
    sources = [Path(__file__).with_name("sections.c"), *ours]
    flags = ["-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", f"-I{_TUNED}"]
    subprocess.run(["gcc", *flags, "-o", program, *sources], check=True, timeout=60)
    return program


def read(reader: Path, text: str, *about: str) -> str:
    """Return the library's result for a file."""
    done = subprocess.run(
        [reader, *about], input=text, capture_output=True, text=True, check=True, timeout=10
    )
    return done.stdout.rstrip("\n")


@pytest.mark.slow
@settings(
    max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(case=_cases())
def test_the_same_section_counts(
    reader: Path, tree: Tree, case: tuple[dict[str, str], list[dict[str, object]]]
) -> None:
    about, sections = case
    document = tomlkit.document()
    tables = tomlkit.aot()
    for number, section in enumerate(sections, 1):
        table = tomlkit.table()
        # A section that only leaves its mounts alone may have no options.
        more = {} if "max_ratio" in section else {"options": f"max_pages={number}"}
        table.update({**section, **more})
        tables.append(table)
    document["mount"] = tables
    text = tomlkit.dumps(document)
    tree.write("etc/mounts.d/x.toml", text if sections else "# none\n")
    mount = Mount(about["path"], about["fstype"], about["source"], "0:40")
    config, server = load(tree.host), _Server(about["server"])
    matching = list(config.matching(tree.host, mount, server))
    ranked = sorted(enumerate(matching), key=lambda pair: (pair[1].rank, pair[0]), reverse=True)
    alone = [one.leave_alone for _, one in ranked if one.leave_alone is not None]
    options = [one.options for _, one in ranked if one.options is not None]
    expected = "" if True in alone[:1] else "".join(options[:1])
    said = read(reader, text if sections else "# none\n", *about.values())
    assert said == f"0 {expected}"
    assert of_mount(tree.host, config, mount, server).pages == int(said.partition("=")[2] or 0)


_OPTIONS = "options = 'max_background=7'\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"[[mount]]\n{_OPTIONS}[[mount]]\npath = '/x'\nleave_alone = true\n", False),
        (f"[[mount]]\npath = '/x'\nleave_alone = true\n[[mount]]\n{_OPTIONS}", False),
        # Not the most specific section that says so.
        (
            f"[[mount]]\npath = '/x'\n{_OPTIONS}leave_alone = false\n"
            "[[mount]]\nserver = 'p'\nleave_alone = true\n",
            True,
        ),
        # Less specific than the options, but no other section says otherwise.
        (f"[[mount]]\npath = '/x'\n{_OPTIONS}[[mount]]\nleave_alone = true\n", False),
        (f"[[mount]]\n{_OPTIONS}[[mount]]\npath = '/y'\nleave_alone = true\n", True),
        # Of equally specific sections, the later one.
        (f"[[mount]]\n{_OPTIONS}leave_alone = true\n[[mount]]\nleave_alone = false\n", True),
    ],
)
def test_a_mount_that_is_left_alone_has_no_options(reader: Path, text: str, found: bool) -> None:
    expected = "max_background=7" if found else ""
    assert read(reader, text, "/x", "s", "/p", "fuse") == f"0 {expected}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[[mount]]\npath = '/x'\n\n[policy]\n", 4),
        ("[[mount]] # one\n\tpath='/x' # two\r\nmax_ratio = +5\nleave_alone = true\n", 0),
        ("[[mount]]\noptions = 'a'b\n", 2),
        ("[[mount]]\npath = '/x\n", 2),
        ('[[mount]]\npath = "/x\\u0041"\n', 2),
        ("[[mount]]\nallow = [1]\n", 2),
        ("[[mount]]\naccept = [] # none\naccept = ['a' , \"b]\",]\n", 0),
        ("[[mount]]\naccept = ['a'\n", 2),
        ("[[mount]]\naccept = ['a' 'b']\n", 2),
        ("[[mount]]\naccept = ['a', # ]\n", 2),
        ("[[mount]]\noptions = 1", 2),
        ("[[mount]]x", 1),
        (f"[[mount]]\noptions = '{'x' * 1024}'", 2),
        (f"[[mount]]\npath = '{'x' * 4096}'", 2),
        (f"[[mount]]\n{'x' * 64} = 1", 2),
        ("[[mount]]\nleave_alone = 'true'\n", 2),
        ("[[mount]]\nleave_alone = 1\n", 2),
        ("[[mount]]\nleave_alone = []\n", 2),
        ("[[mount]]\nleave_alone = true\nleave_alone = true\n", 3),
    ],
)
def test_lines_and_those_that_are_not_understood(reader: Path, text: str, line: int) -> None:
    assert int(read(reader, text, "/x", "s", "/p", "fuse").split(" ")[0]) == line


@pytest.mark.parametrize("key", sorted(set(MATCHES) - set(LIBRARY_MATCHES)))
def test_a_section_that_selects_by_more_is_about_no_mount_here(reader: Path, key: str) -> None:
    """Without that line it would match every mount."""
    text = f"[[mount]]\noptions = 'max_background=7'\n{key} = 'x'\n"
    assert read(reader, text, "/x", "s", "/p", "fuse") == "0 "
    assert read(reader, text.replace(key, "max_ratio"), "/x", "s", "/p", "fuse") != "0 "
