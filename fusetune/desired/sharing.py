# SPDX-License-Identifier: GPL-2.0-or-later
"""Results saved for similar volumes elsewhere, for mounts without a result of their own."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fusetune.desired.results import Saved, all_saved
from fusetune.desired.volume import Volume
from fusetune.host import Host

#: By version of the server, the newest result.
_ByVersion = dict[str | None, "Shared"]


@dataclass(frozen=True)
class Shared:
    """The result of a similar volume, its file, and how many older ones are equally similar."""

    file: Path
    saved: Saved
    others: int


class SharedResults:
    """All saved results by what must match; read again when one is added or removed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._time: int | None = None
        self._newest: dict[tuple[object, ...], _ByVersion] = {}

    def best(self, volume: Volume, version: Callable[[], str | None]) -> Shared | None:
        """Return the newest result of the volumes most similar to ``volume``; None without one.

        ``version``: finds the version of the volume's server; only called if results of several
        versions are equally similar.
        """
        self._refresh()
        for likeness in volume.likenesses():
            if found := self._newest.get(likeness):
                ours = version() if len(found) > 1 else None
                if ours in found:
                    return found[ours]
                newest = max(found.values(), key=lambda one: one.saved.recency)
                others = sum(one.others + 1 for one in found.values()) - 1
                return Shared(newest.file, newest.saved, others)
        return None

    def _refresh(self) -> None:
        directory = self._host.state_dir / "saved"
        time = directory.stat().st_mtime_ns if directory.exists() else None
        if time == self._time:
            return
        newest: dict[tuple[object, ...], _ByVersion] = defaultdict(dict)
        for file, saved in sorted(all_saved(self._host), key=lambda one: one[1].recency):
            if not saved.volume:
                continue
            version = saved.volume.version
            for likeness in saved.volume.likenesses():
                before = newest[likeness].get(version)
                newest[likeness][version] = Shared(file, saved, before.others + 1 if before else 0)
        self._time, self._newest = time, dict(newest)
