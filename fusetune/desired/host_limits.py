# SPDX-License-Identifier: GPL-2.0-or-later
"""The host's limits that a mount needs, and raising them before it is mounted.

A server that asks for more than 256 pages per request gets at most fs.fuse.max_pages_limit
(fs/fuse/inode.c, process_init_reply()), or max_pages_per_req from the module fusetuned. It only
splices what fits into a pipe, which is at most fs.pipe-max-size (fs/pipe.c, pipe_set_size()).
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fusetune.changes.apply import Change, drop_if_undone, make
from fusetune.changes.journal import NEEDED, Journal, journal_path
from fusetune.changes.lock import Busy, Lock
from fusetune.changes.policy import excluded_reason
from fusetune.desired.config import load
from fusetune.desired.results import Saved, Unusable, saved_at, saved_for
from fusetune.desired.sections import Config, Described, Section, Settings, ranked
from fusetune.errors import FusetuneError, UsageError, reason
from fusetune.host import Host
from fusetune.intercept.way import without_prefix
from fusetune.knobs import SYSTEM, Absent, Knob, parse_number
from fusetune.mounts.daemons import Daemons
from fusetune.mounts.discover import discover
from fusetune.mounts.mount import Mount
from fusetune.toml.file import ConfigError

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STOCK_PAGES = 256  # FUSE_DEFAULT_MAX_PAGES_LIMIT, fs/fuse/fuse_i.h
_KNOBS = {knob.name: knob for knob in SYSTEM}
_PIPE, _PAGES = _KNOBS["fs.pipe-max-size"], _KNOBS["fs.fuse.max_pages_limit"]
_TUNED_PAGES = _KNOBS["max_pages_per_req"]
_PATIENCE, _TICK = 5.0, 0.02
_SYSTEMCTL_SECONDS = 10


@dataclass(frozen=True)
class Needs:
    """What a mount needs: ``pages`` per request, ``pipe`` in bytes; 0: the defaults suffice.

    ``tuned``: whether the module fusetuned may serve it.
    """

    pages: int = 0
    pipe: int = 0
    tuned: bool = False

    def __or__(self, other: "Needs") -> "Needs":
        return Needs(
            max(self.pages, other.pages), max(self.pipe, other.pipe), self.tuned or other.tuned
        )

    def values(self, settings: Settings) -> dict[Knob, int]:
        """Return the least value of each limit, bounded by the policy."""
        pages = min(self.pages, settings.max_pages)
        # libfuse's buffer has a page for the header (lib/fuse_lowlevel.c); the kernel rounds up.
        wanted = max(self.pipe, (pages + 1) * _PAGE if pages else 0)
        most = 1 << settings.max_pipe_size.bit_length() - 1
        found = {}
        if wanted:
            found[_PIPE] = min(1 << (wanted - 1).bit_length(), most)
        if pages:
            found[_PAGES] = pages
        if pages and self.tuned:  # the module accepts no more than a pipe holds
            found[_TUNED_PAGES] = min(pages, found[_PIPE] // _PAGE)
        return found


@dataclass(frozen=True)
class Raised:
    """The result of raising limits: ``changes`` made; ``left``: why some were not raised."""

    changes: list[Change] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def of_options(text: str) -> Needs:
    """Return what options of the tuned libfuse or of a server need; ``text``: the value of -o."""
    found = Needs()
    for word in text.split(","):
        name, _, value = word.partition("=")
        with suppress(UsageError):  # the library or the server reports what is wrong with it
            if name == "max_pages":
                found |= Needs(pages=parse_number(value))
            elif name == "max_write":
                found |= Needs(pages=-(-parse_number(value) // _PAGE))
        found |= Needs(tuned=name == "tuned")
    return found


def of_mount(host: Host, config: Config, mount: Mount, servers: Daemons) -> Needs:
    """Return what ``mount`` needs at its next mount, from configuration and saved results."""
    if excluded_reason(mount, config.settings.exclude):
        return Needs()
    saved = None
    with suppress(Unusable):  # reported when its values are set
        saved = saved_for(host, mount)
    found = _of_sections(config.matching(host, mount, servers), [saved] if saved else [])
    return Needs(tuned=mount.is_tuned_type) | found


def of_command(host: Host, config: Config, words: Sequence[str]) -> Needs:
    """Return what the mount made by the command ``words`` needs, including its own options.

    Only the server knows which word is the mount point or source, so every word is tried.
    """
    program, *rest = words
    name = os.path.basename(program)
    described = Described(
        paths=[os.path.abspath(word) for word in rest],
        sources=rest,
        fstypes=["fuse", f"fuse.{name}", f"fusetuned.{name}"],
        servers=lambda: [shutil.which(program) or program],
    )
    saved = [one for path in described.paths for _, one in saved_at(host, path)]
    found = _of_sections(config.matching_any(described), saved)
    for word in rest:
        found |= of_options(word)
    return found


def _of_sections(sections: Iterable[Section], saved: Iterable[Saved]) -> Needs:
    found = Needs()
    in_order = ranked(list(sections))
    for section in in_order:
        if section.leave_alone is not None:
            if section.leave_alone:
                return found
            break
    needs: dict[str, int] = {}
    for section in in_order:
        needs = {**section.needs, **needs}
        if "max_pages" in section.values:
            needs.setdefault("max_pages", section.values["max_pages"])
    options = next((one.options for one in in_order if one.options is not None), "")
    kept = (one.values.get("max_pages", 0) for one in saved)
    pages = max(needs.get("max_pages", 0), -(-needs.get("max_write", 0) // _PAGE), *kept, 0)
    return Needs(pages, needs.get("pipe_max_size", 0)) | of_options(options)


def raise_limits(
    host: Host,
    needs: Needs,
    settings: Settings,
    *,
    dry_run: bool = False,
    patience: float = _PATIENCE,
) -> Raised:
    """Raise the host's limits to what ``needs`` asks for; none is lowered.

    A limit that the administrator set, with `set` or by hand after us, is not touched. Raises
    `Busy` if another fusetune works on the host for longer than ``patience`` seconds,
    FusetuneError if journal or kernel prevents it.
    """
    wanted = needs.values(settings)
    if not _missing(host, wanted):
        return Raised()
    if dry_run:
        return _to_raise(host, Journal(host, None), wanted)
    with _patient_lock(host, patience):
        journal = Journal.to_change(host, None)
        raised = _to_raise(host, journal, wanted)
        make(host, journal, raised.changes, NEEDED)
    return raised


def _missing(host: Host, wanted: Mapping[Knob, int]) -> dict[Knob, int]:
    """Return the present value of each limit that exists and is below the wanted one."""
    found = {}
    for knob, value in wanted.items():
        with suppress(Absent):
            now = knob.read(host, None)
            # 0: as the kernel's FUSE.
            if (now or _STOCK_PAGES) < value:
                found[knob] = now
    return found


def _to_raise(host: Host, journal: Journal, wanted: Mapping[Knob, int]) -> Raised:
    changes, left = [], []
    wanted = dict(wanted)
    for knob, now in _missing(host, wanted).items():
        last, value = journal.last(knob.name), wanted[knob]
        if last and (last.why != NEEDED or last.new != now):
            left.append(
                f"{knob.name}={now} was set by the administrator and is kept, but {value} is needed"
            )
            if knob == _PIPE and _TUNED_PAGES in wanted:  # the module accepts no more
                wanted[_TUNED_PAGES] = min(wanted[_TUNED_PAGES], now // _PAGE)
        elif value > (now or _STOCK_PAGES):
            changes.append(Change(knob, None, host.path(knob.file), now, value))
    return Raised(changes, left)


@contextmanager
def _patient_lock(host: Host, patience: float) -> Iterator[None]:
    """Take the host's lock, waiting for it: at boot, many mounts need it at the same time."""
    end = time.monotonic() + patience
    while True:
        try:
            lock = Lock(host, None)
        except Busy:
            if time.monotonic() >= end:
                raise
            time.sleep(_TICK)
            continue
        with lock:
            yield
        return


