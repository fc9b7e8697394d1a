# SPDX-License-Identifier: GPL-2.0-or-later
"""The recipes of this host: the shipped ones, and the administrator's, which take precedence."""

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusetune.errors import UsageError
from fusetune.host import Host
from fusetune.kmod.options import OPTIONS as MODULE_OPTIONS
from fusetune.knobs.base import parse_number
from fusetune.recipes.recipe import ByModule, Option, Recipe, ServerFacts
from fusetune.recipes.second import option_of
from fusetune.recipes.spelling import Spelling
from fusetune.toml.file import TomlFile, toml_files
from fusetune.toml.lines import Where
from fusetune.toml.table import table_as

#: In a checkout or a wheel, recipes are next to this file; packages install them in /usr/lib.
SHIPPED = Path(__file__).parent


@dataclass(frozen=True)
class Loaded:
    """A recipe and its file. ``admins``: whether it belongs to the administrator."""

    recipe: Recipe
    file: Path
    admins: bool


def load_recipes(host: Host) -> list[Loaded]:
    """Return all recipes, by name.

    A file in /etc/fusetune/recipes replaces a shipped one of the same name. Raises `ConfigError`
    with the file and line of an error.
    """
    found = dict(_beside_this_file())
    for directory in (host.vendor_dir / "recipes", host.admin_dir / "recipes"):
        for path in toml_files(directory):
            recipe = read_recipe(path)
            found[recipe.name] = Loaded(recipe, path, directory == host.admin_dir / "recipes")
    return [found[name] for name in sorted(found)]


@functools.cache  # like the code beside them, they are read once
def _beside_this_file() -> dict[str, Loaded]:
    paths = SHIPPED.glob("*.toml")
    recipes = [(read_recipe(path, check_writers=False), path) for path in sorted(paths)]
    return {recipe.name: Loaded(recipe, path, False) for recipe, path in recipes}


def read_recipe(path: Path, *, check_writers: bool = True) -> Recipe:
    """Return the recipe in a file. Raises `ConfigError` with the line of an error."""
    file = TomlFile(path, check_writers=check_writers)
    recipe = table_as(Recipe, file, (), file.content)
    for where, what in _problems(recipe, path):
        raise file.wrong(where, what)
    return recipe


def _problems(recipe: Recipe, path: Path) -> Iterator[tuple[Where, str]]:
    """Yield errors that the annotations cannot express, with their place."""
    if recipe.name != path.stem:
        yield ("name",), f"name must be {path.stem!r}, like the file name"
    for place, what in _server_problems(recipe.server):
        yield ("server", *place), what
    seen: set[str] = set()
    for number, option in enumerate(recipe.option):
        where = ("option", number)
        if option.name in seen:
            yield (*where, "name"), f"{option.name} is defined twice"
        seen.add(option.name)
        for key, what in _option_problems(recipe, option):
            yield (*where, key), what
    for number, bad in enumerate(recipe.bad):
        where = ("bad", number)
        for key, what in _class_problems(bad.class_, bad.condition, bad.otherwise):
            yield (*where, key), what
        if bad.command == "" and not bad.file:
            yield (*where, "command"), 'an option with command = "" needs a file'
        if bad.command and Spelling.parse(bad.command) is None:
            yield (*where, "command"), _SPELLING
    for number, by_module in enumerate(recipe.module):
        for key, what in _module_problems(recipe, by_module):
            yield ("module", number, key), what


def _module_problems(recipe: Recipe, one: ByModule) -> Iterator[tuple[str, str]]:
    general = MODULE_OPTIONS[one.option]
    if bool(general.range) is not (one.propose is not None):
        takes = "a" if general.range else "no"
        yield "propose", f"propose: {one.option} takes {takes} value"
    elif one.propose is not None and (what := _why_outside(general.range, one.propose)):
        yield "propose", f"propose: {what}"
    for name in one.own:
        if recipe.named(name) is None:
            yield "own", f"own: this recipe has no option {name!r}"
    if one.class_:
        yield from _class_problems(one.class_, one.condition, one.otherwise)
    elif one.condition or one.otherwise:
        yield "condition", "condition and otherwise need a class"
    for setting in one.excludes:
        yield from (("excludes", what) for what in _setting_problems(recipe, "excludes", setting))


def _server_problems(server: ServerFacts) -> Iterator[tuple[Where, str]]:
    if server.fuse is not (server.fuse_because is None):
        yield (), "fuse = false and fuse_because must be given together"
    if (what := _file_problem(server)) is not None:
        yield ("file_format",), what
    for key in ("second_with", "second_own", "second_not_with"):
        for text in getattr(server, key):
            if option_of(text) is None:
                yield (key,), f"{text!r} is not an option; write '-o a=b', '-o a', '--a=b' or '-a'"


def _file_problem(server: ServerFacts) -> str | None:
    file = server.file or ""
    if server.file_format and os.path.normpath(file) != f"/etc/{file.removeprefix('/etc/')}":
        return "file_format needs the full path of a file in /etc in 'file'"
    about = (server.file_sections, server.file_above, server.file_other, server.file_check)
    if any(about) and not server.file_format:
        return "file_sections, file_above, file_other and file_check need file_format"
    if server.file_sections and server.file_format == "shell":
        return "the format shell has no sections; remove file_sections"
    return None


_SPELLING = "a spelling is '-o a={value}', '--a={value}s', '-n {value}' or '-s', with one option"


def _option_problems(recipe: Recipe, option: Option) -> Iterator[tuple[str, str]]:
    if sum(map(bool, (option.flag, option.values, option.range))) != 1:
        yield "name", f"{option.name} needs exactly one of flag, values and range"
    elif option.propose is not None and (what := why_not(option, option.propose)):
        yield "propose", f"propose: {what}"
    if bool(option.range) is not (option.unit is not None):
        yield "range", "range and unit must be given together"
    yield from _class_problems(option.class_, option.condition, option.otherwise)
    for text in (option.command, *option.also):
        if text and Spelling.parse(text) is None:
            yield "command" if text == option.command else "also", _SPELLING
    for key, settings in (("needs", option.needs), ("excludes", option.excludes)):
        for setting in settings:
            yield from ((key, what) for what in _setting_problems(recipe, key, setting))


def _setting_problems(recipe: Recipe, key: str, setting: str) -> Iterator[str]:
    name, _, values = setting.partition("=")
    other = recipe.named(name)
    if other is None:
        yield f"{key}: this recipe has no option {name!r}"
    elif key == "needs" and not values and not other.flag:
        yield f"needs: {name} needs a value"
    else:
        for value in filter(None, values.split("|")):
            if what := why_not(other, value):
                yield f"{key}: {name}: {what}"


def _class_problems(
    kind: str, condition: str | None, otherwise: str | None
) -> Iterator[tuple[str, str]]:
    wanted = kind != "safe"
    for key, text in (("condition", condition), ("otherwise", otherwise)):
        if wanted is not (text is not None):
            yield "class", f"a {kind} option has {'a' if wanted else 'no'} {key}"


def why_not(option: Option, value: str) -> str | None:
    """Return why the option does not accept ``value``, None if it does."""
    if option.flag:
        known: Sequence[str] = ("true", "false")
    elif option.values:
        known = option.values
    else:
        return _why_outside(option.range, value)
    return None if value in known else f"{value!r} is not one of {', '.join(known)}"


def _why_outside(bounds: Sequence[int], value: str) -> str | None:
    try:
        number = parse_number(value)
    except UsageError as error:
        return str(error)
    least, *most = bounds
    inside = least <= number and all(number <= end for end in most)
    return None if inside else f"{value} is out of its range"
