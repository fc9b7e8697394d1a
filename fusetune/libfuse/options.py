# SPDX-License-Identifier: GPL-2.0-or-later
"""The options of the tuned libfuse3, and their check."""

import re
from collections.abc import Mapping

from fusetune.errors import UsageError

#: Carries options to a server whose own parser would reject them; libfuse/tuned/channels.c.
OPTIONS_VARIABLE = "FUSETUNE_OPTIONS"
_NUMBER, _SIZE = r"[0-9]+", r"[0-9]+[KMG]?"
_WAYS = "(?:read|write|move)"
#: What each option takes, as libfuse/tuned/options.c has them; None: no value.
OPTIONS: Mapping[str, str | None] = {
    "max_pages": _NUMBER,
    "max_write": _SIZE,
    "max_readahead": _SIZE,
    "max_background": _NUMBER,
    "congestion_threshold": _NUMBER,
    "max_threads": _NUMBER,
    "splice": rf"off|{_WAYS}(?:\+{_WAYS})*",
    "writeback_cache": None,
    "direct_io": None,
    "parallel_direct_writes": None,
    "clone_fd": None,
    "io_uring": None,
    "no_file_caps": None,
    "atomic_open": None,
    "tuned": None,
    "tuned_if_possible": None,
}


def check_options(text: str) -> None:
    """Raise UsageError unless ``text`` is a list of options as the library takes them.

    Whether a value can be had is for the library to say: that depends on kernel and server.
    """
    for word in filter(None, text.split(",")):
        name, equal, value = word.partition("=")
        if name not in OPTIONS:
            raise UsageError(
                f"{name!r} is no option of the tuned libfuse; {', '.join(OPTIONS)} are"
            )
        wanted = OPTIONS[name]
        if equal != "" if wanted is None else not re.fullmatch(wanted, value):
            raise UsageError(f"{word!r}: {name} takes {'no value' if wanted is None else wanted}")
