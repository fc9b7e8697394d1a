# SPDX-License-Identifier: GPL-2.0-or-later
"""Results saved for a like volume elsewhere, for mounts that have none of their own."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fusetune.desired.results import Saved, all_saved
from fusetune.desired.volume import Volume
from fusetune.host import Host


@dataclass(frozen=True)
class Shared:
    """A result for a like volume, its file, and how many others are as like and not as new."""

    file: Path
    saved: Saved
    others: int


class SharedResults:
    """All saved results by what must be alike; read again once one is added or removed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._time: int | None = None
        self._by_kind: dict[tuple[object, ...], list[tuple[Path, Saved, Volume]]] = {}

    def best(self, volume: Volume, version: Callable[[], str | None]) -> Shared | None:
        """Return the result that is most like ``volume``, of equals the newest; None if none is.

        ``version``: finds the version of the volume's server, and is called only where results of
        several versions are as like.
        """
        self._refresh()
        found = [
            (volume.likeness(theirs), theirs.version, saved.time, file, saved)
            for file, saved, theirs in self._by_kind.get(_kind(volume), ())
        ]
        found = [one for one in found if one[0]]
        if not found:
            return None
        most = max(one[0] for one in found)
        found = [one for one in found if one[0] == most]
        if len({one[1] for one in found}) > 1:
            ours = version()
            found = [one for one in found if one[1] == ours] or found
        *_, file, saved = max(found, key=lambda one: one[2])
        return Shared(file, saved, len(found) - 1)

    def _refresh(self) -> None:
        directory = self._host.state_dir / "saved"
        time = directory.stat().st_mtime_ns if directory.exists() else None
        if time == self._time:
            return
        by_kind = defaultdict(list)
        for file, saved in all_saved(self._host):
            if saved.volume:
                by_kind[_kind(saved.volume)].append((file, saved, saved.volume))
        self._time, self._by_kind = time, by_kind


def _kind(volume: Volume) -> tuple[object, ...]:
    return volume.fstype, volume.server, volume.kernel, volume.owner_uid, volume.options
