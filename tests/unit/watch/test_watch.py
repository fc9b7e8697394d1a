# SPDX-License-Identifier: GPL-2.0-or-later
"""When the service sets values, with the test's own clock and events.

It sets values once the server has replied to INIT, because the reply overwrites earlier values
(fs/fuse/inode.c, process_init_reply()), and waits for a limited time. tests/native/test_watch.py
runs it on real mounts.
"""

import os
import shutil
import signal
from collections.abc import Iterable

import pytest

from fusetune.changes.lock import Lock
from fusetune.desired import watch
from fusetune.host import Host
from fusetune.mounts.mountinfo import Line
from fusetune.toml.file import ConfigError
from tests.unit.conftest import STOCK, process
from tests.unit.watch.stage import CONFIG, SET, Stage, Step

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
    monkeypatch.setattr(watch, "mount_controls", lambda *_: stage.tree.live())
    stage.run()
    assert stage.background() == 64


def test_a_mount_that_comes_after_that_waits_for_the_next_time(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mount_controls(_: Host, lines: Iterable[Line]) -> None:
        if any(line.path == "/mnt/one" for line in lines):
            stage.tree.live("0:41", "41")
        else:
            stage.tree.mount("/mnt/one", "0:41")
            stage.tree.live("0:41", None)

    monkeypatch.setattr(watch, "mount_controls", mount_controls)
    stage.run(lambda _: True)
    assert stage.background(41) == 64


def test_the_program_that_serves_a_new_mount_is_looked_for(stage: Stage) -> None:
    def serve(_: float) -> bool:
        process(stage.tree, 11, "sshfs", fds={3: "41"})
        return stage.come(number=41)

    process(stage.tree, 10, "sshfs", fds={3: "40"})
    stage.come()
    stage.run(serve, config=CONFIG + "server = 'sshfs'\n")
    assert (stage.background(), stage.background(41)) == (64, 64)


def test_and_looked_for_again_once_it_has_replied(stage: Stage) -> None:
    """The server may get /dev/fuse after another mount was set."""

    def answer(seconds: float) -> bool:
        process(stage.tree, 11, "sshfs", fds={3: "40"})
        stage.answer()
        return stage.pass_all(seconds)

    process(stage.tree, 10, "sshfs", fds={3: "41"})
    stage.come(waiting=1)
    stage.come(number=41)
    stage.run(answer, config=CONFIG + "server = 'sshfs'\n")
    assert (stage.background(), stage.background(41)) == (64, 64)


def test_mountinfo_is_read_once_in_a_while_in_a_storm(stage: Stage) -> None:
    stage.run(stage.come, lambda _: stage.come(number=41))
    assert stage.slept == pytest.approx([0.03, 0.03])
    stage.slept.clear()
    stage.notified.clear()
    stage.run(lambda s: stage.passing(1)(s) or stage.come(number=42))
    assert stage.slept == [0.0]


def test_values_wait_for_the_reply_to_init(stage: Stage) -> None:
    """It checks for the reply often at first, then at growing intervals."""
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


def test_a_volume_s_values_wait_for_the_namespace_of_its_pod(stage: Stage) -> None:
    """The kubelet creates the directory of its logs when all volumes of the pod are mounted."""
    volume = "var/lib/kubelet/pods/7/volumes/kubernetes.io~csi/data"
    stage.tree.write(f"{volume}/vol_data.json", '{"driverName": "a", "volumeHandle": "b"}')
    stage.tree.write("var/log/pods/web_other_6/log", "")
    stage.tree.mount(f"/{volume}/mount")
    stage.tree.live()
    seen: list[int] = []

    def look(seconds: float) -> bool:
        seen.append(stage.background())
        return stage.pass_all(seconds)

    def start(seconds: float) -> bool:
        stage.tree.write("var/log/pods/ml_trainer_7/log", "")
        return look(seconds)

    by_namespace = "[[mount]]\nnamespace = 'ml'\nmax_background = 48\n"
    stage.run(look, stage.passing(60), look, start, look, config=CONFIG + by_namespace)
    assert seen == [12, 12, 12, 48]
    assert stage.waits[:4] == pytest.approx([0.005, 0.005, 1.0, 1.0])
    assert stage.waits[-1] == 3600.0


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
    (line,) = stage.said
    assert "another fusetune has been working on it for 30 s" in line
    assert f"with 'fusetune apply {stage.tree.only().path}'" in line


# What is checked again


def test_the_sum_of_dirty_memory_is_taken_anew_after_a_second(stage: Stage) -> None:
    """Values that another program has set meanwhile count."""
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
