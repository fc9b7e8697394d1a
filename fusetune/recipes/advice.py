# SPDX-License-Identifier: GPL-2.0-or-later
"""Advice on one mount: its recipe, how it was mounted, and what to change at the next mount."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fusetune.host import Host
from fusetune.masking import MASK, mask_text, mask_words
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.mount import Mount
from fusetune.recipes import by_module
from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.edits import Files, Making
from fusetune.recipes.load import Loaded
from fusetune.recipes.match import recipe_of
from fusetune.recipes.plan import Change, Circumstances, Plan, plan
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.served import Served, served, version_of
from fusetune.recipes.server_file import ServerFile, server_file
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


@dataclass(frozen=True)
class Examined:
    """A mount whose server has a recipe, for `advise` and `remount`. Texts may contain secrets.

    ``settings``: the options that are set now, by name; ``written``: those that the mount's files
    set for the next mount. ``own``: the server's configuration file. ``has_way``: whether another
    file defines the mount. ``means``: how the server can get the module; None if it cannot, or
    if the module was not asked for.
    """

    mount: Mount
    process: Served
    loaded: Loaded
    known: Sequence[Spellings]
    line: CommandLine
    settings: Mapping[str, str]
    written: Mapping[str, str]
    here: Circumstances
    notes: Sequence[str]
    files: Files
    own: ServerFile
    has_way: bool
    means: by_module.Means | None = None

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.loaded.recipe

    @property
    def secrets(self) -> Sequence[str]:
        """The options with secret values, in addition to those with the usual names."""
        return self.recipe.server.secrets

    def with_words(self, words: Sequence[str], environment: Mapping[str, str]) -> Self:
        """Return the same with another command line and environment."""
        facts = self.recipe.server
        line = CommandLine(words, self.known, facts.options, facts.subcommands)
        process = replace(self.process, words=tuple(words), environment=environment)
        return replace(self, line=line, process=process)

    def command(self, found: Plan) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment with the changes of a plan."""
        variables = _variables(self.recipe, self.known, found)
        return self.line.changed(values_of(found)), {**self.process.environment, **variables}

    def module_options(self, found: Plan) -> list[str]:
        """Return the module's mount options that the mount has and that a plan adds."""
        if not self.means:
            return []
        return list(by_module.words_of({**by_module.settings_of(self.mount), **values_of(found)}))

    def can_say(self, name: str) -> bool:
        """Whether the command line, the environment or the way to the module can set an option."""
        if by_module.is_by_module(name):
            return True
        option = self.recipe.named(name)
        if option and option.environment:
            return True
        return any(one.name == name and one.main is not None for one in self.known)

    def making(self, found: Plan) -> Making:
        """Return what the mount's files set, and their edits for the changes of a plan.

        The server's configuration file also affects other mounts. So an option is written there
        only if no file of this mount can set it. Harmful options are changed where they are set.
        """
        values = values_of(found)
        inside = {name: value for name, value in values.items() if self._goes_inside(name, value)}
        rest = {name: value for name, value in values.items() if name not in inside}
        making = self.files.making(rest, _variables(self.recipe, self.known, found))
        if not inside:
            return making
        changed = self.own.changed(inside)
        return replace(
            making,
            edits=[*making.edits, *filter(None, [changed.edit])],
            notes=[*making.notes, *changed.notes],
            unsaid=[*making.unsaid, *changed.unsaid],
        )

    def _goes_inside(self, name: str, value: str | None) -> bool:
        if self.own.why_not is not None or name not in self.own.keys:
            return False
        set_there = name in self.own.settings and name not in self.line.settings()
        repaired = set_there and (value is None or self.recipe.named(name) is None)
        return repaired or not self.has_way or name in self.only_in_file()

    def only_in_file(self) -> set[str]:
        """Return the options that only the server's configuration file can set."""
        spelled = {one.name for one in self.known if one.main is not None}
        variables = {one.name for one in self.recipe.option if one.environment}
        return self.own.keys.keys() - spelled - variables

    def unsaid(self, making: Making) -> list[str]:
        """Return the options that the edits do not set, because no file can."""
        service = making.way is not None and (making.way.unit or "").endswith(".service")
        variables = {one.name for one in self.recipe.option if one.environment and service}
        return [name for name in making.unsaid if name not in variables]

    def elsewhere(self, found: Plan) -> list[str]:
        """Yield a sentence for each option that must be set in a file that was not read."""
        if self.own.why_not is None:
            return []
        where = self.recipe.server.file or "its configuration file"
        why = f": {self.own.why_not}" * bool(self.own.why_not)
        only = self.only_in_file()
        return [
            f"set {self.own.keys[name]} to {value} in {where}, which was not read{why}"
            for name, value in values_of(found).items()
            if value is not None and name in only
        ]


def values_of(found: Plan) -> dict[str, str | None]:
    """Return the changes of a plan by option."""
    return {change.option: change.after for change in found.changes}


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


def _variables(recipe: Recipe, known: Sequence[Spellings], wanted: Plan) -> dict[str, str]:
    """Return the variables of options that only the environment can set."""
    found, values = {}, values_of(wanted)
    for option, spelled in zip(recipe.option, known, strict=False):
        value = values.get(option.name)
        if option.environment and spelled.main is None and value is not None:
            found[option.environment] = value
    return found


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
    if variables := _variables(seen.recipe, seen.known, found):
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
