# SPDX-License-Identifier: GPL-2.0-or-later
"""When the service acts, with a clock and events of the test's own.

Shows that it sets values once INIT is answered, how long it waits for what, what it tells systemd
(sd_notify(3)), and when it ends. The server's reply to INIT overwrites values that were set before
it (fs/fuse/inode.c, process_init_reply()). tests/native/test_watch.py runs it on real mounts.
"""

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fusetune.changes.journal import Journal
from fusetune.changes.lock import Lock
from fusetune.desired import events, watch
from fusetune.desired.events import Events, Signals
from fusetune.desired.reconcile import Reconciled, reconcile
from fusetune.errors import FusetuneError
from fusetune.toml.file import ConfigError
from tests.unit.conftest import STOCK, Tree, process

CONFIG = "[[mount]]\nmax_background = 64\n"
SET = "/mnt/one (0:40, fuse.mirrorfs): max_background 12 -> 64 ({}/etc/fusetune.toml:2)"

#: What happens while the service waits for so many seconds; True: mounts may have come or gone.
Step = Callable[[float], bool | None]


class Stage:
    """One run of the service, whose every wait is a step of the test's."""

    def __init__(self, tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree = tree
        self.now = self.start = 1000.0
        self.waits: list[float] = []
        self.slept: list[float] = []
        self.said: list[str] = []
        self.notified: list[str] = []
        self.values_when_ready: dict[str, int] = {}
        self.last: Step = lambda seconds: False
        self._steps: list[Step] = []
        monkeypatch.delenv("WATCHDOG_USEC", raising=False)
        monkeypatch.setattr(
            watch, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep)
        )
        monkeypatch.setattr(watch, "daemon", SimpleNamespace(notify=self._notify))
        waiter = SimpleNamespace(wait=self._wait, close=lambda: None)
        monkeypatch.setattr(watch, "Events", lambda host, signals: waiter)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def _notify(self, text: str) -> None:
        if not self.notified and (self.tree.root / "sys/class/bdi/0:40").exists():
            self.values_when_ready = self.tree.values()
        self.notified.append(text)

    def _wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        if "STOPPING=1" in self.notified and not seconds:
            last, self.last = self.last, lambda seconds: False
            return bool(last(seconds))
        if not self._steps:
            os.kill(os.getpid(), signal.SIGTERM)
            return False
        return bool(self._steps.pop(0)(seconds))

    def run(self, *steps: Step, config: str = CONFIG, idle: float | None = 0) -> None:
        """Serve until the steps are over, then until SIGTERM."""
        self._steps = list(steps)
        self.tree.write("etc/fusetune.toml", config)
        watch.Watch(self.tree.host, self.said.append, idle).run()

    @property
    def unused(self) -> int:
        """How many steps were not reached."""
        return len(self._steps)

    def pass_all(self, seconds: float) -> bool:
        """Let the time pass that the service waits for."""
        self.now += seconds
        return False

    def passing(self, seconds: float) -> Step:
        """Let so many seconds pass."""

        def step(_: float) -> bool:
            self.now += seconds
            return False

        return step

    def come(self, _: float = 0, number: int = 40, waiting: int = 0) -> bool:
        """Mount a file system."""
        self.tree.mount("/mnt/one" if number == 40 else f"/mnt/{number}", device=f"0:{number}")
        self.tree.live(bdi=f"0:{number}", connection=str(number), waiting=waiting)
        return True

    def answer(self, _: float = 0) -> bool:
        """Reply to INIT, which sets a value of the server's."""
        self.tree.write("sys/fs/fuse/connections/40/waiting", "0\n")
        self.tree.write("sys/fs/fuse/connections/40/max_background", "30\n")
        return False

    def background(self, number: int = 40) -> int:
        """Return max_background of a mount."""
        return int(self.tree.read(f"sys/fs/fuse/connections/{number}/max_background"))


@pytest.fixture
def stage(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tree, monkeypatch)


# When a mount is set


def test_mounts_are_set_before_it_is_ready(stage: Stage) -> None:
    stage.come()
    stage.run()
    assert stage.values_when_ready == STOCK | {"max_background": 64}
    assert stage.notified == ["READY=1", "STOPPING=1"]
    assert stage.said == [SET.format(stage.tree.root)]


