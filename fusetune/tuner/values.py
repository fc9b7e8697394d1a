# SPDX-License-Identifier: GPL-2.0-or-later
"""The values of one run of ``auto`` on a locked mount: set, kept, or restored."""

import errno
from collections.abc import Mapping
from contextlib import suppress

from fusetune.bench.intervals import Interval
from fusetune.bench.place import failure
from fusetune.changes.apply import drop_if_undone, enforce, make, plan
from fusetune.changes.journal import PUT_BACK, Journal
from fusetune.changes.state import worth_keeping
from fusetune.desired.results import Run, save
from fusetune.errors import FusetuneError
from fusetune.host import Host
from fusetune.knobs import LIVE_BY_NAME, Absent, Knob, knobs_of
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount


def journal_of_run(host: Host, mount: Mount) -> Journal:
    """Return the journal for a new run, after restoring what a run that was killed has left.

    Raises FusetuneError.
    """
    journal = Journal.to_change(host, mount)
    found: dict[Knob, int] = {}
    for knob in knobs_of(host, mount):
        with suppress(Absent):
            before = journal.before_trials(knob.name, knob.read(host, mount))
            found |= {} if before is None else {knob: before}
    make(host, journal, plan(host, mount, found), PUT_BACK)
    return journal


class Values:
    """Writes values to a mount, after adding each to the journal; ``before``: the values found."""

    def __init__(self, host: Host, mount: Mount, before: dict[str, int], journal: Journal) -> None:
        self.host, self.mount, self.before, self.journal = host, mount, before, journal
        # If the journal cannot be written, fail now, before anything is measured.
        journal.append([])

    def set(self, setting: Mapping[str, int], why: str) -> None:
        """Write a setting, all or nothing. Raises FusetuneError if that fails."""
        values = {LIVE_BY_NAME[name]: value for name, value in setting.items()}
        try:
            make(self.host, self.journal, plan(self.host, self.mount, values), why)
        except FusetuneError as error:
            if still_mounted(self.host, self.mount):
                raise
            raise failure(self.mount, errno.ENODEV, "set values") from error

    def keep(self, after: Mapping[str, int], gain: Interval, run: Run | None = None) -> None:
        """Set ``after`` permanently and save it; if that fails, restore everything.

        ``run``: the measurements, from which a later run may start. If the kernel's defaults are
        best, that is saved as well, so that no result of a similar volume is used for this mount.
        """
        try:
            self.set(after, f"auto: gain {gain.ratio:.3f}")
            knobs = knobs_of(self.host, self.mount)
            kept = worth_keeping(knobs, after, self.journal.originals)
            ci95 = (gain.low, gain.high)
            save(self.host, self.mount, kept, "auto", gain.ratio, ci95, run)
        except (FusetuneError, OSError):
            self.put_back()
            raise

    def put_back(self) -> None:
        """Restore the initial values, even if the journal can no longer be written."""
        try:
            self.set(self.before, PUT_BACK)
        except FusetuneError:
            enforce(self.host, self.mount, self.before)
        drop_if_undone(self.host, self.journal, self.mount)
