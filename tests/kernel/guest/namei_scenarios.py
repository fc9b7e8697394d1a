# SPDX-License-Identifier: GPL-2.0-or-later
"""What programs do with names, and the results, to compare between mounts.

A scenario is a function in SCENARIOS. Its result must not depend on how names are opened. Each runs
in its own new directory.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.kernel.guest.namei_stage import NOBODY, PROGRAM, Stage, look

_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY


def _existing(stage: Stage) -> object:
    flags = (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND, os.O_RDONLY | os.O_NOFOLLOW, 3)
    names = ("f", "open", "secret", "dir/inner")
    return [stage.opened(name, each) for name in names for each in flags]


def _missing(stage: Stage) -> object:
    names = ("none", "none/x", "f/x", "dir/none", "none/", ".", "..", "x" * 255, "x" * 256)
    return [stage.opened(name, flags) for name in names for flags in (os.O_RDONLY, os.O_RDWR)]


def _made_after_missing(stage: Stage) -> object:
    found = [stage.opened("new"), stage.opened("new", os.O_CREAT | os.O_RDWR), stage.opened("new")]
    found.append(stage.opened("late"))
    stage.put("late", "late")
    return [*found, stage.opened("late"), stage.opened("late", _NEW), stage.left("new", "late")]


def _made(stage: Stage) -> object:
    before = os.umask(0o027)
    flags = os.O_CREAT | os.O_RDWR
    try:
        found = [stage.opened(f"mode{mode:o}", flags, mode) for mode in (0o666, 0o4755, 0, 0o2770)]
    finally:
        os.umask(before)
    found += [stage.opened("twice", _NEW), stage.opened("twice", _NEW)]
    found += [stage.opened("emptied", flags | os.O_TRUNC), stage.opened("y" * 255, flags)]
    found += [stage.opened("none/new", flags), stage.opened("new/", flags)]
    stage.behind.chmod(0o755)
    time.sleep(0.02)
    found += [stage.opened("forbidden", flags), stage.opened("open", flags)]
    left = ("mode666", "mode4755", "mode0", "mode2770", "twice", "emptied", "y" * 255, "forbidden")
    return [*found, stage.left(*left)]


def _made_if_missing(stage: Stage) -> object:
    flags = (os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_RDWR | os.O_EXCL)
    names = ("f", "secret", "open", "dir", "link", "dangling")
    found = [stage.opened(name, os.O_CREAT | each) for name in names for each in flags]
    return [*found, stage.left(*names, "target")]


def _made_or_truncated(stage: Stage) -> object:
    """Before any other access has cached the names."""
    names = ("f", "secret", "open", "dir", "link", "dangling")
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY
    found = [stage.opened(name, flags) for name in names]
    return [*found, stage.left(*names, "target")]


def _truncated(stage: Stage) -> object:
    names = ("f", "secret", "open", "dir", "link", "none")
    flags = (os.O_WRONLY, os.O_RDWR, os.O_RDONLY)
    found = [stage.opened(name, os.O_TRUNC | each) for name in names for each in flags]
    return [*found, stage.left(*names)]


def _truncated_after_replaced(stage: Stage) -> object:
    stage.opened("open")
    stage.put("open", "not to be truncated by others", 0o600)
    found = [stage.opened("open", os.O_WRONLY | os.O_TRUNC), stage.left("open")]
    stage.put("secret", "to be truncated by all", 0o666)
    return [*found, stage.opened("secret", os.O_WRONLY | os.O_TRUNC), stage.left("secret")]


def _symbolic_links(stage: Stage) -> object:
    flags = (0, os.O_NOFOLLOW, os.O_PATH, os.O_PATH | os.O_NOFOLLOW, os.O_DIRECTORY, os.O_RDWR)
    return [stage.opened(name, each) for name in ("link", "dangling") for each in flags]


def _directories(stage: Stage) -> object:
    flags = (os.O_RDONLY, os.O_RDWR, os.O_DIRECTORY, os.O_CREAT, os.O_TRUNC, os.O_PATH)
    return [stage.opened(name, each) for name in ("dir", "dir/", "f", "f/") for each in flags]


def _fifo(stage: Stage) -> object:
    flags = (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_CREAT)
    return [stage.opened("fifo", each | os.O_NONBLOCK) for each in flags]


def _other_flags(stage: Stage) -> object:
    flags = (os.O_NOATIME, os.O_DIRECT, os.O_SYNC, os.O_NOCTTY, os.O_TMPFILE | os.O_RDWR, os.O_PATH)
    return [stage.opened(name, each) for name in ("f", ".", "none") for each in flags]


def _replaced(stage: Stage) -> object:
    found = [stage.opened("f")]
    for number in range(3):
        stage.put("f", f"another {number}")
        found += [stage.opened("f"), stage.opened("f", os.O_RDWR)]
    return found


def _replaced_by_another_type(stage: Stage) -> object:
    found = [stage.opened("f"), stage.opened("open"), stage.opened("secret")]
    for name in ("f", "open", "secret"):
        (stage.behind / name).unlink()
    (stage.behind / "f").mkdir()
    (stage.behind / "open").symlink_to("dir/inner")
    os.mkfifo(stage.behind / "secret")
    found += [stage.opened("f"), stage.opened("f", os.O_RDWR), stage.opened("f", os.O_DIRECTORY)]
    found += [stage.opened("open", os.O_NOFOLLOW), stage.opened("open")]
    return [*found, stage.opened("secret", os.O_NONBLOCK)]


def _removed(stage: Stage) -> object:
    found = [stage.opened("f"), stage.opened("open")]
    (stage.behind / "f").unlink()
    found += [stage.opened("f"), stage.opened("f", os.O_RDWR | os.O_CREAT), stage.opened("f")]
    found += [stage.said(lambda: (stage.at / "open").unlink()), stage.opened("open")]
    return [*found, stage.opened("open", _NEW), stage.opened("open", _NEW)]


def _renamed(stage: Stage) -> object:
    found = [stage.opened("f"), stage.opened("open")]
    (stage.behind / "f").rename(stage.behind / "dir" / "g")
    found += [stage.opened("f"), stage.opened("dir/g"), stage.opened("f")]
    found += [stage.said(lambda: (stage.at / "open").rename(stage.at / "closed") and None)]
    found += [stage.opened("open"), stage.opened("closed"), stage.opened("closed", os.O_RDWR)]
    stage.put("open", "another")
    return [*found, stage.opened("open"), stage.opened("closed")]


def _permissions(stage: Stage) -> object:
    found = [stage.opened("f"), stage.opened("secret"), stage.opened("open", os.O_RDWR)]
    for name, mode in (("f", 0), ("secret", 0o666), ("open", 0o444)):
        (stage.behind / name).chmod(mode)
    names = ("f", "secret", "open")
    found += [stage.opened(name, flags) for name in names for flags in (os.O_RDONLY, os.O_RDWR)]
    for name in names:
        os.chown(stage.behind / name, NOBODY, NOBODY)
        (stage.behind / name).chmod(0o600)
    found += [stage.opened(name, flags) for name in names for flags in (os.O_RDONLY, os.O_RDWR)]
    stage.behind.chmod(0o700)
    return found + [stage.opened(name) for name in names]


def _permissions_of_another_file(stage: Stage) -> object:
    found = [stage.opened("f"), stage.opened("secret")]
    stage.put("f", "secret now", 0o600)
    stage.put("secret", "open now", 0o644)
    return [*found, stage.opened("f"), stage.opened("secret"), stage.opened("secret", os.O_NOATIME)]


def _grown(stage: Stage) -> object:
    found = [stage.opened("f")]
    with (stage.behind / "f").open("a") as file:
        file.write(" and more")
    return [*found, stage.opened("f"), stage.opened("f", os.O_RDWR | os.O_APPEND)]


def _programs(stage: Stage) -> object:
    found = [stage.ran("program"), stage.ran("program")]
    stage.put("program", PROGRAM.format(4), 0o755)
    found.append(stage.ran("program"))
    (stage.behind / "program").chmod(0o644)
    found.append(stage.ran("program"))
    stage.put("program", PROGRAM.format(5), 0o711)
    return [*found, stage.ran("program"), stage.opened("program")]


def _program_that_runs(stage: Stage) -> object:
    stage.put("busy", Path("/usr/bin/sleep").read_bytes(), 0o755)
    with subprocess.Popen([stage.at / "busy", "60"]) as sleeper:
        try:
            found = [stage.opened("busy", os.O_RDWR), stage.opened("busy", os.O_WRONLY)]
            stage.put("busy", "replaced", 0o666)
            return [*found, stage.opened("busy", os.O_RDWR), stage.opened("busy", os.O_WRONLY)]
        finally:
            sleeper.send_signal(signal.SIGKILL)


def _refused_by_the_server(stage: Stage) -> object:
    """It cannot open a program for writing that runs behind the mount."""
    stage.put("busy", Path("/usr/bin/sleep").read_bytes(), 0o777)
    flags = (os.O_RDWR, os.O_WRONLY | os.O_CREAT, os.O_RDWR | os.O_TRUNC)
    with subprocess.Popen([stage.behind / "busy", "60"]) as sleeper:
        try:
            return [stage.opened("busy", each) for each in flags]
        finally:
            sleeper.send_signal(signal.SIGKILL)


def _hard_links(stage: Stage) -> object:
    os.link(stage.behind / "f", stage.behind / "dir" / "f")
    found = [stage.opened("f"), stage.opened("dir/f")]
    (stage.behind / "f").unlink()
    found += [stage.opened("f"), stage.opened("dir/f")]
    stage.put("f", "another")
    return [*found, stage.opened("dir/f"), stage.opened("f"), stage.opened("dir/f", os.O_RDWR)]


def _opened_again(stage: Stage) -> object:
    """By the link in /proc, which leads to the file whatever its current name is."""
    fd = os.open(stage.at / "open", os.O_RDONLY)
    found: list[object] = []
    try:
        for change in ("none", "renamed", "replaced", "removed"):
            if change == "renamed":
                (stage.behind / "open").rename(stage.behind / "renamed")
            elif change == "replaced":
                stage.put("open", "another")
            elif change == "removed":
                (stage.behind / "renamed").unlink()
            found += [stage.said(lambda: look(f"/proc/self/fd/{fd}", os.O_RDWR)) for _ in range(2)]
            found.append(stage.opened("open"))
    finally:
        os.close(fd)
    return found


def _removed_while_open(stage: Stage) -> object:
    fd = os.open(stage.at / "open", os.O_RDONLY)
    try:
        (stage.at / "open").unlink()
        again = stage.said(lambda: look(f"/proc/self/fd/{fd}", os.O_RDONLY))
        return [again, stage.opened("open"), stage.opened("open", _NEW), stage.opened("open")]
    finally:
        os.close(fd)


def _mounted_over(stage: Stage) -> object:
    point = stage.at / "f"
    subprocess.run(["mount", "--bind", stage.at / "open", point], check=True)
    try:
        time.sleep(0.02)
        return [stage.opened("f"), stage.opened("f", os.O_RDWR), stage.opened("f", os.O_CREAT)]
    finally:
        subprocess.run(["umount", point], check=True)


SCENARIOS: tuple[Callable[[Stage], object], ...] = (
    _existing,
    _missing,
    _made_after_missing,
    _made,
    _made_if_missing,
    _made_or_truncated,
    _truncated,
    _truncated_after_replaced,
    _symbolic_links,
    _directories,
    _fifo,
    _other_flags,
    _replaced,
    _replaced_by_another_type,
    _removed,
    _renamed,
    _permissions,
    _permissions_of_another_file,
    _grown,
    _programs,
    _program_that_runs,
    _refused_by_the_server,
    _hard_links,
    _opened_again,
    _removed_while_open,
    _mounted_over,
)


def play(through: Path, behind: Path) -> dict[str, object]:
    """Run every scenario as root and as nobody, with names cached and not; return the results."""
    found: dict[str, object] = {}
    for scenario in SCENARIOS:
        for user in (0, NOBODY):
            for cached in (False, True):
                title = f"{scenario.__name__[1:]} by {user}{', cached' * cached}"
                directory = title.replace(" ", "-")
                stage = Stage(through / directory, behind / directory, user)
                held = _hold(stage.at) if cached else []
                try:
                    found[title] = scenario(stage)
                finally:
                    for fd in held:
                        os.close(fd)
    return found


def _hold(directory: Path) -> list[int]:
    """Keep every name below in the cache, however short its timeout is."""
    names = [Path(top, name) for top, _, files in os.walk(directory) for name in files]
    return [os.open(name, os.O_PATH | os.O_NOFOLLOW) for name in names]
