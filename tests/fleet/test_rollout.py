# SPDX-License-Identifier: GPL-2.0-or-later
"""The playbook rollout with real Ansible on this host, where ``fusetune`` is a script.

`test_ansible.py` has real mounts. There, every value that an import sets stays set; here, the
script says that it does not.
"""

import json
from pathlib import Path

import pytest

from tests.fleet.hosts import Fleet, Played
from tests.native.requirements import requires

pytestmark = requires("ansible-playbook")

POINT = "/mnt/models"
_EXPORT = '[[mount]]\npath = "/mnt/models"\nread_ahead_kb = 4096\n'
#: As fusetune does, it answers to other names of the mount with the one in /proc.
_PROGRAM = """#!/bin/sh
case "$1 $*" in
show\\ *)
    if [ -e '%(directory)s/absent' ]; then echo "fusetune: $2: not mounted" >&2; exit 1; fi
    echo '{"saved": {"by": "auto"}, "knobs": []}' ;;
export\\ *) cat '%(directory)s/export' ;;
import\\ *) echo '{"results": [{"action": "imported", "path": "/mnt/models", "knobs": {}}]}' ;;
apply\\ *|reset\\ *)
    echo "$1" >>'%(directory)s/calls'
    [ ! -e '%(directory)s/gone' ] || touch '%(directory)s/absent'
    if [ -e '%(directory)s/absent' ]; then echo "fusetune: $2: not mounted" >&2; exit 1; fi
    echo '{"changes": []}' ;;
forget\\ *) echo "$1" >>'%(directory)s/calls'; echo '{"files": [{"file": "/x"}]}' ;;
list\\ *) echo '{"mounts": []}' ;;
bench\\ *) echo "$*" >>'%(directory)s/calls'
    echo '{"series": [{"workloads": [{"figure": 1}]}]}' ;;
verify\\ *) cat '%(directory)s/verified'; cat '%(directory)s/said' >&2
    exit "$(cat '%(directory)s/status')" ;;
esac
"""


def rolled_out(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    said: str,
    mount: str,
    *words: str,
) -> Played:
    """Roll out to one host, where ``fusetune verify`` ends so; the canary is fine."""
    program = directory / "bin" / "fusetune"
    program.parent.mkdir()
    program.write_text(_PROGRAM % {"directory": directory})
    program.chmod(0o755)
    knobs = [{"name": "read_ahead_kb", "differs": status == 3}]
    verified = {"differences": int(status == 3), "mounts": [{"path": POINT, "knobs": knobs}]}
    (directory / "verified").write_text(json.dumps(verified) if status in (0, 3) else "")
    (directory / "said").write_text(said)
    (directory / "status").write_text(str(status))
    (directory / "export").write_text(_EXPORT)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    fleet = Fleet(directory / "fleet", {})
    (fleet.directory / "hosts").write_text("canary\nsecond\n")
    return fleet.play(
        "fusetune.fusetune.rollout", *words, fusetune_mount=mount, ansible_connection="local"
    )


@pytest.mark.parametrize("mount", [POINT, f"{POINT}/", "0:43"])
def test_a_difference_is_found_by_any_name_of_the_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str
) -> None:
    done = rolled_out(tmp_path, monkeypatch, 3, "", mount)
    assert done.status != 0, done.text
    assert "not as kept: read_ahead_kb; the host was restored" in done.text
    assert "reset" in (tmp_path / "calls").read_text()


def test_a_mount_that_cannot_be_compared_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "fusetune: /etc/fusetune/fusetune.toml: wrong"
    done = rolled_out(tmp_path, monkeypatch, 1, said, POINT)
    assert done.status != 0, done.text
    assert f"{said}; the host was restored" in done.text


def test_without_a_difference_it_succeeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = rolled_out(tmp_path, monkeypatch, 0, "", f"{POINT}/")
    assert done.status == 0, done.text
    assert done.of("failed") == {"canary": 0, "second": 0}
    assert "reset" not in (tmp_path / "calls").read_text()


def test_workloads_as_a_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As -e on the command line gives them."""
    words = ("-e", "fusetune_workloads=seq-read,rand-read", "-e", "fusetune_worse=0.5")
    done = rolled_out(tmp_path, monkeypatch, 0, "", POINT, *words)
    assert done.status == 0, done.text
    measured = f"bench {POINT} --json --budget 60s -w seq-read -w rand-read"
    assert (tmp_path / "calls").read_text().splitlines() == [measured, "apply", measured]


def test_check_mode_compares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was set, so a difference is as it should be."""
    done = rolled_out(tmp_path, monkeypatch, 3, "", POINT, "--check")
    assert done.status == 0, done.text


def test_what_was_imported_for_a_mount_that_is_gone_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import succeeds, and then the values cannot be set."""
    (tmp_path / "gone").touch()
    done = rolled_out(tmp_path, monkeypatch, 0, "", POINT)
    assert done.status != 0, done.text
    assert f"{POINT}: not mounted" in done.text
    # Then what was kept before is imported again, and cannot be set either.
    assert (tmp_path / "calls").read_text().split() == ["apply", "forget", "apply"]
