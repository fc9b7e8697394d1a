# SPDX-License-Identifier: GPL-2.0-or-later
"""Run all checks or those named, in their order in the source, and measurements if named.

Prints a line of JSON for each check.
"""

import json
import os
import re
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.kernel.guest import (
    atomic_open,
    atomic_open_faults,
    cost,
    extend,
    extend_async,
    f2fs,
    faults,
    forced,
    forced_data,
    forced_writeback,
    fuzz,
    hostile,
    interception,
    library,
    library_atomic_open,
    memory,
    options,
    overruled,
    pages,
    papers,
    passthrough,
    profiling,
    programs,
    servers,
    shared,
    statistics,
    tool,
    writes,
)
from tests.kernel.guest import module as module_checks
from tests.kernel.guest.rig import SLOWNESS, run, set_pipe_limit
from tests.native.mirror import Mirror, unmount

#: What the kernel logs when something is wrong.
_SPLAT = re.compile(
    r"WARNING:|BUG[ :]|UBSAN:|Oops|Call Trace|INFO: |refcount_t|general protection"
    r"|leaked"
)


def _said(log: int) -> list[str]:
    """Return the lines that the kernel has logged since the last call."""
    lines: list[str] = []
    while True:
        try:
            said = os.read(log, 8192).decode(errors="replace").partition(";")[2]
            lines.append(said.splitlines()[0])
        except BlockingIOError:
            return lines
        except BrokenPipeError:
            continue  # overwritten before it was read


def _stacks() -> str:
    """Return the kernel stack of each thread that waits for FUSE."""
    found = []
    for task in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        try:
            name, stack = (task / "comm").read_text().strip(), (task / "stack").read_text()
        except OSError:
            continue  # ended meanwhile
        if "fuse" in stack:
            found.append(f"{name} {task.name}:\n{stack}")
    return "\n".join(found)


@contextmanager
def _limited(check: str, seconds: float) -> Iterator[None]:
    """If a check takes too long, report what waits and end the machine: that beats a hang."""

    def ended() -> None:
        why = f"not ended after {seconds:.0f} s; in the kernel wait:\n{_stacks()}"
        _report(check, seconds, why)
        termios.tcdrain(sys.stdout.fileno())
        Path("/proc/sysrq-trigger").write_text("b")

    timer = threading.Timer(seconds, ended)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _races(lines: list[str]) -> dict[str, str]:
    """Return the races that KCSAN saw: the first report of each pair of functions."""
    found: dict[str, str] = {}
    text = "\n".join(lines)
    for race, report in re.findall(r"^BUG: KCSAN: (.*)\n((?:(?!={60}).*\n)*)", text, re.MULTILINE):
        found.setdefault(re.sub(r"\+0x\w+/0x\w+", "", race), report)
    return found


def _report(check: str, seconds: float, failure: str, **more: object) -> None:
    entry: dict[str, Any] = {"check": check, "seconds": round(seconds, 1), "failure": failure}
    print(json.dumps({**entry, "value": None, **more}), flush=True)


def _of(*modules: ModuleType) -> dict[str, Callable[[], object]]:
    return {
        name: check
        for module in modules
        for name, check in vars(module).items()
        if name.startswith(("check_", "measure_"))
    }


def checks() -> dict[str, Callable[[], object]]:
    """Return all checks by name, in order."""
    return _of(
        *(module_checks, pages, options, forced, forced_writeback),
        *(writes, extend, extend_async, passthrough),
        *(atomic_open, atomic_open_faults, programs, forced_data, statistics, fuzz, hostile),
        *(interception, servers, library, library_atomic_open, tool, profiling, f2fs),
    )


def special() -> dict[str, Callable[[], object]]:
    """Return what runs only if it is named, in machines started for that."""
    return _of(memory, cost, shared, papers, overruled, faults)


def main() -> None:
    """Run the checks and report on each."""
    if not Path("/rig/start").exists():
        sys.exit("guest: for a virtual machine of tests/kernel only")
    Mirror.lifetime = 900 * SLOWNESS  # everything is slow here, and ends with the machine
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    _said(log)
    # The server's own directory must not be on a read-only file system.
    os.environ["TMPDIR"] = "/tmp"  # noqa: S108
    run("modprobe", "fuse")
    wanted = sys.argv[1:] or checks().keys()
    for name, check in (checks() | special()).items():
        if name not in wanted:
            continue
        set_pipe_limit(1 << 20)
        started, failure, value = time.monotonic(), "", None
        try:
            with _limited(name, Mirror.lifetime) if name in checks() else nullcontext():
                value = check()
        except Exception:  # noqa: BLE001
            failure = traceback.format_exc()
            for point in ("/mnt/tuned", "/mnt/stock"):
                unmount(Path(point))
        said = _said(log)
        complaints = (line for line in said if _SPLAT.search(line) and "KCSAN" not in line)
        failure += "".join(f"kernel: {line}\n" for line in complaints)
        seconds = time.monotonic() - started
        _report(name, seconds, failure, value=value, races=_races(said))
    _report("end", 0, "")


if __name__ == "__main__":
    main()
