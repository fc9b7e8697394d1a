# SPDX-License-Identifier: GPL-2.0-or-later
"""Change files behind a mount, and see when a program notices that through the mount."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

_OLD, _NEW = b"old!" * 2048, b"new!" * 2048
_WAIT = 0.05  # seconds between two observations
#: How many observations later an equally fast mount may show a change.
_SLACK = 6


# What another client does


def _grow(path: Path) -> None:
    with path.open("ab") as stream:
        stream.write(_NEW)


def _shrink(path: Path) -> None:
    os.truncate(path, 100)


def _rewrite(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.write(_NEW)


def _rewrite_quietly(path: Path) -> None:
    status = path.stat()
    _rewrite(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(_NEW[:100])
    other.rename(path)


def _create(path: Path) -> None:
    path.write_bytes(_NEW)


def _create_below(path: Path) -> None:
    (path / "name").touch()


# What a program looks at


def _size(path: Path) -> object:
    return path.stat().st_size


def _content(path: Path) -> object:
    return path.read_bytes()


def _names(path: Path) -> object:
    return sorted(os.listdir(path))


@dataclass(frozen=True)
class Change:
    """A change by another client to a path, and what a program observes.

    ``look``: None means the contents of a file that the program opened before.
    """

    act: Callable[[Path], None]
    look: Callable[[Path], object] | None


CHANGES: Mapping[str, Change] = {
    "size, grown": Change(_grow, _size),
    "size, shrunk": Change(_shrink, _size),
    "size, replaced": Change(_replace, _size),
    "size, removed": Change(Path.unlink, _size),
    "size, created": Change(_create, _size),
    "content, rewritten": Change(_rewrite, _content),
    "content, rewritten with old times": Change(_rewrite_quietly, _content),
    "content, replaced": Change(_replace, _content),
    "open, rewritten": Change(_rewrite, None),
    "open, rewritten with old times": Change(_rewrite_quietly, None),
    "open, grown": Change(_grow, None),
    "names": Change(_create_below, _names),
}


def fill(behind: Path) -> None:
    """Create what `CHANGES` change."""
    for name, one in CHANGES.items():
        if one.look is _names:
            (behind / name).mkdir()
        elif one.act is not _create:
            (behind / name).write_bytes(_OLD)


def _change(behind: Path) -> None:
    for name, one in CHANGES.items():
        one.act(behind / name)


class View:
    """What a program sees below ``root``; it keeps the files open that it opened before."""

    def __init__(self, root: Path) -> None:
        self._root = root
        _names(root / "names")  # mergerfs keeps the kernel's cached listing
        held = (name for name, one in CHANGES.items() if one.look is None)
        self._open = {name: (root / name).open("rb", buffering=0) for name in held}

    def close(self) -> None:
        """Close the open files."""
        for stream in self._open.values():
            with suppress(OSError):  # rclone reports here that the file has changed
                stream.close()

    def seen(self) -> dict[str, object]:
        """Return what each change shows."""
        return {name: self._seen(name, one.look) for name, one in CHANGES.items()}

    def _seen(self, name: str, look: Callable[[Path], object] | None) -> object:
        """Return what is found, or the errno."""
        try:
            if look:
                return look(self._root / name)
            self._open[name].seek(0)
            return self._open[name].read()
        except OSError as error:
            return error.errno


def seen_later(
    before: tuple[Path, Path], after: tuple[Path, Path], looks: int
) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    """Make `CHANGES` in two trees and observe them through their mounts, up to ``looks`` times.

    ``before``, ``after``: a mount and the directory behind it. After each observation, yield the
    changes that the second mount shows later than the first, and those that the first has shown.
    The second is observed first before the changes and last after them, so a slow host does not
    make it late.
    """
    with closing(View(after[0])) as new, closing(View(before[0])) as old:
        new.seen()
        old.seen()
        for tree in (after[1], before[1]):
            _change(tree)
        with closing(View(before[1])) as there:
            wanted = there.seen()
        early: dict[str, int] = {}  # the number of the first observation that shows a change
        again: dict[str, int] = {}
        for number in range(looks):
            for view, first in ((old, early), (new, again)):
                seen = view.seen()
                shown = (name for name in wanted if seen[name] == wanted[name])
                first.update({name: number for name in shown if name not in first})
            yield _late(early, again, number + 1), frozenset(early)
            if len(early) == len(again) == len(wanted):
                return
            time.sleep(_WAIT)


def _late(old: Mapping[str, int], new: Mapping[str, int], never: int) -> frozenset[str]:
    """Return what the new mount did not show within `_SLACK` observations of the old one."""
    return frozenset(name for name, first in old.items() if new.get(name, never) > first + _SLACK)
