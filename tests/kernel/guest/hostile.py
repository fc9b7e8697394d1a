# SPDX-License-Identifier: GPL-2.0-or-later
"""A server that lies, as tests/kernel/hostile has it."""

import json
from pathlib import Path
from typing import Any

from tests.kernel.guest.rig import load, run, unload
from tests.native.mirror import CHECKOUT

#: Enough for each kind of lie to be told dozens of times, in some ten seconds here.
_REPLIES = 3000
_SEED = 13


def check_hostile_server() -> dict[str, Any]:
    """The kernel complains of nothing, all mounts end, and the module can go afterwards."""
    load()
    point = Path("/mnt/hostile")
    point.mkdir(exist_ok=True)
    program = CHECKOUT / "build" / "hostile"
    words = ("fusetuned", point, str(_SEED), str(_REPLIES), "unmapped")
    done = run(program, *words, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["replies"] >= _REPLIES, told
    assert told["mounts"] >= 5, told
    assert told["tuned_opens"] > 10, told
    assert all(told[lie] for lie in ("error", "short", "long", "noise", "late", "notify")), told
    unload()
    return told
