# SPDX-License-Identifier: GPL-2.0-or-later
"""Completion by bash, zsh and fish in a terminal, with the installed functions. The resulting line
is written to a file.
"""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fusetune.host import Host
from fusetune.mounts.discover import find
from tests.native.conftest import sysfs_values
from tests.native.mirror import CHECKOUT, PATIENCE, Mirror
from tests.native.requirements import requires

_READY = "READY"
#: How to start each shell without the user's files, and the line that prepares it.
_SHELLS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "bash": (("bash", "--norc", "-i"), ("source {0}", "PS1={1}")),
    "zsh": (
        ("zsh", "-f", "-i"),
        # Loads the function at the first tab.
        ("bindkey -e", "fpath=({2} $fpath)", "autoload -Uz compinit; compinit -u -D", "PS1={1}"),
    ),
    "fish": (
        ("fish", "--no-config", "-i"),
        ("source {0}", "function fish_prompt; echo -n {1}; end"),
    ),
}
#: Escape sequences that shells send to the terminal.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_HOSTILE = "a;touch x"

pytestmark = requires(*_SHELLS)


class Shell:
    """A shell in its own terminal, in ``directory``."""

    def __init__(self, name: str, directory: Path) -> None:
        program, self._made = directory / "fusetune", directory / "line"
        program.write_text(
            f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(CHECKOUT)!r})\n"
            "from fusetune.cli import main\nmain()\n"
        )
        program.chmod(0o755)
        private = directory / "runtime"
        private.mkdir(0o700)
        environment = {
            "PATH": f"{directory}:/usr/bin:/bin",
            "HOME": str(directory),
            "XDG_RUNTIME_DIR": str(private),  # fish would leave a directory in /tmp
            "TERM": "dumb",
            "LANG": "C.UTF-8",
        }
        source = {**environment, "_FUSETUNE_COMPLETE": f"{name}_source"}
        functions = directory / "_fusetune"
        with functions.open("w") as stream:
            subprocess.run([program], env=source, stdout=stream, check=True, timeout=PATIENCE)
        words, setup = _SHELLS[name]
        child, self._terminal = pty.fork()
        if child == 0:
            os.chdir(directory)
            os.execvpe(words[0], words, environment)  # noqa: S606
        self._child = child
        self._said = ""
        for line in setup:
            self._type(line.format(functions, f"{_READY}'> '", directory) + "\r")
        self._read_until(self._is_ready)

    def completed(self, line: str) -> str:
        """Return ``line`` after a tab at its end, stripped of spaces."""
        self._made.unlink(missing_ok=True)
        self._said = ""
        # To the beginning, so that the line is only printed; then to the end.
        self._type(f"{line}\t\x01echo \x05 >{self._made}\r")
        self._read_until(lambda: self._made.exists() and self._made.read_text().endswith("\n"))
        self._read_until(self._is_ready)
        return self._made.read_text().strip()

    def _type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def _read_until(self, condition: Callable[[], bool]) -> None:
        """Read the shell's output until the condition holds."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, self._said
            if select.select([self._terminal], [], [], 0.1)[0]:
                self._said += os.read(self._terminal, 65536).decode(errors="replace")

    def _is_ready(self) -> bool:
        """Whether it has printed its prompt, and nothing more for a moment."""
        prompted = _CONTROL.sub("", self._said).rstrip().endswith(f"{_READY}>")
        return prompted and not select.select([self._terminal], [], [], 0.3)[0]

    def close(self) -> None:
        """End it, and everything that it started."""
        os.kill(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        os.close(self._terminal)


@pytest.fixture(params=_SHELLS)
def shell(request: pytest.FixtureRequest, open_path: Path) -> Iterator[Shell]:
    """Each shell in turn."""
    found = Shell(request.param, open_path)
    yield found
    found.close()


def test_a_command_a_mount_and_a_value(shell: Shell, mirror: Mirror) -> None:
    point = str(mirror.mountpoint)
    assert shell.completed("fusetune hist") == "fusetune history"
    assert shell.completed(f"fusetune show {point[:-2]}") == f"fusetune show {point}"
    assert shell.completed("fusetune set hos") == "fusetune set host"
    (ahead,) = (v for name, v in sysfs_values(mirror.bdi).items() if name == "read_ahead_kb")
    line = f"fusetune set {point} read_a"
    assert shell.completed(line) == f"fusetune set {point} read_ahead_kb={ahead}"
    assert shell.completed("fusetune explain host fs.p") == "fusetune explain host fs.pipe-max-size"
    given = "fusetune run -o tuned,keep_"
    assert shell.completed(given) == "fusetune run -o tuned,keep_cache"


def test_a_mount_point_that_a_shell_would_run_is_its_bdi(
    shell: Shell, tmpfs_dir: Path, tmp_path: Path
) -> None:
    with Mirror(tmpfs_dir, tmp_path / _HOSTILE) as mirror:
        bdi = find(Host(), str(mirror.mountpoint)).bdi
        assert bdi
        assert shell.completed(f"fusetune show {bdi[:-1]}") in (
            f"fusetune show {bdi}",
            f"fusetune show {bdi[:-1]}",  # several begin like this
        )
        assert shell.completed(f"fusetune show {tmp_path}/") == f"fusetune show {tmp_path}/"


def test_the_services_that_systemd_knows(shell: Shell) -> None:
    assert shell.completed("fusetune enable systemd-jour") == (
        "fusetune enable systemd-journal"  # of systemd-journald.service and others
    )
