# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether this host's servers can get the module, and how; for advice on their mounts."""

from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.intercept.way import interceptor
from fusetune.kmod.kinds import named
from fusetune.kmod.state import installed_file, ours
from fusetune.libfuse.installed import directories
from fusetune.recipes.by_module import Means


def means_of(host: Host) -> Means | None:
    """Return how servers get the module, None if there is no module or no way to it."""
    (kind,) = named("fusetuned")
    loaded = ours(host, kind) is not None
    if not loaded and not installed_file(host, kind, host.read("proc/sys/kernel/osrelease")):
        return None
    try:
        interceptor(host)
    except FusetuneError:
        intercepts = False
    else:
        intercepts = True
    found = Means(loaded, intercepts, bool(directories(host)))
    return found if found.intercepts or found.library else None
