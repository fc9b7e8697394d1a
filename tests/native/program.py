# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the command line as users do, but with its own directories."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fusetune.host import Host
from fusetune.mounts.control import mount_controls
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from tests import schemas
from tests.native.mirror import CHECKOUT, PATIENCE

Word: TypeAlias = str | bytes | Path
Started: TypeAlias = subprocess.Popen[str]


def _environment(more: Mapping[str, str] | None) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), **(more or {})}


class Fusetune:
    """The command line, run as users run it, but with its own directories for state."""

    def __init__(self, directory: Path) -> None:
        self.state = directory / "state"
        self.run = directory / "run"
        self.config = directory / "config"
        self._started: list[subprocess.Popen[str]] = []

    def command(self, *words: Word) -> list[Word]:
        """Return the whole command line of ``fusetune WORDS``."""
        return [
            *("/usr/bin/python3", "-m", "fusetune"),
            *("--state-dir", self.state, "--run-dir", self.run, "--config-dir", self.config),
            *words,
        ]

    def __call__(
        self,
        *words: Word,
        before: Sequence[Word] = (),
        cwd: Path = CHECKOUT,
        timeout: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run it until it ends, whatever its exit code; there must be no traceback.

        ``before`` precedes the command, such as setpriv or strace.
        """
        done = subprocess.run(
            [*before, *self.command(*words)],
            cwd=cwd,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *words: Word, environment: Mapping[str, str] | None = None) -> Started:
        """Start it without waiting; it is killed at the end of the test."""
        process = subprocess.Popen(
            self.command(*words),
            cwd=CHECKOUT,
            env=_environment(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        """Kill and reap what ``start`` started."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.wait(PATIENCE)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()

    def json(self, *words: Word, code: int = 0, **how: Any) -> dict[str, Any]:
        """Run it with --json, check exit code and schema, and return the object."""
        done = self(*words, "--json", **how)
        assert done.returncode == code, (done.returncode, done.stderr)
        return schemas.validate(json.loads(done.stdout))

    def fails(self, *words: Word, code: int = 1, **how: Any) -> str:
        """Run it, which must fail, and return the last line and only error on stderr.

        Lines of progress, and about what it reads, may precede it.
        """
        done = self(*words, **how)
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert done.stdout == ""
        *progress, line = done.stderr.splitlines()
        expected = (
            " of the budget used, ",
            "fusetune reads at most ",
            "; reading existing files instead",
        )
        assert all(any(words in told for words in expected) for told in progress), done.stderr
        return line

    @property
    def host(self) -> Host:
        """Return the host as the program sees it, for use of the library."""
        return Host(state_dir=self.state, run_dir=self.run, admin_dir=self.config)

    def configure(self, text: str, name: str = "fusetune.toml") -> Path:
        """Write an administrator's configuration file."""
        file = self.config / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def find(self, name: str | Path) -> Mount:
        """Return the mount, using the library."""
        mount_controls(self.host)
        return find(self.host, str(name))
