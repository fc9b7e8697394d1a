# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts for Ansible: containers with their own systemd, reached without a network."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.native.mirror import CHECKOUT
from tests.system.container import Container

_SSH = Path(__file__).with_name("into_container.sh")
_COUNT = re.compile(r"^(\S+) +: +(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Played:
    """A playbook's result: its output, and Ansible's counts by host, such as "changed"."""

    status: int
    text: str
    counts: Mapping[str, Mapping[str, int]]

    def of(self, count: str) -> dict[str, int]:
        """Return one of the counts, by host."""
        return {host: counts[count] for host, counts in self.counts.items()}


class Fleet:
    """Containers by name, as one group; ``directory`` is for Ansible's files."""

    def __init__(self, directory: Path, containers: Mapping[str, Container]) -> None:
        self.directory, self.containers = directory, containers
        collections = directory / "ansible_collections" / "fusetune"
        collections.mkdir(parents=True)
        (collections / "fusetune").symlink_to(CHECKOUT / "ansible")
        (directory / "hosts").write_text("\n".join([*containers, ""]))
        (directory / "leaders").mkdir()
        for name, container in containers.items():
            (directory / "leaders" / name).write_text(f"{container.leader}\n")
        self._environment = {
            **os.environ,
            "FLEET": str(directory / "leaders"),
            "HOME": str(directory),
            "ANSIBLE_COLLECTIONS_PATH": str(directory),
            "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
            "ANSIBLE_SSH_EXECUTABLE": str(_SSH),
            "ANSIBLE_SSH_TRANSFER_METHOD": "piped",
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_PYTHON_INTERPRETER": "/usr/bin/python3",
        }

    def play(self, playbook: str | list[Any], *words: str, **variables: object) -> Played:
        """Run a playbook of the collection, or the given one, on all of them."""
        if not isinstance(playbook, str):
            file = self.directory / "playbook.json"
            file.write_text(json.dumps(playbook))
            playbook = str(file)
        given = json.dumps(variables)
        command = ["ansible-playbook", playbook, "-i", str(self.directory / "hosts"), *words]
        done = subprocess.run(
            [*command, "-e", given],
            cwd=self.directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        recap = done.stdout.rpartition("PLAY RECAP")[2]
        counts = {
            host: {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", line)}
            for host, line in _COUNT.findall(recap)
        }
        return Played(done.returncode, done.stdout, counts)

    def lint(self) -> None:
        """ansible-lint must find nothing in the collection, with its strictest profile."""
        done = subprocess.run(
            ["ansible-lint", "--nocolor", "--offline", "--strict", "--profile", "production"],
            cwd=self.directory / "ansible_collections" / "fusetune" / "fusetune",
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Passed with production profile: 0 failure(s), 0 warning(s)" in done.stderr
