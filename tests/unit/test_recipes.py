# SPDX-License-Identifier: GPL-2.0-or-later
"""Recipes are accepted completely or not at all; an error names file, line and nearest key.

The format is docs/schemas/recipe.json, which docs/recipes.md explains.
"""

import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from fusetune.mounts.mount import Mount
from fusetune.recipes.load import SHIPPED, Loaded, load_recipes, read_recipe
from fusetune.recipes.match import recipe_of
from fusetune.recipes.recipe import recipe_schema
from fusetune.recipes.spelling import Spelling
from fusetune.toml.file import ConfigError
from tests import schemas
from tests.unit.conftest import Tree

RECIPE = """\
schema = "fusetune.recipe/1"
name = "ours"
about = "Ours"

[server]
fstype = ["fuse.ours"]
library = ["libfuse3"]
options = "mount"
second = "yes"
second_because = "it keeps no state"
source = "ours(1)"

[[option]]
name = "threads"
about = "Threads"
range = [1, 64]
unit = "threads"
default = "1"
propose = "8"
class = "safe"
proof = "tried"
source = "ours(1)"

[[option]]
name = "cache"
about = "A cache"
values = ["off", "on"]
needs = ["threads=8"]
class = "conditional"
condition = "it rains"
otherwise = "it is wet"
proof = "read"
source = "ours(1)"

[[bad]]
option = "slow"
kind = "harmful"
because = "it is slow"
instead = "leave it out"
source = "ours(1)"
"""
FILES = sorted(SHIPPED.glob("*.toml"))


def write(tree: Tree, text: str, name: str = "ours", *, vendor: bool = False) -> Path:
    """Write an administrator's recipe, or a shipped one."""
    return tree.write(f"{'usr/lib' if vendor else 'etc'}/recipes/{name}.toml", text)


def named(recipes: list[Loaded], name: str) -> Loaded:
    (found,) = (one for one in recipes if one.recipe.name == name)
    return found


# Shipped recipes


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_as_reader_and_schema_say(path: Path) -> None:
    recipe = read_recipe(path, check_writers=False)
    jsonschema.Draft202012Validator(recipe_schema()).validate(tomllib.loads(path.read_text()))
    assert recipe.option or recipe.bad or not recipe.server.fuse
    doubtful = re.compile(r"\b(if|unless|except|when)\b")
    assert not [b.option for b in recipe.bad if b.class_ == "safe" and doubtful.search(b.instead)]
    assert path.read_text().startswith("# SPDX-License-Identifier: GPL-2.0-or-later\n")


def test_the_schema_is_the_one_in_docs() -> None:
    document = schemas.schema("recipe")
    jsonschema.Draft202012Validator.check_schema(document)
    assert document == recipe_schema()


def test_what_a_recipe_may_leave_out() -> None:
    document = recipe_schema()
    assert document["required"] == ["schema", "name", "about", "server"]
    validator = jsonschema.Draft202012Validator(document)
    content = tomllib.loads(RECIPE)
    validator.validate(content)
    content["option"][0]["class_"] = "safe"
    assert not validator.is_valid(content)


# Where they are


def test_the_administrators_replaces_the_shipped_one_of_its_name(tree: Tree) -> None:
    write(tree, RECIPE, vendor=True)
    assert not named(load_recipes(tree.host), "ours").admins
    file = write(tree, RECIPE.replace('about = "Ours"', 'about = "Mine"'))
    found = named(load_recipes(tree.host), "ours")
    assert (found.recipe.about, found.file, found.admins) == ("Mine", file, True)
    assert {one.recipe.name for one in load_recipes(tree.host)} >= {"ours", "mirrorfs", "sshfs"}


def test_what_is_read(tree: Tree) -> None:
    write(tree, RECIPE)
    recipe = named(load_recipes(tree.host), "ours").recipe
    threads, cache = recipe.option
    assert (threads.range, threads.unit, threads.usual) == ((1, 64), "threads", "1")
    assert (cache.values, cache.needs, cache.class_) == (
        ("off", "on"),
        ("threads=8",),
        "conditional",
    )
    assert recipe.named("cache") is cache
    assert recipe.named("slow") is None


# Errors


