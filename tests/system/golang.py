# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs that Go builds once from the modules that a project publishes.

Their Go is newer than that of a Debian suite, so it comes from the backports, in a tree.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.kernel.suites import Suite
from tests.system import tree

#: Its kernel is not used.
_SUITE = Suite("trixie-backports", series="")
_PACKAGES = ("golang-go/trixie-backports", "golang-src/trixie-backports")


@dataclass(frozen=True)
class Module:
    """A module of our own that only requires others, in a temporary directory."""

    directory: Path

    def go(self, *words: str | Path) -> str:
        """Run go in the module, and return what it prints."""
        root = _SUITE.made("golang", *_PACKAGES) / "usr" / "lib" / "go"
        environment = {
            **os.environ,
            "GOROOT": str(root),
            "GOCACHE": str(self.directory / "cache"),
            "GOFLAGS": "-mod=mod",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }
        command = ["nice", root / "bin" / "go", *words]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
            timeout=3600,
        )
        return done.stdout.decode()

    def requires(self, *lines: str) -> None:
        """Write its go.mod, with these lines."""
        (self.directory / "go.mod").write_text("\n".join(["module programs", *lines, ""]))


def programs(name: str, build: Callable[[Module, Path], None]) -> Path:
    """Return a directory of programs in the cache; ``build`` fills it if it is not there."""

    def make(new: Path) -> None:
        new.mkdir()
        with tempfile.TemporaryDirectory(prefix="fusetune-go-") as scratch:
            build(Module(Path(scratch)), new)

    return tree.once(tree.cache("go") / name, make)