def test_a_mount_that_comes_is_set_at_once(stage: Stage) -> None:
    stage.run(stage.come)
    assert stage.said == [SET.format(stage.tree.root)]
    assert stage.waits == [3600.0, 3600.0]


def test_the_control_file_system_is_mounted_before_mounts_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the kernel shows no connection, and so no max_background."""
    stage.tree.mount("/mnt/one")
    stage.tree.live(connection=None)
    monkeypatch.setattr(watch, "mount_controls", lambda _: stage.tree.live())
    stage.run()
    assert stage.background() == 64


def test_the_program_that_serves_a_new_mount_is_looked_for(stage: Stage) -> None:
    def serve(_: float) -> bool:
        process(stage.tree, 11, "sshfs", fds={3: "41"})
        return stage.come(number=41)

    process(stage.tree, 10, "sshfs", fds={3: "40"})
    stage.come()
    stage.run(serve, config=CONFIG + "server = 'sshfs'\n")
    assert (stage.background(), stage.background(41)) == (64, 64)


def test_mountinfo_is_read_once_in_a_while_in_a_storm(stage: Stage) -> None:
    stage.run(stage.come, lambda _: stage.come(number=41))
    assert stage.slept == pytest.approx([0.03, 0.03])
    stage.slept.clear()
    stage.notified.clear()
    stage.run(lambda s: stage.passing(1)(s) or stage.come(number=42))
    assert stage.slept == [0.0]


def test_values_wait_for_the_reply_to_init(stage: Stage) -> None:
    """The reply is looked for often at first, then at intervals that grow with the time waited."""
    stage.come(waiting=1)
    steps: list[Step] = [stage.pass_all] * 4
    stage.run(*steps, stage.answer, stage.passing(1))
    assert stage.waits[:5] == pytest.approx([0.005, 0.005, 0.005, 0.005, 0.005])
    assert stage.background() == 64
    assert stage.said == [SET.format(stage.tree.root).replace("12 ->", "30 ->")]


def test_the_time_between_two_looks_grows(stage: Stage) -> None:
    stage.come(waiting=1)
    stage.run(stage.passing(0.4))
    assert stage.waits[1] == pytest.approx(0.1)
    assert stage.background() == 12


def test_a_slow_server_s_mount_is_set_early_and_again_after_its_reply(stage: Stage) -> None:
    stage.come(waiting=1)
    seen: list[int] = []

    def look(seconds: float) -> bool:
        seen.append(stage.background())
        return stage.pass_all(seconds)

    def answer(seconds: float) -> bool:
        stage.answer()
        return stage.pass_all(seconds)

    stage.run(stage.passing(0.5), look, stage.pass_all, answer)
    assert seen == [64]
    assert stage.waits[1:4] == pytest.approx([0.25, 0.25, 0.25])
    assert stage.background() == 64
    assert stage.said == [
        SET.format(stage.tree.root),
        SET.format(stage.tree.root).replace("12 ->", "30 ->"),
    ]


def test_a_server_that_never_answers_is_given_up(stage: Stage) -> None:
    stage.come(waiting=1)
    stage.run(stage.passing(0.5), stage.passing(29.25), stage.passing(0.25))
    assert stage.background() == 64
    assert len(stage.said) == 2
    assert "for 30 s; " in stage.said[1]
    assert stage.waits[-1] == 3600.0  # nothing is due any more


def test_another_fusetune_at_work_is_waited_for(stage: Stage) -> None:
    stage.come()
    held = Lock(stage.tree.host, stage.tree.only())

    def release(seconds: float) -> bool:
        held.__exit__()
        return stage.pass_all(seconds)

    stage.run(stage.pass_all, release)
    assert stage.waits[:2] == [0.25, 0.25]
    assert stage.background() == 64
    assert len(stage.said) == 1


def test_but_not_for_ever(stage: Stage) -> None:
    stage.come()
    with Lock(stage.tree.host, stage.tree.only()):
        stage.run(stage.passing(29.9), stage.passing(0.25))
    assert stage.background() == 12
    assert stage.waits == [0.25, 0.25, 3600.0]


# What it says


def test_what_was_set_by_hand_since_is_said_and_left(stage: Stage) -> None:
    stage.come()
    stage.run()
    stage.tree.write("sys/fs/fuse/connections/40/max_background", "30\n")
    stage.said.clear()
    stage.run()
    (line,) = stage.said
    assert line.startswith("/mnt/one (0:40, fuse.mirrorfs): max_background=30 was set ")
    assert stage.background() == 30


def test_what_is_refused_is_said_once(stage: Stage) -> None:
    stage.come()
    bound = "[policy]\nmax_dirty_percent = 5\n[[mount]]\nmax_ratio = 20\n"
    stage.run(lambda _: os.kill(os.getpid(), signal.SIGHUP), stage.pass_all, config=bound)
    refused, read = stage.said
    assert "max_ratio=20 would let tuned mounts together keep more dirty memory" in refused
    assert read == "configuration read"


def test_of_a_mount_that_has_gone_meanwhile_nothing_is_said(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner is not known without its connection, which would be refused."""

    def come(_: float) -> bool:
        stage.come()
        shutil.rmtree(stage.tree.root / "sys/fs/fuse/connections/40")
        return True

    def late(*arguments: Any, **how: Any) -> Reconciled:
        (stage.tree.root / "proc/self/mountinfo").write_text("")
        return reconcile(*arguments, **how)

    monkeypatch.setattr(watch, "reconcile", late)
    stage.run(come, config="[[mount]]\nmax_ratio = 20\n")
    assert stage.said == []


