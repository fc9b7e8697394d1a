# SPDX-License-Identifier: GPL-2.0-or-later
"""Saved profiles: the workloads that resemble a mount's real traffic."""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusetune.bench.workloads import SETS, WORKLOADS, WorkloadSet, chosen
from fusetune.desired.results import DAMAGED, saved_path
from fusetune.errors import FusetuneError, UsageError
from fusetune.files import write_whole
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.text import shell_word

#: The name of a mount's profile among workloads.
PROFILE = "profile"
_SCHEMA = 1


def profile_path(host: Host, mount: Mount) -> Path:
    """Return the file of the profile of ``mount``."""
    return host.state_dir / "profiles" / saved_path(host, mount).name


def save_profile(host: Host, mount: Mount, shares: Mapping[str, float], seconds: float) -> None:
    """Save the workloads' shares for this path, type and source, replacing earlier ones.

    ``seconds``: how long the mount was observed. Raises FusetuneError.
    """
    path = profile_path(host, mount)
    host.make_dir(path.parent)
    content = {
        "schema": _SCHEMA,
        "path": mount.first_path,
        "fstype": mount.fstype,
        "source": mount.source,
        "seconds": seconds,
        "time": time.time(),
        "shares": dict(shares),
    }
    write_whole(path, json.dumps(content, indent=2) + "\n")


def profile_of(host: Host, mount: Mount) -> WorkloadSet:
    """Return the saved profile of ``mount``. Raises FusetuneError without a usable one."""
    path, target = profile_path(host, mount), shell_word(mount.path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        shares = {name: float(share) for name, share in content["shares"].items()}
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(content["time"]))
        about = f"its traffic during {content['seconds']:.0f} s until {when}"
        usable = content["schema"] == _SCHEMA and _are_shares(shares)
    except FileNotFoundError:
        raise FusetuneError(
            f"no profile of this mount is saved; create one with 'fusetune profile {target}'"
        ) from None
    except (OSError, *DAMAGED) as error:
        raise FusetuneError(
            f"the profile {path} is damaged: {error!r}; create it again with 'fusetune profile "
            f"{target}'"
        ) from error
    if not usable:
        raise FusetuneError(
            f"the profile {path} was written by another version; create it again with 'fusetune "
            f"profile {target}'"
        )
    return WorkloadSet(PROFILE, about, shares)


def _are_shares(shares: Mapping[str, float]) -> bool:
    known = shares.keys() <= WORKLOADS.keys()
    return known and bool(shares) and all(0 < share <= 1 for share in shares.values())


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise UsageError if one of these names is neither a workload nor a set nor the profile."""
    chosen([name for name in names if name != PROFILE])


def sets_for(host: Host, mount: Mount | None, names: Sequence[str]) -> Mapping[str, WorkloadSet]:
    """Return the sets of workloads, with the profile of ``mount`` if it is among ``names``.

    Raises FusetuneError if it is, and there is no usable one.
    """
    if PROFILE not in names:
        return SETS
    if mount is None:
        raise UsageError("the workload 'profile' needs a mount")
    return {**SETS, PROFILE: profile_of(host, mount)}
