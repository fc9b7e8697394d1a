# SPDX-License-Identifier: GPL-2.0-or-later
"""The module fusetuned counts its mounts' requests itself: connections/N/statistics.

dkms/fusetuned/tuned/statistics.c says what each word of the file means.
"""

import select
import time

from fusetune.errors import FusetuneError, reason
from fusetune.host import Host
from fusetune.mounts.control import still_mounted
from fusetune.mounts.mount import Mount
from fusetune.profile.totals import Counts, Reading, Totals, operations_between
from fusetune.profile.traffic import Traffic
from fusetune.profile.watching import Progress, until_ended
from fusetune.signals import Signals
from fusetune.text import printable

#: Length of fuse_write_in (uapi linux/fuse.h), which WRITE sends before the data.
_WRITE_IN = 40


def parse_statistics(text: str) -> Counts:
    """Return the totals in the text of the file. Raises ValueError if it is not as it should."""
    found = {}
    for line in text.splitlines():
        name, *words = line.split()
        at = words.index("latency_us")
        numbers = dict(zip(words[:at:2], map(int, words[1:at:2]), strict=True))
        try:
            count, sent, received = (
                numbers[key] for key in ("count", "sent_bytes", "received_bytes")
            )
        except KeyError as error:
            raise ValueError(f"no {error} of {name}") from error
        # Bucket 0 is below 1 us, bucket n from 2^(n-1) to 2^n us.
        latency = {0.75 * (1 << n): int(word) for n, word in enumerate(words[at + 1 :])}
        nbytes = sent - _WRITE_IN * count if name == "WRITE" else received
        found[name] = Totals(count, nbytes, latency)
    return found


def read_statistics(host: Host, mount: Mount) -> Reading:
    """Return what the module has counted of a mount. The first reading begins the counting.

    Raises FusetuneError if the file cannot be read, or is not as it should be.
    """
    file = f"{mount.control}/{mount.connection}/statistics"
    try:
        return Reading(time.monotonic(), parse_statistics(host.read(file)))
    except OSError as error:
        raise FusetuneError(
            f"cannot read /{file}: {reason(error)}; run it as root, with the module as new as "
            "fusetune"
        ) from error
    except ValueError as error:
        raise FusetuneError(
            f"/{file} is not what this fusetune knows: {printable(str(error))}"
        ) from error


def watch_by_module(host: Host, mount: Mount, seconds: float, progress: Progress) -> Traffic:
    """Watch a mount of the module for ``seconds``, or until a signal comes or it is gone.

    Of a mount that goes, the last reading before that counts. Raises FusetuneError if the
    statistics cannot be read.
    """
    read_statistics(host, mount)
    before = after = read_statistics(host, mount).counts
    with Signals() as signals:

        def wait(most: float) -> bool:
            nonlocal after
            told = bool(select.select([signals], [], [], max(0.0, most))[0])
            try:
                after = read_statistics(host, mount).counts or after
            except FusetuneError:
                if still_mounted(host, mount):
                    raise
            return told

        watched = until_ended(host, mount, seconds, wait, progress)
    operations = operations_between(before, after)
    return Traffic(
        *(watched.seconds, "module", watched.ended, 0, operations),
        waiting=watched.waiting,
        queued=True,  # its latencies have the wait for a place among max_background
    )
