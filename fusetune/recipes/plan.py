# SPDX-License-Identifier: GPL-2.0-or-later
"""What to change at the next mount, given recipe, current options, kernel, library and workload."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from fusetune.errors import UsageError
from fusetune.knobs.base import parse_number
from fusetune.recipes.recipe import Bad, Option, Recipe

#: A workload that combines others.
_PARTS = {"mixed": ("seq-read", "seq-write", "rand-read")}
_NOTHING = "no program can see a difference"


@dataclass(frozen=True)
class Circumstances:
    """What decides whether an option can be used; None if unknown.

    ``version``: of the server; ``kernel``: as in osrelease; ``library``: see `Served`; ``root``:
    whether the server runs as root. ``workloads``: the wanted ones, none for all. ``unsafe``:
    unsafe options that the user wants, with a value or None for the recipe's.
    """

    kernel: str
    version: str | None = None
    library: str | None = None
    root: bool = False
    workloads: Collection[str] = ()
    unsafe: Mapping[str, str | None] = field(default_factory=dict)

    def concern(self, workloads: Sequence[str]) -> bool:
        """Whether one of ``workloads`` (none: all) is wanted."""
        if not workloads or not self.workloads:
            return True
        asked = {part for one in self.workloads for part in (one, *_PARTS.get(one, ()))}
        return bool(asked.intersection(workloads))

    def allow(self, option: Option) -> bool:
        """Whether the server has the option here, as far as known."""
        version = self.version
        return (
            not (option.since and version and _older(version, option.since))
            and not (option.until and version and _newer(version, option.until))
            and not (option.kernel and _older(self.kernel, option.kernel))
            and (not option.root or self.root)
            and (not option.library or self._on(option.library))
        )

    def may_allow(self, option: Option) -> bool:
        """Whether the server may have the option: unknown facts do not rule it out."""
        unknown = option.library and self.library is None
        return self.allow(replace(option, library=()) if unknown else option)

    def _on(self, libraries: Sequence[str]) -> bool:
        if self.library == "none":
            return any(not one.startswith("libfuse") for one in libraries)
        return self.library in libraries


@dataclass(frozen=True)
class Change:
    """An option to set or, if ``after`` is None, to leave out.

    ``before``: its current value; None if it is not set and its default is unknown. ``risk``: what
    happens if the condition does not hold. ``needs``: what else it needs. ``slows``: workloads
    that it slows down.
    """

    option: str
    about: str
    before: str | None
    after: str | None
    class_: str
    condition: str | None
    risk: str
    needs: tuple[str, ...]
    slows: tuple[str, ...]
    source: str


@dataclass(frozen=True)
class Plan:
    """The changes, and a sentence for each option that is mentioned but not changed."""

    changes: Sequence[Change] = ()
    named: Sequence[str] = field(default_factory=tuple)


def plan(
    recipe: Recipe,
    settings: Mapping[str, str],
    here: Circumstances,
    without: Collection[str] = (),
) -> Plan:
    """Return what to change in ``settings``, the options that are set, by name.

    An option with another value than its default is kept, unless the recipe says that the value
    is harmful, or a proposed option needs another one. ``without``: options that must not be
    changed; options that need one of them are not proposed either.
    """
    chooser = _Chooser(recipe, settings, here, without)
    chooser.bad()
    chooser.propose()
    return Plan(chooser.changes(), chooser.named)


class _Chooser:
    """Chooses values option by option; in a conflict, the first in the recipe wins."""

    def __init__(
        self,
        recipe: Recipe,
        settings: Mapping[str, str],
        here: Circumstances,
        without: Collection[str],
    ) -> None:
        self._recipe, self._settings, self._here = recipe, settings, here
        self._without = without
        self._kept = dict(settings)  # without options to leave out
        self._chosen: dict[str, str] = {}
        self._bad: list[Bad] = []
        self.named: list[str] = []

    def bad(self) -> None:
        """Find the set options that are harmful, useless or unsafe."""
        for one in self._recipe.bad:
            value = self._settings.get(one.option)
            if value is None or not _meant(one, value) or not self._here.concern(one.workloads):
                continue
            if one.kind == "useless":
                self.named.append(f"{one.option} does nothing here: {one.because}; {one.instead}")
            elif one.option in self._kept and one.option not in self._without:
                # The first of several entries wins.
                self._bad.append(one)
                self._kept.pop(one.option)
                self._kept |= {one.option: one.to} if one.to else {}
        for option in self._recipe.option:
            value = self._settings.get(option.name)
            if option.class_ == "unsafe" and is_active(option, value):
                self.named.append(
                    f"{option.name} is set, which is unsafe unless {option.condition}: "
                    f"{option.otherwise}"
                )

    def propose(self) -> None:
        """Choose the options to set."""
        hurting = {bad.option for bad in self._bad}
        for option in self._recipe.option:
            now = self._settings.get(option.name, option.usual)
            asked = option.name in self._here.unsafe
            free = asked or option.name not in self._settings or now == option.usual
            wanted = self._wanted(option)
            if wanted is None or not free or now == wanted or option.name in hurting:
                continue
            if not self._here.concern(option.workloads) and not asked:
                continue
            bundle = self._bundle(option, wanted, {})
            if bundle is None:
                continue
            against = [self._against(name, value, bundle) for name, value in bundle.items()]
            if other := next(filter(None, against), None):
                self.named.append(f"{option.name} is not proposed: it conflicts with {other}")
            else:
                self._chosen |= bundle

    def _wanted(self, option: Option) -> str | None:
        """Return the value to propose, None for none."""
        asked = self._here.unsafe.get(option.name)
        return asked or option.propose or ("true" if self._is_asked_flag(option) else None)

    def _is_asked_flag(self, option: Option) -> bool:
        return option.flag and option.name in self._here.unsafe

    def _bundle(self, option: Option, value: str, found: dict[str, str]) -> dict[str, str] | None:
        """Return the option and the missing ones that it needs; None if one is not available."""
        unsafe = option.class_ == "unsafe" and option.name not in self._here.unsafe
        if unsafe or option.name in self._without or not self._here.allow(option):
            return None
        found[option.name] = value
        for need in option.needs:
            name, _, values = need.partition("=")
            other = self._recipe.named(name)
            fitting = values.split("|") if values else ["true"]
            if other is None or self._value(name, found) in fitting:
                continue
            if self._bundle(other, fitting[0], found) is None:
                return None
        return found

    def _value(self, name: str, more: Mapping[str, str]) -> str | None:
        """Return an option's chosen, set or default value."""
        option = self._recipe.named(name)
        default = option.usual if option else None
        return more.get(name, self._chosen.get(name, self._kept.get(name, default)))

    def _against(self, name: str, value: str, bundle: Mapping[str, str]) -> str | None:
        """Return a set or chosen option that conflicts with this one."""
        option = self._recipe.named(name)
        for other in self._recipe.option:
            its = self._value(other.name, bundle)
            if other.name == name or not is_active(other, its):
                continue
            if option and any(_names(one, other.name, its) for one in option.excludes):
                return f"{other.name}={its}"
            if any(_names(one, name, value) for one in other.excludes):
                return f"{other.name}={its}"
        return None

    def changes(self) -> list[Change]:
        """Return the changes: options to set, then harmful ones."""
        found = []
        for name, value in self._chosen.items():
            option = self._recipe.named(name)
            if option is not None:
                found.append(self._change(option, value))
        repairs = (self._repair(bad) for bad in self._bad if bad.option not in self._chosen)
        return [*found, *repairs]

    def _change(self, option: Option, value: str) -> Change:
        return Change(
            option.name,
            option.about,
            self._settings.get(option.name, option.usual),
            value,
            option.class_,
            option.condition,
            option.otherwise or _NOTHING,
            tuple(self._needs(option)),
            tuple(option.slows),
            _proven(option),
        )

    def _needs(self, option: Option) -> Iterator[str]:
        yield from (need.partition("|")[0] for need in option.needs)
        if option.since and self._here.version is None:
            yield f"{self._recipe.name} {option.since} or later"
        if option.until and self._here.version is None:
            yield f"{self._recipe.name} {option.until} or earlier"
        if option.kernel:
            yield f"Linux {option.kernel} or later"
        if option.root:
            yield "a server that runs as root"

    def _repair(self, bad: Bad) -> Change:
        return Change(
            bad.option,
            f"{bad.because}; {bad.instead}",
            self._settings[bad.option],
            bad.to,
            bad.class_,
            bad.condition,
            bad.otherwise or _NOTHING,
            (),
            (),
            bad.source,
        )


