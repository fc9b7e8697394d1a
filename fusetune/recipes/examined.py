# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known about a mount whose server has a recipe, and the edits that a plan means for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fusetune.mounts.mount import Mount
from fusetune.recipes import by_module
from fusetune.recipes.command_line import CommandLine
from fusetune.recipes.edits import Files, Making
from fusetune.recipes.load import Loaded
from fusetune.recipes.plan import Circumstances, Plan
from fusetune.recipes.recipe import Recipe
from fusetune.recipes.served import Served
from fusetune.recipes.server_file import ServerFile
from fusetune.recipes.spelling import Spellings


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
        environment = {**self.process.environment, **self.variables(found)}
        return self.line.changed(values_of(found)), environment

    def variables(self, found: Plan) -> dict[str, str]:
        """Return the variables of options that only the environment can set."""
        variables, values = {}, values_of(found)
        for option, spelled in zip(self.recipe.option, self.known, strict=False):
            value = values.get(option.name)
            if option.environment and spelled.main is None and value is not None:
                variables[option.environment] = value
        return variables

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
        making = self.files.making(rest, self.variables(found))
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
