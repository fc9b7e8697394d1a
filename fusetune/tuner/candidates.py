# SPDX-License-Identifier: GPL-2.0-or-later
"""The changes of options to try, and which of them depend on others."""

from collections.abc import Collection, Mapping, Sequence

from fusetune.recipes.plan import Change, Plan
from fusetune.recipes.recipe import Recipe

#: Names of the changes that are made.
Options = frozenset[str]


class Candidates:
    """Changes by option name; ``required``: the changes that each one depends on."""

    def __init__(self, changes: Mapping[str, Change], required: Mapping[str, Options]) -> None:
        self.changes, self.required = changes, required

    @classmethod
    def of(cls, recipe: Recipe, changes: Sequence[Change]) -> "Candidates":
        """Return the changes that a recipe proposes.

        A change requires those that its option needs, and the removal of conflicting options.
        """
        known = {change.option: change for change in changes}
        repaired = {bad.option for bad in recipe.bad}
        conflicts = [
            {one.name, other.partition("=")[0]} for one in recipe.option for other in one.excludes
        ]
        required = {}
        for name in known:
            option = recipe.named(name)
            needed = {need.partition("=")[0] for need in option.needs} if option else set()
            for pair in conflicts:
                if name in pair - repaired:
                    needed |= pair & repaired
            required[name] = frozenset(needed & known.keys() - {name})
        return cls(known, required)

    def with_required(self, name: str) -> Options:
        """Return ``name`` and all changes that it requires."""
        found: set[str] = set()
        todo = [name]
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self.required[one]
        return frozenset(found)

    def possible(self, names: Collection[str]) -> Options:
        """Return those of ``names`` whose requirements are all met."""
        kept = set(names)
        while lacking := {name for name in kept if not self.required[name] <= kept}:
            kept -= lacking
        return frozenset(kept)

    def plan(self, names: Options) -> Plan:
        """Return the plan with the changes ``names``."""
        return Plan([one for name, one in self.changes.items() if name in names])

    def values(self, names: Options) -> dict[str, str | None]:
        """Return the values that the changes ``names`` set, None for options to leave out."""
        return {name: one.after for name, one in self.changes.items() if name in names}

    def without(self, names: Collection[str]) -> "Candidates":
        """Return the candidates without ``names`` and the changes that require them."""
        kept = self.possible(self.changes.keys() - set(names))
        return Candidates(
            {name: one for name, one in self.changes.items() if name in kept},
            {name: required for name, required in self.required.items() if name in kept},
        )