@pytest.mark.parametrize(
    ("old", "new", "line", "what"),
    [
        ('default = "1"', 'defalt = "1"', 18, "unknown key 'defalt': did you mean default?"),
        ("[[option]]", "[[opton]]", 13, "unknown key 'opton': did you mean option?"),
        ('second = "yes"\n', "", 5, "second is missing"),
        (
            'second = "yes"',
            'second = "yes"\nsecond_with = ["ro"]',
            10,
            "'ro' is not an option; write",
        ),
        ('name = "ours"', 'name = "others"', 2, "name must be 'ours', like the file name"),
        (
            '"fusetune.recipe/1"',
            '"fusetune.recipe/2"',
            1,
            "schema must be one of fusetune.recipe/1",
        ),
        ('options = "mount"', 'options = "mont"', 8, "options must be one of mount, long, single"),
        ('["fuse.ours"]', '"fuse.ours"', 6, "fstype must be a list"),
        ('["fuse.ours"]', "[]", 6, "fstype must have 1 or more entries"),
        ('["libfuse3"]', '["libfuse4"]', 7, "library must be one of libfuse2, libfuse3, own"),
        ('about = "Threads"', "about = 1", 15, "about must be a string"),
        ('about = "Threads"', 'about = ""', 15, "about must not be empty"),
        ("range = [1, 64]", "range = [1, true]", 16, "1 must be a whole number"),
        (
            "range = [1, 64]",
            'flag = true\nvalues = ["a"]',
            14,
            "threads needs exactly one of flag, values and",
        ),
        ('unit = "threads"\n', "", 16, "range and unit must be given together"),
        ('propose = "8"', 'propose = "65"', 19, "propose: 65 is out of its range"),
        ('propose = "8"', 'propose = "many"', 19, "propose: 'many' is not a whole number"),
        ('"threads=8"', '"thread=8"', 28, "needs: this recipe has no option 'thread'"),
        ('"threads=8"', '"threads"', 28, "needs: threads needs a value"),
        ('"threads=8"', '"threads=8|99"', 28, "needs: threads: 99 is out of its range"),
        ('condition = "it rains"\n', "", 29, "a conditional option has a condition"),
        ('class = "safe"', 'class = "safe"\ncondition = "x"', 20, "a safe option has no condition"),
        ('name = "cache"', 'name = "threads"', 25, "threads is defined twice"),
        (
            'option = "slow"',
            'option = "slow"\ncommand = "a b c"',
            37,
            "a spelling is '-o a={value}'",
        ),
        ("[[bad]]", "[bad]", 35, "bad must be a list"),
        ("[server]", "[[server]]", 5, "server must be a table"),
        ('name = "ours"', 'name = "ours', 2, "not valid TOML"),
        ('about = "Ours"', 'about = "Ours"\n[[server.x]]', 4, "unknown key 'x'"),
    ],
)
def test_an_error_names_file_and_line(tree: Tree, old: str, new: str, line: int, what: str) -> None:
    assert old in RECIPE
    file = write(tree, RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError) as raised:
        load_recipes(tree.host)
    text = str(raised.value)
    assert text.startswith(f"{file}:{line}: {what}"), text
    assert "\n" not in text


def test_a_recipe_that_others_can_write_is_refused(tree: Tree) -> None:
    file = write(tree, RECIPE)
    file.chmod(0o666)
    if os.geteuid():
        assert named(load_recipes(tree.host), "ours")
        return
    with pytest.raises(ConfigError, match="users other than root can write"):
        load_recipes(tree.host)


# Which recipe a mount has

OURS = Mount("/mnt", "fuse.ours", "source", "0:40")


def loaded(tree: Tree, name: str, *changes: tuple[str, str]) -> Loaded:
    """A recipe called ``name`` with texts of `RECIPE` changed."""
    text = RECIPE.replace('name = "ours"', f'name = "{name}"')
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Loaded(read_recipe(write(tree, text, name)), Path(f"/x/{name}.toml"), False)


PROGRAM = ('library = ["libfuse3"]', 'program = ["oursd"]\nlibrary = ["libfuse3"]')
ANY = ('"fuse.ours"', '"fuse.*"')
TWO = ('"libfuse3"', '"libfuse2"')


@pytest.mark.parametrize(
    ("more", "less"),
    [
        ((PROGRAM,), ()),
        ((PROGRAM, ANY), ()),
        ((), (ANY,)),
        ((), (TWO,)),
        ((TWO,), (ANY,)),
    ],
)
@pytest.mark.parametrize("order", [1, -1])
def test_the_more_specific_recipe_counts(
    tree: Tree, more: tuple[tuple[str, str], ...], less: tuple[tuple[str, str], ...], order: int
) -> None:
    both = [loaded(tree, "more", *more), loaded(tree, "less", *less)][::order]
    match = recipe_of(both, OURS, "/usr/bin/oursd", "libfuse3")
    assert match.found
    assert match.found.recipe.name == "more"
    assert match.note == (
        "several recipes match; /x/more.toml is the most specific, not used: /x/less.toml"
    )


def test_of_equals_the_administrators_counts_then_the_first(tree: Tree) -> None:
    first, second = loaded(tree, "a"), loaded(tree, "b")
    match = recipe_of([first, second], OURS, None, None)
    assert match.found is first
    assert match.note
    assert "/x/a.toml comes first by name" in match.note
    admins = replace(second, admins=True)
    assert recipe_of([first, admins], OURS, None, None).found is admins


@pytest.mark.parametrize(
    ("fstype", "program", "found"),
    [
        ("fuse.ours", "/usr/bin/oursd", True),
        ("fusetuned.ours", "/usr/bin/oursd", True),
        ("fuse.ours", None, True),
        ("fuse.ours", "/usr/bin/other", False),
        ("fuse.other", "/usr/bin/oursd", False),
        ("fuse", "/usr/bin/oursd", True),
        ("fuse", None, False),
    ],
)
def test_type_and_program_of_a_recipe(
    tree: Tree, fstype: str, program: str | None, found: bool
) -> None:
    one = loaded(tree, "a", PROGRAM, ('"fuse.ours"', '"fuse.ours", "fuse"'))
    match = recipe_of([one], replace(OURS, fstype=fstype), program, None)
    assert (match.found is not None) is found
    assert match.note is None


def test_a_recipe_of_another_kernel_file_system_matches_no_fuse_mount(tree: Tree) -> None:
    other = ('second = "yes"', 'fuse = false\nfuse_because = "NFS"\nsecond = "yes"')
    assert recipe_of([loaded(tree, "a", other)], OURS, None, None).found is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("-o a={value}", Spelling("a", True, "=")),
        ("-o a.b", Spelling("a.b", True, None)),
        ("--a-b={value}", Spelling("--a-b", False, "=")),
        ("-n {value}", Spelling("-n", False, " ")),
        ("-n{value}", Spelling("-n", False, "")),
        ("-s", Spelling("-s", False, None)),
        ("--a={value}s", Spelling("--a", False, "=", "s")),
        ("--a={value}{value}", None),
        ("a", None),
        ("-o a {value}", None),
        ("--a=", None),
        ("-o a,b", None),
        ("", None),
    ],
)
def test_spellings(text: str, wanted: Spelling | None) -> None:
    assert Spelling.parse(text) == wanted
