# SPDX-License-Identifier: GPL-2.0-or-later
"""A knob, option, workload, report format, finding, recipe or command is one entry or file.

The test adds one of each to a copy of the tree. It must then appear in --help, the output, the
schemas, the manual and completion, with no other edit than by ``make docs``.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.unit.conftest import CHECKOUT
from tests.unit.test_docs import copy_tree, generate

pytestmark = pytest.mark.slow

#: Runs a command on a tree of /proc and /sys with one mount.
ON_TREE = """
import importlib, sys
from pathlib import Path
from tests.unit.conftest import Tree

tree = Tree(Path(sys.argv[1]))
tree.write("proc/meminfo", "MemTotal: 2048 kB\\n")
tree.write("proc/sys/kernel/osrelease", "6.12\\n")
tree.system()
tree.mount("/mnt/one")
tree.live()
if "/mnt/fan" in sys.argv:
    tree.mount("/mnt/fan", "0:41", "fuse.dusty")
name, *words = sys.argv[2:]
command = importlib.import_module(f"fusetune.cli.{name}_").command
command.main(words, prog_name=name, obj=tree.host, standalone_mode=False)
"""

KNOB = """
    Knob(
        name="dust",
        unit="grains",
        scope=Scope.MOUNT,
        file="sys/class/bdi/{bdi}/dust",
        low=0,
        high=9,
        stock=3,
        summary="how much dust the fan takes",
        risk="the fan is slow",
        source="a broom",
        absent="no fan here",
    ),"""

OPTION = """
    RemountKnob(
        "fan",
        "requests are cooled",
        _BY_FUSETUNED.format("fan"),
        "it is loud",
        "dkms/fusetuned/tuned/fan.c",
        tuned="fan",
    ),"""

COMMAND = '''# SPDX-License-Identifier: GPL-2.0-or-later
"""Sweep the fan."""

import click

from fusetune.cli.common import json_option, pass_host, present
from fusetune.host import Host
from fusetune.report.documents.swept import Swept


@click.command("sweep", help=__doc__)
@json_option
@pass_host
def command(host: Host, as_json: bool) -> None:
    present(Swept(7), as_json)
'''

DOCUMENT = '''# SPDX-License-Identifier: GPL-2.0-or-later
"""The document of ``sweep``."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fusetune.report.documents.base import Count, Document


@dataclass(frozen=True)
class Swept(Document):
    """What was swept."""

    SCHEMA = "sweep"
    COMMANDS = ("sweep",)

    grains: Annotated[Count, "Grains of dust."]

    def parts(self) -> Iterator[str]:
        """Yield how much it was."""
        yield f"{self.grains} grains"
