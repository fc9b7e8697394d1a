# SPDX-License-Identifier: GPL-2.0-or-later
"""A hostile server: tests/kernel/hostile."""

import json
from pathlib import Path
from typing import Any

from tests.kernel.guest.rig import load, run, unload
from tests.native.mirror import CHECKOUT

#: Enough for dozens of each kind of lie; takes some ten seconds here.
_REPLIES = 3000
_SEED = 13


def _told(*more: str) -> dict[str, Any]:
    """Run the server, and return how often it did what."""
    load()
    point = Path("/mnt/hostile")
    point.mkdir(exist_ok=True)
    program = CHECKOUT / "build" / "hostile"
    words = (str(_SEED), str(_REPLIES), "unmapped", *more)
    done = run(program, "fusetuned", point, *words, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["replies"] >= _REPLIES, told
    assert told["mounts"] >= 5, told
    # The number depends on when the clients run.
    assert told["tuned_opens"] > 3, told
    assert all(told[lie] for lie in ("error", "short", "long", "noise", "late", "notify")), told
    unload()
    return told


def check_hostile_server() -> dict[str, Any]:
    """The kernel does not complain, all mounts end, and the module can be unloaded."""
    return _told()


def check_hostile_server_with_every_option() -> dict[str, Any]:
    """The same if each mount has all options, including those that override the server."""
    return _told("every")
