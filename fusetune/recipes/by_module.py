# SPDX-License-Identifier: GPL-2.0-or-later
"""The mount options of the module fusetuned that a recipe proposes, as options of the recipe.

Their names begin with ``tuned.``, because a server may have options of the same name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusetune.kmod.options import OPTIONS
from fusetune.libfuse.options import OPTIONS as LIBRARY_OPTIONS
from fusetune.mounts.mount import Mount
from fusetune.recipes.plan import Circumstances, is_active
from fusetune.recipes.recipe import ByModule, Option, Recipe

_MARK = "tuned."
#: Types in fstab that do not name the server, or only in front of the source.
_NAMELESS = ("auto", "fuse", "fuseblk", "fuse3")


@dataclass(frozen=True)
class Means:
    """How the servers of this host get the module.

    ``loaded``: whether it is loaded. ``intercepts``: whether mounts of any server can
    be intercepted; ``library``: whether the tuned libfuse3 is installed, which has fewer options.
    """

    loaded: bool
    intercepts: bool
    library: bool

    def bring(self, name: str, library: str | None) -> bool:
        """Whether a server built on ``library`` can get the module's option ``name``."""
        return self.intercepts or (
            self.library and library == "libfuse3" and name in LIBRARY_OPTIONS
        )

    def can_write(self, names: Iterable[str], library: str | None) -> bool:
        """Whether mount.fusetune(8) accepts options, named as in a recipe, for such a server.

        It prefers the tuned libfuse3, which rejects unknown options.
        """
        by_library = self.library and library in ("libfuse3", None)
        return not by_library or all(n.removeprefix(_MARK) in LIBRARY_OPTIONS for n in names)


def with_module(
    recipe: Recipe, means: Means, here: Circumstances, settings: Mapping[str, str]
) -> Recipe:
    """Return a recipe with the module's options appended to its own.

    An option is left out if the server has, or may have, an equivalent option. ``settings``: the
    server's own options, by name.
    """
    found = [
        _option(one)
        for one in recipe.module
        if means.bring(one.option, here.library) and not _has_own(recipe, one, here, settings)
    ]
    return replace(recipe, option=(*recipe.option, *found))


def _has_own(
    recipe: Recipe, one: ByModule, here: Circumstances, settings: Mapping[str, str]
) -> bool:
    own = [option for name in one.own if (option := recipe.named(name))]
    return any(
        here.may_allow(option) or is_active(option, settings.get(option.name)) for option in own
    )


def _option(one: ByModule) -> Option:
    general = OPTIONS[one.option]
    told = one if one.class_ else general
    return Option(
        name=f"{_MARK}{one.option}",
        about=one.about or general.about,
        class_=one.class_ or general.class_,
        proof="tried",
        source=one.source,
        flag=not general.range,
        range=general.range,
        unit=general.unit,
        propose=one.propose or (None if general.range else "true"),
        workloads=one.workloads,
        slows=one.slows,
        command="",
        fstab="",
        library=one.library,
        root=True,
        excludes=one.excludes,
        condition=told.condition,
        otherwise=told.otherwise,
    )


def is_by_module(name: str) -> bool:
    """Whether an option is a mount option of the module."""
    return name.startswith(_MARK)


def settings_of(mount: Mount) -> dict[str, str]:
    """Return the module's options that a mount has, by name in a recipe."""
    if not mount.is_tuned_type:
        return {}
    pairs = (one.partition("=") for one in mount.options)
    return {f"{_MARK}{name}": value or "true" for name, _, value in pairs if name in OPTIONS}


def words_of(values: Mapping[str, str | None]) -> Iterator[str]:
    """Yield the module's options among ``values`` in the module's syntax."""
    for name, value in values.items():
        if is_by_module(name) and value not in (None, "false"):
            word = name.removeprefix(_MARK)
            yield f"{word}={value}" if OPTIONS[word].range else word


def how_given(means: Means, unit: str, words: Sequence[str], edited: bool) -> Iterator[str]:
    """Yield how a server gets the module's options ``words`` other than by its command line.

    ``unit``: what makes the mount; ``edited``: whether its files change, too.
    """
    if not means.loaded:
        yield "the module fusetuned is not loaded; 'fusetune module load' loads it"
    if unit.endswith(".service"):
        order = ", after you have changed the files above" * edited
        options = ",".join(["tuned", *words])
        yield f"'fusetune enable {unit} -o {options}' gives the service the module's options{order}"


def tuned_type(fstype: str) -> str | None:
    """Return the type in fstab that makes a server use the module; None if unknown."""
    kind, dot, server = fstype.partition(".")
    if dot:
        return f"fusetune.{server}" if kind in ("fuse", "fusetune", "fuse3") and server else None
    return None if fstype in _NAMELESS else f"fusetune.{fstype}"
