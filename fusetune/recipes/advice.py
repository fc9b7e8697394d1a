# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on one mount: its recipe, how it was mounted, and what to change at the next mount."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fusetune.host import Host
from fusetune.masking import MASK, mask_text, mask_words
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from fusetune.recipes import by_module
from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.edits import Files, Making
from fusetune.recipes.examined import Examined, values_of
from fusetune.recipes.load import Loaded
from fusetune.recipes.match import recipe_of
from fusetune.recipes.plan import Change, Circumstances, Plan, plan
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.served import Served, served, version_of, without_background
from fusetune.recipes.server_file import server_file
from fusetune.recipes.spelling import Spellings, spellings_of, spellings_of_bad
from fusetune.text import shell_word

_KINDS = ("own", "go", "rust", "java", "none")


@dataclass(frozen=True)
class Advice:
    """What is known about a mount, and what to change. No text contains a secret.

    ``source``: the mount's source. ``version``: of the server, as far as known from packages.
    ``library``: the library that the server is built on. ``now``, ``then``: the current and the
    proposed command line, None if unknown or unchanged. ``edits``: file and unified diff.
    ``named``: statements of the recipe without a change. ``notes``: what could not be read.
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


def examine(
    host: Host,
    mount: Mount,
    recipes: Sequence[Loaded],
    workloads: Collection[str] = (),
    daemons: Daemons | None = None,
    means: by_module.Means | None = None,
) -> Examined | Advice:
    """Return what is known about ``mount``, or without a recipe the remaining advice.

    Touches no path in the mount. ``daemons``: see `served`. ``means``: how servers of this host
    get the module, None to leave its options out.
    """
    process = served(host, mount, daemons)
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
    recipe = match.found.recipe
    facts = recipe.server
    process = replace(process, words=without_background(process.words, facts.background))
    known = _spellings(recipe)
    line = CommandLine(process.words, known, facts.options, facts.subcommands)
    means = None if process.elsewhere else means
    files = Files(host, mount, process, facts, known, means)
    making = files.making({}, {})
    own = server_file(host, mount, recipe, process, making.way.options if making.way else "")
    inside = own.options(known)
    settings = inside | _settings(recipe, known, mount, process, line, making, notes)
    names = [*([facts.package] if facts.package else []), *facts.program, recipe.name]
    version = version_of(host, process.program, names) if process.program else None
    kernel = host.read("proc/sys/kernel/osrelease")
    here = Circumstances(kernel, version, process.library, process.root, workloads)
    loaded = match.found
    if means:
        loaded = replace(loaded, recipe=by_module.with_module(recipe, means, here, settings))
        settings |= by_module.settings_of(mount)
    return Examined(
        *(mount, process, loaded, known, line, settings),
        *(inside | dict(making.settings), here, notes, files),
        *(own, making.way is not None, means),
    )


def advise(
    host: Host,
    mount: Mount,
    recipes: Sequence[Loaded],
    workloads: Collection[str] = (),
    daemons: Daemons | None = None,
    means: by_module.Means | None = None,
) -> Advice:
    """Return advice on ``mount`` for workloads (none: all), without touching its path.

    ``daemons``: see `served`; ``means``: see `examine`.
    """
    seen = examine(host, mount, recipes, workloads, daemons, means)
    if isinstance(seen, Advice):
        return seen
    return advice_of(seen, plan(seen.recipe, seen.settings, seen.here))


def advice_of(seen: Examined, found: Plan) -> Advice:
    """Return the advice for the changes of a plan."""
    recipe, process, secrets = seen.recipe, seen.process, seen.secrets
    making = seen.making(found) if found.changes else Making({}, (), ())
    return Advice(
        seen.mount,
        mask_text(seen.mount.source, secrets),
        process.program,
        seen.here.version,
        _library(recipe, process),
        seen.loaded,
        [masked(change, secrets) for change in found.changes],
        _line(process.words, secrets),
        _then(seen, found),
        [(str(edit.file), edit.diff(secrets)) for edit in making.edits],
        found.named,
        [
            *seen.notes,
            *making.notes,
            *seen.elsewhere(found),
            *_about_module(seen, found, making),
            *_told_mask(seen.line, recipe),
        ],
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
    """Return the options that are set, according to the kernel, the environment and the server.

    If the command line is unknown, return those of fstab or the mount unit.
    """
    shown = CommandLine(["", "-o", ",".join(mount.options)], known, "mount")
    found = shown.settings()
    for option in recipe.option:
        if option.environment and option.environment in process.environment:
            found[option.name] = process.environment[option.environment]
    if process.words:
        return found | line.settings()
    if not making.settings:
        notes.append("the current options are unknown; the advice assumes the defaults")
    return found | dict(making.settings)


def _library(recipe: Recipe, process: Served) -> str | None:
    """Return the server's library: the one observed, or the only possible one."""
    if process.library not in (None, "none"):
        return process.library
    kinds = [one for one in recipe.server.library if process.library is None or one in _KINDS]
    return kinds[0] if len(kinds) == 1 else None


def masked(change: Change, secrets: Collection[str]) -> Change:
    """Return a change without secrets."""
    before = None if change.before is None else mask_text(change.before, secrets)
    return Change(**{**vars(change), "before": before})


def _line(words: Sequence[str], secrets: Collection[str]) -> str | None:
    """Return words as a shell line, without secrets; None for no words."""
    return " ".join(map(shell_word, mask_words(words, secrets))) or None


def _then(seen: Examined, found: Plan) -> str | None:
    if not seen.process.words or not found.changes:
        return None
    words = seen.line.changed(values_of(found))
    if variables := seen.variables(found):
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
    if seen.means and ((options := seen.module_options(found)) or seen.mount.is_tuned_type):
        words = ["fusetune", "run", "-o", ",".join(["tuned", *options]), "--", *words]
    return _line(words, seen.secrets)


def _about_module(seen: Examined, found: Plan, making: Making) -> list[str]:
    if not seen.means or not any(map(by_module.is_by_module, values_of(found))):
        return []
    unit = (making.way and making.way.unit) or ""
    return list(
        by_module.how_given(seen.means, unit, seen.module_options(found), bool(making.edits))
    )


def _told_mask(line: CommandLine, recipe: Recipe) -> list[str]:
    words = line.words()
    if mask_words(words, recipe.server.secrets) == words:
        return []
    return [f"{MASK} replaces a possible secret; insert it before you run the command"]