'''

RECIPE = """# SPDX-License-Identifier: GPL-2.0-or-later
schema = "fusetune.recipe/1"
name = "dusty"
about = "A fan"

[server]
fstype = ["fuse.dusty"]
library = ["none"]
options = "long"
second = "yes"
second_because = "it is a fan"
source = "a broom"

[[option]]
name = "sweep"
about = "The fan is swept"
flag = true
propose = "true"
class = "safe"
proof = "read"
source = "a broom"
"""

#: What to insert after which text of which file.
ENTRIES = {
    "fusetune/knobs/live.py": ("\nLIVE = (", KNOB),
    "fusetune/knobs/remount.py": ("\nREMOUNT = (", OPTION),
    "fusetune/libfuse/options.py": (
        "\nOPTIONS: Mapping[str, Option] = {",
        '\n    "fan": Option("with tuned: the mount option of the module fusetuned"),',
    ),
    "fusetune/bench/workloads/__init__.py": (
        "    for workload in (",
        '\n        Workload("dusty-read", "reading through dust", _READ, reads=True),',
    ),
    "fusetune/report/formats.py": (
        "\nFORMATS = {",
        '\n    "broom": Format("sweepers", lambda report: f"{len(report.mounts)} to sweep\\n"),',
    ),
    "fusetune/report/findings.py": (
        "\nHOST_CHECKS: dict[str, Check[[Seen]]] = {",
        '\n    "dusty": Check("the fan is slow", lambda seen: iter([("dust", "sweep it")])),',
    ),
}
FILES = {
    "fusetune/recipes/dusty.toml": RECIPE,
    "fusetune/bench/workloads/dusty-read.fio": "[job]\n",
    "fusetune/cli/sweep_.py": COMMAND,
    "fusetune/report/documents/swept.py": DOCUMENT,
}

Run = Callable[..., str]


@pytest.fixture(scope="module")
def dropped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with an additional one of each, after ``make docs``."""
    tree = tmp_path_factory.mktemp("dropped")
    copy_tree(tree)
    (tree / "tests" / "unit").mkdir(parents=True)
    for name in ("__init__.py", "unit/__init__.py", "unit/conftest.py"):
        (tree / "tests" / name).write_text((CHECKOUT / "tests" / name).read_text())
    for name, (place, entry) in ENTRIES.items():
        text = (tree / name).read_text()
        assert text.count(place) == 1, name
        (tree / name).write_text(text.replace(place, place + entry))
    for name, text in FILES.items():
        (tree / name).write_text(text)
    assert generate(tree, "--check").returncode == 1
    done = generate(tree)
    assert (done.returncode, done.stderr) == (0, "")
    return tree


@pytest.fixture
def run(dropped: Path, tmp_path: Path) -> Run:
    """Runs Python in the copy: ``-c`` and ``-m`` with words, or a command on a recorded tree."""

    def run_there(*words: str, environment: dict[str, str] | None = None) -> str:
        if not words[0].startswith("-"):
            words = ("-c", ON_TREE, str(tmp_path), *words)
        done = subprocess.run(
            [sys.executable, "-B", *words],
            cwd=dropped,
            env={**os.environ, "PYTHONPATH": str(dropped), **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run_there


@pytest.fixture
def completed(run: Run) -> Callable[[str], list[str]]:
    """Return a shell's completions of the last word of a command line."""

    def completions(line: str) -> list[str]:
        words = {
            "_FUSETUNE_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        main = "import sys; sys.argv[0] = 'fusetune'; from fusetune.cli import main; main()"
        return [one.partition(",")[2] for one in run("-c", main, environment=words).split()]

    return completions


def _valid(tree: Path, document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that is valid by its schema in the copy."""
    name = document["schema"].removeprefix("fusetune.").removesuffix("/1")
    schema = json.loads((tree / "docs" / "schemas" / f"{name}.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


def _manual(tree: Path) -> str:
    return "".join(page.read_text() for page in sorted((tree / "man").iterdir()))


def test_a_knob(dropped: Path, run: Run, completed: Callable[[str], list[str]]) -> None:
    shown = _valid(dropped, json.loads(run("show", "/mnt/one", "--json")))
    assert shown["knobs"][0].items() >= {"name": "dust", "value": 3, "unit": "grains"}.items()
    (listed,) = _valid(dropped, json.loads(run("list", "--json")))["mounts"]
    assert listed["knobs"]["dust"] == 3
    assert 'knob="dust",mount="/mnt/one",unit="grains"} 3.0' in run(
        "report", "--format", "prometheus"
    )
    schema = json.loads((dropped / "docs" / "schemas" / "list.json").read_text())
    assert schema["$defs"]["KnobValues"]["properties"]["dust"]["maximum"] == 9
    assert ".It Cm dust\nHow much dust the fan takes.\n" in _manual(dropped)
    assert completed("fusetune set /mnt/one du") == ["dust="]


def test_an_option_of_module_and_library(dropped: Path, run: Run) -> None:
    shown = _valid(dropped, json.loads(run("show", "/mnt/one", "--json")))
    fan = next(one for one in shown["needs_remount"] if one["name"] == "fan")
    assert "its option fan" in fan["remedy"]
    assert "needs a remount: fan, " in run("show", "/mnt/one")
    assert _manual(dropped).count(".It Cm fan\n") == 2
    reference = (dropped / "docs" / "reference.md").read_text()
    assert len([line for line in reference.splitlines() if line.startswith("| `fan` |")]) == 2


def test_a_workload(dropped: Path, run: Run, completed: Callable[[str], list[str]]) -> None:
    for command in ("auto", "bench"):
        text = " ".join(run("-m", "fusetune", command, "--help").split())
        assert "dusty-read" in text.replace("dusty- read", "dusty-read")
    preview = json.loads(run("auto", "/mnt/one", "-w", "dusty-read", "--dry-run", "--json"))
    assert _valid(dropped, preview)["workloads"] == ["dusty-read"]
    assert ".It Cm dusty-read\nReading through dust.\n" in _manual(dropped)
    assert completed("fusetune bench -w du") == ["dusty-read"]


def test_a_report_format(dropped: Path, run: Run, completed: Callable[[str], list[str]]) -> None:
    assert run("report", "--format", "broom") == "1 to sweep\n"
    help_text = " ".join(run("-m", "fusetune", "report", "--help").split())
    assert "broom for sweepers" in help_text
    assert "broom for sweepers" in " ".join(_manual(dropped).split())
    assert completed("fusetune report --format br") == ["broom"]


def test_a_finding(dropped: Path, run: Run) -> None:
    found = _valid(dropped, json.loads(run("doctor", "--json")))["findings"][0]
    assert found == {"name": "dusty", "mount": None, "what": "dust", "remedy": "sweep it"}
    report = _valid(dropped, json.loads(run("report", "--json")))
    assert report["findings"][0]["name"] == "dusty"
    assert 'fusetune_findings{name="dusty"} 1.0' in run("report", "--format", "prometheus")
    schema = json.loads((dropped / "docs" / "schemas" / "report.json").read_text())
    meaning = {"const": "dusty", "description": "the fan is slow"}
    assert meaning in schema["$defs"]["FindingName"]["oneOf"]
    assert ".It Cm dusty\nThe fan is slow.\n" in _manual(dropped)


def test_a_recipe(dropped: Path, run: Run) -> None:
    advice = _valid(dropped, json.loads(run("advise", "/mnt/fan", "--json")))
    assert (advice["recipe"], advice["changes"][0]["option"]) == ("dusty", "sweep")


def test_a_command(dropped: Path, run: Run, completed: Callable[[str], list[str]]) -> None:
    assert re.search(r"^  sweep +Sweep the fan\.$", run("-m", "fusetune", "--help"), re.MULTILINE)
    assert run("sweep") == "7 grains\n"
    assert _valid(dropped, json.loads(run("sweep", "--json")))["grains"] == 7
    assert ".It Cm sweep\nSweep the fan." in _manual(dropped)
    assert completed("fusetune swe") == ["sweep"]


def test_nothing_is_stale_after_it(dropped: Path) -> None:
    done = generate(dropped, "--check")
    assert (done.returncode, done.stderr) == (0, "")
