# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of ``-o tuned,...`` for intercepted mounts."""

import re
from collections.abc import Mapping

from fusetune.errors import UsageError
from fusetune.kmod import options as kmod
from fusetune.libfuse.options import OPTIONS, Option

TUNED, REQUIRED = "tuned", "tuned_required"

#: Patterns of the module's mount options.
MODULE_OPTIONS: Mapping[str, Option] = {
    name: Option(one.about, one.value, "[0-9]+" if one.range else None)
    for name, one in kmod.OPTIONS.items()
}


def is_ours(word: str) -> bool:
    """Return whether ``word``, NAME or NAME=VALUE, is for the module or requests it."""
    return word.partition("=")[0] in {TUNED, REQUIRED, *MODULE_OPTIONS}


def wants_module(options: str) -> bool:
    """Return whether a list of options asks for the module."""
    return bool({TUNED, REQUIRED} & set(options.split(",")))


def needs_module(options: str) -> bool:
    """Return whether a list has an option of the module that the tuned libfuse does not have."""
    return any(
        word.partition("=")[0] in MODULE_OPTIONS.keys() - OPTIONS for word in options.split(",")
    )


def library_options(options: str) -> str:
    """Return a list of options for the tuned libfuse, which does not accept all of ours."""
    return ",".join(TUNED if word == REQUIRED else word for word in options.split(",") if word)


def module_options(options: str) -> list[str]:
    """Return the module's mount options of a list. Raises UsageError for any other word."""
    found = []
    for word in filter(None, options.split(",")):
        name, equal, value = word.partition("=")
        if word in {TUNED, REQUIRED}:
            continue
        if name not in MODULE_OPTIONS:
            known = ", ".join([TUNED, REQUIRED, *MODULE_OPTIONS])
            raise UsageError(
                f"{name!r} is not an option of the module fusetuned, and this server does not use "
                f"the tuned libfuse3; give one of {known}"
            )
        wanted = MODULE_OPTIONS[name].takes
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")
        found.append(word)
    return found
