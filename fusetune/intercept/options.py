# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``-o tuned,...`` may ask for where mounts are intercepted."""

import re
from collections.abc import Mapping

from fusetune.errors import UsageError
from fusetune.libfuse.options import OPTIONS, Option

TUNED, REQUIRED = "tuned", "tuned_required"
_SUMMARY = "the mount option of the module"
_FLAGS = (
    *("async_dio", "async_read", "atomic_open", "big_writes", "keep_cache", "no_access"),
    *("no_file_caps", "no_xattr", "parallel_direct_writes", "parallel_dirops", "parallel_extend"),
    "writeback_cache",
)
_NUMBERS = (
    *("attr_timeout", "congestion_threshold", "entry_timeout", "max_background", "max_pages"),
    *("max_readahead", "negative_timeout", "request_timeout"),
)

#: The mount options of the module, as options.c and forced.c of dkms/fusetuned/tuned have them.
MODULE_OPTIONS: Mapping[str, Option] = {
    **{name: Option(_SUMMARY) for name in _FLAGS},
    **{name: Option(_SUMMARY, "N", "[0-9]+") for name in _NUMBERS},
}


def is_ours(word: str) -> bool:
    """Return whether ``word``, NAME or NAME=VALUE, is for the module or says to use it."""
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
    """Return a list of options as the tuned libfuse takes them, which does not know all of ours."""
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
                f"{name!r} is no option of the module fusetuned, and this server does not use the "
                f"tuned libfuse; {known} are"
            )
        wanted = MODULE_OPTIONS[name].takes
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")
        found.append(word)
    return found
