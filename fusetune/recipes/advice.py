# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on one mount: its recipe, how it was mounted, and what to change at the next mount."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from fusetune.host import Host
from fusetune.masking import MASK, mask_text, mask_words
from fusetune.mounts.mount import Mount
from fusetune.recipes.advise import Change, Circumstances, Plan, plan
from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.edits import Edit, Files, Making
from fusetune.recipes.load import Loaded
from fusetune.recipes.match import recipe_of
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.served import Served, served, version_of
from fusetune.recipes.spelling import Spellings, spellings_of, spellings_of_bad
from fusetune.text import shell_word

_KINDS = ("own", "go", "rust", "java", "none")


@dataclass(frozen=True)
class Advice:
    """What is known about a mount, and what to change; no text holds a secret.

    ``source``: what it mounts. ``version``: of the server, as far as a package says it.
    ``library``: what the server is built on. ``now``, ``then``: the command line as it is and as it
    should be, None where it is not known or nothing is to change. ``edits``: file and unified diff.
    ``named``: what the recipe has to say without a change. ``notes``: what could not be read.
    """

    mount: Mount
    source: str
    program: str | None
    version: str | None
    library: str | None
    recipe: Loaded | None
    changes: Sequence[Change] = ()
    now: str | None = None
    then: str | None = None
    edits: Sequence[tuple[str, str]] = ()
    named: Sequence[str] = ()
    notes: Sequence[str] = ()


def advise(
    host: Host, mount: Mount, recipes: Sequence[Loaded], workloads: Collection[str] = ()
) -> Advice:
    """Return advice on ``mount`` for workloads, none for all, without touching its path."""
    process = served(host, mount)
    match = recipe_of(recipes, mount, process.program, process.library)
    notes = [*process.notes, *([match.note] if match.note else [])]
    if match.found is None:
        return Advice(
            mount,
            mask_text(mount.source),
            process.program,
            None,
            process.library if process.library != "none" else None,
            None,
            now=_line(process.words, ()),
            notes=notes,
        )
    return _by_recipe(host, mount, process, match.found, workloads, notes)


def _by_recipe(
    host: Host,
    mount: Mount,
    process: Served,
    loaded: Loaded,
    workloads: Collection[str],
    notes: list[str],
) -> Advice:
    recipe = loaded.recipe
    facts = recipe.server
    known = _spellings(recipe)
    line = CommandLine(process.words, known, facts.options, facts.subcommands)
    files = Files(host, mount, process, facts, known)
    settings = _settings(recipe, known, mount, process, line, files.making({}, {}), notes)
    names = [*([facts.package] if facts.package else []), *facts.program, recipe.name]
    version = version_of(host, process.program, names) if process.program else None
    kernel = host.read("proc/sys/kernel/osrelease")
    here = Circumstances(kernel, version, process.library, process.root, workloads)
    found = plan(recipe, settings, here)
    values = {change.option: change.after for change in found.changes}
    variables = _variables(recipe, known, values)
    making = files.making(values, variables) if values else Making({}, (), ())
    return Advice(
        mount,
        mask_text(mount.source, facts.secrets),
        process.program,
        version,
        _library(recipe, process),
        loaded,
        [_masked(change, facts.secrets) for change in found.changes],
        _line(process.words, facts.secrets),
        _then(line, process, values, variables, facts.secrets),
        [_diff(edit, facts.secrets) for edit in making.edits],
        found.named,
        [*notes, *making.notes, *_elsewhere(recipe, known, found), *_told_mask(line, recipe)],
    )


def _spellings(recipe: Recipe) -> list[Spellings]:
    known = [spellings_of(recipe.server, option) for option in recipe.option]
    names = {one.name for one in known}
    for bad in recipe.bad:
        if bad.option not in names:
            names.add(bad.option)
            known.append(spellings_of_bad(recipe.server, bad))
    return known


def _settings(
    recipe: Recipe,
    known: Sequence[Spellings],
    mount: Mount,
    process: Served,
    line: CommandLine,
    making: Making,
    notes: list[str],
) -> dict[str, str]:
    """Return the options that are set: by the kernel's account, the environment and the server.

    Where the command line is not known, those of fstab or the mount unit.
    """
    shown = CommandLine(["", "-o", ",".join(mount.options)], known, "mount")
    found = shown.settings()
    for option in recipe.option:
        if option.environment and option.environment in process.environment:
            found[option.name] = process.environment[option.environment]
    if process.words:
        return found | line.settings()
    if not making.settings:
        notes.append("which options are set is not known; the advice supposes the defaults")
    return found | dict(making.settings)


def _variables(
    recipe: Recipe, known: Sequence[Spellings], values: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the variables for options that only the environment can set."""
    found = {}
    for option, spelled in zip(recipe.option, known, strict=False):
        value = values.get(option.name)
        if option.environment and spelled.main is None and value is not None:
            found[option.environment] = value
    return found


def _elsewhere(recipe: Recipe, known: Sequence[Spellings], found: Plan) -> list[str]:
    """Return a sentence for each option to be set in the server's configuration file."""
    notes = []
    values = {change.option: change.after for change in found.changes}
    for option, spelled in zip(recipe.option, known, strict=False):
        value = values.get(option.name)
        if value and spelled.main is None and not option.environment and option.file:
            where = recipe.server.file or "its configuration file"
            notes.append(f"set {option.file} to {value} in {where}, which was not read")
    return notes


def _library(recipe: Recipe, process: Served) -> str | None:
    """Return what the server is built on: as it was seen, or as the only one that is possible."""
    if process.library not in (None, "none"):
        return process.library
    kinds = [one for one in recipe.server.library if process.library is None or one in _KINDS]
    return kinds[0] if len(kinds) == 1 else None


def _masked(change: Change, secrets: Collection[str]) -> Change:
    before = None if change.before is None else mask_text(change.before, secrets)
    return Change(**{**vars(change), "before": before})


def _line(words: Sequence[str], secrets: Collection[str]) -> str | None:
    """Return words as a line for a shell, without secrets; None for none."""
    return " ".join(map(shell_word, mask_words(words, secrets))) or None


def _then(
    line: CommandLine,
    process: Served,
    values: Mapping[str, str | None],
    variables: Mapping[str, str],
    secrets: Collection[str],
) -> str | None:
    if not process.words or not values:
        return None
    words = line.changed(values)
    if variables:
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    return _line(words, secrets)


def _told_mask(line: CommandLine, recipe: Recipe) -> list[str]:
    words = line.words()
    if mask_words(words, recipe.server.secrets) == words:
        return []
    return [f"{MASK} stands for what may be a secret; put it back before you run the line"]


def _diff(edit: Edit, secrets: Collection[str]) -> tuple[str, str]:
    return str(edit.file), edit.diff(secrets)
