# SPDX-License-Identifier: GPL-2.0-or-later
"""A server's command line is parsed and changed as the server's manual says."""

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.load import SHIPPED, read_recipe
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.spelling import Spellings, spellings_of
from tests.unit.conftest import Tree
from tests.unit.server_options.oursd import document, recipe_with, serve


def spellings(recipe: Recipe) -> list[Spellings]:
    return [spellings_of(recipe.server, option) for option in recipe.option]


SET = {"cache": "some", "writeback": "true"}


@pytest.mark.parametrize(
    ("way", "before", "settings", "after"),
    [
        ("mount", "oursd a /m", {}, "oursd -o cache=some,writeback a /m"),
        ("mount", "oursd a /m -o ro", {}, "oursd a /m -o ro,cache=some,writeback"),
        ("mount", "oursd a /m -oro -f", {}, "oursd a /m -oro,cache=some,writeback -f"),
        (
            "mount",
            "oursd -o cache=off,ro -o x,cache=all a /m",
            {"cache": "all"},
            "oursd -o cache=some,ro -o x,writeback a /m",
        ),
        ("mount", "oursd -o cache=some\\,x a /m", {"cache": "some\\,x"}, None),
        (
            "mount",
            "oursd a /m -- -o cache=all",
            {},
            "oursd -o cache=some,writeback a /m -- -o cache=all",
        ),
        ("long", "oursd mount a /m", {}, "oursd mount --cache=some --writeback a /m"),
        ("long", "oursd a /m", {}, "oursd --cache=some --writeback a /m"),
        ("long", "oursd --cache all a", {"cache": "all"}, "oursd --writeback --cache=some a"),
        ("long", "oursd --cache=all a", {"cache": "all"}, "oursd --writeback --cache=some a"),
        (
            "long",
            "oursd --writeback=false --cache some a",
            {"writeback": "false", "cache": "some"},
            "oursd --writeback --cache=some a",
        ),
        ("long", "oursd --writeback a", {"writeback": "true"}, "oursd --cache=some --writeback a"),
        (
            "long",
            "oursd a /m -o cache=off",
            {"cache": "off"},
            "oursd --writeback a /m -o cache=some",
        ),
        ("single", "oursd -v mount a /m", {}, "oursd -v mount -cache=some -writeback a /m"),
        ("single", "oursd --cache=all a", {"cache": "all"}, "oursd -writeback -cache=some a"),
        ("single", "oursd -cache all a", {"cache": "all"}, "oursd -writeback -cache=some a"),
        ("single", "oursd -own x a", {}, "oursd -cache=some -writeback -own x a"),
    ],
)
def test_command_lines(
    tree: Tree, way: str, before: str, settings: dict[str, str], after: str | None
) -> None:
    recipe = recipe_with(tree, way)
    words = before.split(" ")
    line = CommandLine(words, spellings(recipe), way, recipe.server.subcommands)
    assert line.words() == words
    assert line.settings() == settings
    if after is not None:
        assert " ".join(line.changed(SET)) == after


def test_options_that_are_left_out(tree: Tree) -> None:
    recipe = recipe_with(tree)
    words = ["oursd", "-o", "writeback", "a", "-o", "ro,cache=all"]
    line = CommandLine(words, spellings(recipe), "mount")
    assert line.changed({"writeback": None, "cache": None}) == ["oursd", "a", "-o", "ro"]
    assert line.changed({"writeback": "false"}) == ["oursd", "a", "-o", "ro,cache=all"]


def test_a_unit_behind_the_value(tree: Tree) -> None:
    recipe = recipe_with(
        tree,
        "long",
        ('name = "threads"', 'name = "threads"\ncommand = "--threads={value}s"'),
    )
    for words in (["a", "--threads=2s"], ["a", "--threads", "2s"], ["a", "-o", "threads=2s"]):
        line = CommandLine(words, spellings(recipe), "long")
        assert line.settings() == {"threads": "2"}
        assert line.changed({"threads": "8"})[-1] in ("--threads=8s", "threads=8s")


def test_odd_spellings(tree: Tree) -> None:
    recipe = recipe_with(
        tree,
        "mount",
        ('name = "threads"', 'name = "threads"\ncommand = "-t {value}"\nalso = ["-T{value}"]'),
        ('name = "nosync"', 'name = "nosync"\ncommand = "-n"\nalso = ["-o nosync"]'),
    )
    known = spellings(recipe)
    for words in (["a", "-t", "2", "-n"], ["a", "-T2", "-o", "nosync"]):
        assert CommandLine(words, known, "mount").settings() == {"threads": "2", "nosync": "true"}
    line = CommandLine(["a", "-t", "2", "b"], known, "mount")
    assert line.changed({"threads": "8", "nosync": "true"}) == ["a", "-n", "-t", "8", "b"]
    line = CommandLine(["a", "-T2", "b"], known, "mount")
    assert line.changed({"threads": "8"}) == ["a", "-t", "8", "b"]


MIRRORFS = spellings(read_recipe(SHIPPED / "mirrorfs.toml", check_writers=False))
_WORD = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8)


@given(st.lists(st.sampled_from(["-o", "--", "-o,", "-", "cache=", "--cache"]) | _WORD))
def test_any_words_come_back(words: list[str]) -> None:
    for way in ("mount", "long", "single"):
        assert CommandLine(words, MIRRORFS, way).words() == words


def test_a_line_for_the_shell_is_the_line_that_runs(ours: Tree, tell: Any) -> None:
    serve(ours, "oursd", "-o", "x=a b", "it's", "/mnt/one")
    then = document(tell("--json", "-w", "small-write"))["commands"]["then"]
    assert shlex.split(then) == [
        *("oursd", "-o", "x=a b,cache=some,writeback", "it's", "/mnt/one"),
    ]