def prepare(host: Host, words: Sequence[str], options: str) -> str | None:
    """Raise the host's limits for the mount that the command ``words`` is about to make.

    ``options``: of the tuned libfuse. Does nothing unless run by root. A failure must not prevent
    the mount, so it is returned as a sentence; None if all is well.
    """
    if os.geteuid():
        return None
    try:
        config = load(host)
        needs = of_options(options) | of_command(host, config, words)
        left = raise_limits(host, needs, config.settings).left
    except FusetuneError as error:
        return f"the host's limits were not changed: {error}"
    return "; ".join(left) or None


def unit_command(unit: str) -> list[str]:
    """Return the command of a service as systemd has it. Raises FusetuneError."""
    ask = ["systemctl", "show", "--property=ExecStart", "--value", "--", unit]
    try:
        said = subprocess.run(
            ask, check=True, capture_output=True, text=True, timeout=_SYSTEMCTL_SECONDS
        )
    except subprocess.SubprocessError as error:
        raise FusetuneError(f"cannot ask systemd for the command of {unit}: {error}") from error
    except OSError as error:
        raise FusetuneError(f"cannot run systemctl: {reason(error)}") from error
    match = re.search(r"argv\[\]=(.*?) ;", said.stdout)
    if not match:
        raise FusetuneError(f"{unit} has no ExecStart=; see 'systemctl cat {unit}'")
    return without_prefix(match[1].split())


def release(host: Host, besides: Mount | None, *, dry_run: bool = False) -> list[Change]:
    """Lower limits that were raised for mounts and are no longer needed by any except ``besides``.

    None: whatever mounts need. Raises FusetuneError if journal or kernel prevents it.
    """
    if not journal_path(host, None).exists():
        return []
    try:
        config = load(host)
    except ConfigError:
        return []  # the needs of other mounts are unknown
    servers, needs = Daemons(host), Needs()
    for mount in discover(host) if besides else ():
        if besides and mount.device != besides.device:
            needs |= of_mount(host, config, mount, servers)
    wanted = needs.values(config.settings)
    if dry_run:
        return _to_release(host, Journal(host, None), wanted)
    with _patient_lock(host, _PATIENCE):
        journal = Journal.to_change(host, None)
        changes = _to_release(host, journal, wanted)
        make(host, journal, changes, NEEDED)
        drop_if_undone(host, journal, None)
    return changes


def _to_release(host: Host, journal: Journal, wanted: Mapping[Knob, int]) -> list[Change]:
    changes = []
    for knob in (_TUNED_PAGES, _PAGES, _PIPE):
        back = journal.before(knob.name, NEEDED)
        with suppress(Absent):
            now = knob.read(host, None)
            last = journal.last(knob.name)
            ours = last and last.why == NEEDED and last.new == now
            needless = back is not None and wanted.get(knob, 0) <= (back or _STOCK_PAGES)
            if ours and back is not None and needless and back != now:
                changes.append(Change(knob, None, host.path(knob.file), now, back))
    return changes