def is_active(option: Option, value: str | None) -> bool:
    """Whether the value is set and neither the default nor false."""
    return value not in (None, "false", option.usual)


def _proven(option: Option) -> str:
    return option.source if option.proof == "tried" else f"{option.source} (read, not tried)"


def _names(setting: str, name: str, value: str | None) -> bool:
    """Whether a setting of ``excludes`` means this option, with this value if it has one."""
    wanted, equals, values = setting.partition("=")
    return wanted == name and (not equals or value in values.split("|"))


def _meant(bad: Bad, value: str) -> bool:
    """Whether this value of a bad option is harmful."""
    if bad.value is not None:
        return value == bad.value
    if bad.below is None and bad.above is None:
        return value != "false"
    with suppress(UsageError):
        number = parse_number(value)
        return (bad.below is None or number < bad.below) and (
            bad.above is None or number > bad.above
        )
    return False


def _numbers(version: str) -> list[int]:
    match = re.match(r"\d+(?:\.\d+)*", version)
    return [int(part) for part in match[0].split(".")] if match else []


def _older(version: str, than: str) -> bool:
    return _numbers(version) < _numbers(than)


def _newer(version: str, than: str) -> bool:
    wanted = _numbers(than)
    return _numbers(version)[: len(wanted)] > wanted
