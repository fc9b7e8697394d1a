# SPDX-License-Identifier: GPL-2.0-or-later
"""kill -9 at any step of set and reset: a later reset restores every original value.

strace kills the program as it enters the N-th call of a kind that touches its own or the kernel's
files, for every N until there is no such call. So each run ends between two such calls, or after
the last.
"""

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fusetune.changes.apply import set_knobs
from fusetune.desired.reset import reset
from fusetune.knobs import SYSTEM, Scope, parse_assignments
from tests.native.conftest import requires, sysfs_files, sysfs_values, write_sysfs
from tests.native.mirror import Mirror
from tests.native.program import Fusetune

pytestmark = requires("strace")

# No lasting change happens between two of these. Each entry has the names of one call; the second
# name is for kernels without the first (arm64).
CALLS = [
    "openat",
    "write",
    "pwrite64",
    "fsync",
    "ftruncate",
    "flock",
    "?unlink,?unlinkat",
    "?mkdir,?mkdirat",
]
FOUND = {
    "read_ahead_kb": 256,
    "max_background": 13,
    "congestion_threshold": 7,
    "max_ratio": 3,
    "strict_limit": 0,
}
NEW = {
    "read_ahead_kb": 1024,
    "max_background": 64,
    "congestion_threshold": 48,
    "max_ratio": 20,
    "strict_limit": 1,
}


def words(values: dict[str, int]) -> tuple[str, ...]:
    return tuple(f"{name}={value}" for name, value in values.items())


def set_now(fusetune: Fusetune, bdi: str, values: dict[str, int]) -> None:
    """Set with the library in this process, because only the killed run must be a program."""
    wanted = parse_assignments(words(values), Scope.MOUNT)
    set_knobs(fusetune.host, fusetune.find(bdi), wanted)


def killed(
    fusetune: Fusetune, bdi: str, call: str, arguments: tuple[str, ...]
) -> Iterator[Callable[[], bool]]:
    """Yield a run for each N; it returns whether the program was killed."""
    state = fusetune.state
    paths = [
        *(state, state / "undo", state / "undo" / f"{bdi}.journal"),
        *(fusetune.run, fusetune.run / f"{bdi}.lock", *sysfs_files(bdi).values()),
    ]
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}"]
    strace += [word for path in paths for word in ("-P", str(path))]
    going_on = True
    number = 0

    def run() -> bool:
        nonlocal going_on
        inject = f"inject={call}:signal=KILL:when={number}"
        done = fusetune(*arguments, before=[*strace, "-e", inject, "--"])
        assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        going_on = done.returncode != 0
        return going_on

    while going_on:
        number += 1
        assert number < 200
        yield run


def as_found(fusetune: Fusetune, bdi: str) -> None:
    """The original mount: an administrator's values, and no record."""
    write_sysfs(bdi, **FOUND)
    for directory in (fusetune.state, fusetune.run):
        shutil.rmtree(directory, ignore_errors=True)


def brought_back(fusetune: Fusetune, bdi: str, where: str, *, by_program: bool) -> None:
    """A reset restores every value without complaint, and then the record is empty.

    Starting the program would take much longer than the reset.
    """
    if by_program:
        done = fusetune("reset", bdi)
        assert (done.returncode, done.stderr) == (0, ""), where
    else:
        reset(fusetune.host, fusetune.find(bdi))
    assert sysfs_values(bdi) == FOUND, where
    assert not list((fusetune.state / "undo").glob("*")), where
    # A note that the values were reset on request stays as long as the mount.
    assert {file.name for file in fusetune.run.iterdir()} <= {f"{bdi}.left"}, where


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("case", ["first-set", "second-set", "partly-back", "reset"])
def test_kill_at_any_step(fusetune: Fusetune, mirror: Mirror, case: str, call: str) -> None:
    """``partly-back``: a set that restores some knobs and changes others."""
    bdi = mirror.bdi
    arguments: dict[str, tuple[str, ...]] = {
        "first-set": ("set", bdi, *words(NEW)),
        "second-set": ("set", bdi, *words({"max_ratio": 50, "read_ahead_kb": 64})),
        "partly-back": ("set", bdi, *words(FOUND | {"read_ahead_kb": 64})),
        "reset": ("reset", bdi),
    }
    kills = 0
    for run in killed(fusetune, bdi, call, arguments[case]):
        as_found(fusetune, bdi)
        if case != "first-set":
            set_now(fusetune, bdi, NEW)
        kills += run()
        where = f"{case}, killed in {call} {kills}"
        brought_back(fusetune, bdi, where, by_program=kills <= 1)
    steps = {"openat": 6, "write": 1, "flock": 1}
    assert kills >= steps.get(call, 0), "the program did less than it must"


@pytest.mark.alone
def test_kill_at_any_step_on_the_host(fusetune: Fusetune) -> None:
    """As for mounts, but with one knob, because it affects the whole host."""
    knob = next(knob for knob in SYSTEM if knob.name == "fs.pipe-max-size")
    file = Path("/") / knob.file
    found = int(file.read_text())
    for number in range(1, 50):
        strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(file)]
        strace += ["-e", "trace=openat,write"]
        inject = f"inject=openat,write:signal=KILL:when={number}"
        done = fusetune(
            *("set", "host", f"fs.pipe-max-size={found * 2}"),
            before=[*strace, "-e", inject, "--"],
        )
        reset(fusetune.host, None)
        assert int(file.read_text()) == found
        if done.returncode == 0:
            assert number > 2
            return
    pytest.fail("it was killed every time")