def test_a_damaged_journal_is_said_and_the_values_are_set_after(stage: Stage) -> None:
    stage.come()
    stage.tree.write("var/lib/undo/0:40.journal", "garbage\n")
    stage.run(stage.pass_all, stage.pass_all)
    assert "the undo journal of /mnt/one was damaged and is kept as" in stage.said[0]
    assert stage.said[1:] == [SET.format(stage.tree.root)]
    assert stage.waits[0] == 0.25


def test_a_failure_is_said_of_a_mount_that_is_there(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        if stage.said:
            (stage.tree.root / "proc/self/mountinfo").write_text("")
        raise FusetuneError("no way")

    stage.come()
    monkeypatch.setattr(watch, "reconcile", fail)
    stage.run(lambda _: os.kill(os.getpid(), signal.SIGHUP), stage.pass_all)
    assert stage.said == ["/mnt/one (0:40, fuse.mirrorfs): no way", "configuration read"]
    assert stage.waits[-1] == 3600.0


def test_limits_are_raised_for_the_next_mount(stage: Stage) -> None:
    stage.tree.system()
    stage.come()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    assert stage.said == [
        "/mnt/one (0:40, fuse.mirrorfs): fs.pipe-max-size 1048576 -> 4194304, for its next mount",
        "/mnt/one (0:40, fuse.mirrorfs): fs.fuse.max_pages_limit 256 -> 512, for its next mount",
    ]


def test_limits_set_by_hand_stay_and_are_said(stage: Stage) -> None:
    stage.tree.system()
    stage.come()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    stage.tree.write("proc/sys/fs/fuse/max_pages_limit", "300\n")
    stage.said.clear()
    stage.run(config="[[mount]]\nmax_write = '2M'\n")
    (line,) = stage.said
    assert line.endswith("max_pages_limit=300 was set by hand and stays; 512 is needed")


def test_a_failure_to_raise_them_is_said_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many mounts may come at once: none waits for another fusetune to end."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"slept {seconds} s"))
    stage.tree.system()
    stage.come()
    with Lock(stage.tree.host, None):
        stage.run(config="[[mount]]\nmax_write = '2M'\n")
    (line,) = stage.said
    assert "another fusetune (pid " in line


# What is looked at again


def test_the_sum_of_dirty_memory_is_taken_anew_after_a_second(stage: Stage) -> None:
    """What another program set meanwhile counts."""
    bound = "[policy]\nmax_dirty_percent = 70\n[[mount]]\nmax_ratio = 20\n"

    def others(seconds: float, pause: float, number: int) -> bool:
        stage.tree.live("0:40", "40", values={"max_ratio": 60})
        stage.now += pause
        return stage.come(number=number)

    stage.come()
    stage.run(lambda s: others(s, 0.9, 41), lambda s: others(s, 1.2, 42), config=bound)
    assert stage.tree.read("sys/class/bdi/0:41/max_ratio").strip() == "20"
    assert stage.tree.read("sys/class/bdi/0:42/max_ratio").strip() == "1"
    assert "max_dirty_percent" in stage.said[-1]


def test_a_mount_that_is_gone_is_forgotten_once_its_bdi_is(stage: Stage) -> None:
    journal = stage.tree.host.state_dir / "undo" / "0:40.journal"
    stage.come()
    there = []

    def unmount(_: float) -> bool:
        (stage.tree.root / "proc/self/mountinfo").write_text("")
        return True

    def remove(_: float) -> bool:
        there.append(journal.exists())
        shutil.rmtree(stage.tree.root / "sys/class/bdi/0:40")
        return True

    stage.run(unmount, remove)
    assert there == [True]
    assert not journal.exists()


def test_a_mount_that_goes_frees_its_share(stage: Stage) -> None:
    bound = "[policy]\nmax_dirty_percent = 30\n[[mount]]\nmax_ratio = 20\n"

    def replace(_: float) -> bool:
        (stage.tree.root / "proc/self/mountinfo").write_text("")
        return stage.come(number=41)

    stage.come()
    stage.run(replace, config=bound)
    assert stage.tree.read("sys/class/bdi/0:41/max_ratio").strip() == "20"


def test_a_mount_that_goes_while_it_is_due_is_dropped(stage: Stage) -> None:
    def unmount(_: float) -> bool:
        (stage.tree.root / "proc/self/mountinfo").write_text("")
        return True

    stage.come(waiting=1)
    stage.run(unmount)
    assert stage.waits == [pytest.approx(0.005), 3600.0]
    assert stage.said == []


# Configuration


def test_a_changed_configuration_counts_for_the_next_mount(stage: Stage) -> None:
    def edit(_: float) -> bool:
        stage.tree.write("etc/fusetune.toml", CONFIG.replace("64", "32"))
        return stage.come(number=41)

    stage.come()
    stage.run(edit)
    assert (stage.background(), stage.background(41)) == (32, 32)
    assert stage.notified.count("READY=1") == 2
    assert "configuration read" in stage.said


def test_sighup_reads_it_and_looks_at_every_mount_again(stage: Stage) -> None:
    def edit(_: float) -> None:
        stage.tree.write("etc/fusetune.toml", CONFIG.replace("64", "32"))
        os.kill(os.getpid(), signal.SIGHUP)

    stage.come()
    stage.run(edit, stage.pass_all)
    assert stage.waits[1] <= 0
    assert stage.background() == 32


def test_sighup_also_finds_a_mount_whose_event_was_lost(stage: Stage) -> None:
    def come_unseen(_: float) -> None:
        stage.come()
        os.kill(os.getpid(), signal.SIGHUP)

    stage.run(come_unseen, stage.pass_all)
    assert stage.background() == 64


def test_a_wrong_one_changes_nothing_and_is_said(stage: Stage) -> None:
    def edit(_: float) -> None:
        stage.tree.write("etc/fusetune.toml", "garbage")
        os.kill(os.getpid(), signal.SIGHUP)

    stage.run(edit, stage.come)
    assert stage.background() == 64
    assert stage.said[0].startswith(f"{stage.tree.root}/etc/fusetune.toml:1: not valid TOML")
    assert "configuration" in stage.said[0]
    assert len(stage.said) == 2
    assert stage.notified.count("READY=1") == 2


def test_it_does_not_begin_with_a_wrong_one(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        stage.run(config="garbage")
    assert stage.notified == []


# How long it runs


def test_it_ends_when_idle(stage: Stage) -> None:
    stage.run(stage.passing(4.9), stage.passing(0.1), stage.pass_all, idle=5)
    assert stage.waits == pytest.approx([5.0, 0.1, 0.0])
    assert stage.unused == 1
    assert stage.notified == ["READY=1", "STOPPING=1"]


def test_idle_as_configured(stage: Stage) -> None:
    stage.run(stage.pass_all, config="[watch]\nidle_seconds = 7\n", idle=None)
    assert stage.waits[0] == 7.0


def test_idle_begins_after_the_last_mount(stage: Stage) -> None:
    stage.run(lambda s: stage.passing(3)(s) or stage.come(), stage.pass_all, idle=5)
    assert stage.waits == pytest.approx([5.0, 5.0, 0.0])


def test_a_mount_that_is_due_is_no_idleness(stage: Stage) -> None:
    stage.come(waiting=1)
    stage.run(stage.passing(0.5), stage.passing(20), stage.pass_all, idle=5)
    assert stage.waits[1:3] == pytest.approx([0.25, 0.25])
    assert stage.unused == 0


def test_a_mount_that_comes_as_it_ends_is_served(stage: Stage) -> None:
    stage.last = stage.come
    stage.run(stage.pass_all, stage.pass_all, idle=5)
    assert stage.background() == 64


def test_without_an_end_it_looks_once_an_hour(stage: Stage) -> None:
    stage.run(idle=0)
    assert stage.waits == [3600.0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(stage: Stage, number: signal.Signals) -> None:
    stage.run(lambda _: os.kill(os.getpid(), number), stage.pass_all)
    assert stage.unused == 1
    assert stage.notified == ["READY=1", "STOPPING=1"]


# The supervisor


def test_the_watchdog_is_pinged_on_every_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "8000000")
    stage.run(stage.pass_all, stage.pass_all)
    assert stage.notified == ["READY=1", *["WATCHDOG=1"] * 3, "STOPPING=1"]
    assert stage.waits == pytest.approx([4.0, 4.0, 4.0])  # half of what systemd allows


# What wakes it


class FakeMonitor:
    """A netlink socket that has something to read, or fails to be read."""

    def __init__(self, number: int | None) -> None:
        self._error, self._devices = number, [object(), object(), None]
        self.read, self._write = os.pipe()
        os.write(self._write, b"x")

    def fileno(self) -> int:
        """Return a descriptor that is readable."""
        return self.read

    def poll(self, _: float) -> object | None:
        """Return one event."""
        if self._error:
            raise OSError(self._error, os.strerror(self._error))
        return self._devices.pop(0)

    def filter_by(self, subsystem: str) -> None:
        """Take the kernel's events about bdi devices alone."""
        assert subsystem == "bdi"

    def start(self) -> None:
        """Listen."""

    def close(self) -> None:
        """Close the descriptors."""
        os.close(self.read)
        os.close(self._write)


@pytest.fixture
def waiter(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Events]]:
    monitors = []

    def build(signals: Signals, number: int | None = None) -> Events:
        monitors.append(FakeMonitor(number))
        fake = SimpleNamespace(from_netlink=lambda context, source: monitors[-1])
        monkeypatch.setattr(events, "pyudev", SimpleNamespace(Monitor=fake, Context=object))
        return Events(tree.host, signals)

    yield build
    for monitor in monitors:
        monitor.close()


@pytest.mark.parametrize("number", [None, errno.ENOBUFS])
def test_events_wake_it_also_where_some_were_lost(
    waiter: Callable[..., Events], number: int | None
) -> None:
    """A storm overruns the socket's buffer (netlink(7)); every mount is looked at all the same."""
    with Signals() as signals:
        found = waiter(signals, number)
        assert found.wait(10)
        found.close()


def test_another_failure_of_the_socket_is_an_error(waiter: Callable[..., Events]) -> None:
    with Signals() as signals:
        found = waiter(signals, errno.EBADF)
        with pytest.raises(OSError, match="Bad file descriptor"):
            found.wait(10)
        found.close()


def test_a_signal_alone_tells_of_no_mount(waiter: Callable[..., Events]) -> None:
    with Signals() as signals:
        found = waiter(signals)
        found._poll.unregister(found._monitor.fileno())
        os.kill(os.getpid(), signal.SIGHUP)
        assert not found.wait(10)
        assert signals.take() == {signal.SIGHUP}
        assert signals.take() == set()
        found.close()


def test_the_journal_tells_what_the_service_wrote(stage: Stage) -> None:
    stage.come()
    stage.run()
    (record,) = Journal(stage.tree.host, stage.tree.only()).records
    assert (record.knob, record.old, record.new, record.why) == ("max_background", 12, 64, "apply")
