# SPDX-License-Identifier: GPL-2.0-or-later
"""Instructions that the tuned module's statistics add to a request, counted by an emulator."""

import math
import shutil
import statistics
import tempfile
from pathlib import Path

import tomlkit

from tests.bench.contest import paired
from tests.bench.page import Section, table
from tests.kernel.machine import build, image_of, run
from tests.kernel.suites import USERLAND, copy_of_dkms, import_module

#: A machine's samples: by opcode, for each round, instructions per call with and without.
Samples = dict[str, list[tuple[float, float]]]
_MODULE = "fusetuned"
_HOOKS = "statistics.cocci"
_COLUMNS = ("request", "ratio", "median of the additional instructions")


def leave_out_hooks(dkms: Path) -> None:
    """Leave out the hooks of statistics in a copy of dkms/."""
    ours = dkms / _MODULE
    rules = ours / "rules.toml"
    document = tomlkit.parse(rules.read_text()).unwrap()
    script = (ours / "rules" / _HOOKS).read_text()
    hooks = document["hook"]
    document["hook"] = [hook for hook in hooks if hook["call"] not in script]
    del document["patches"][_HOOKS]
    rules.write_text(tomlkit.dumps(document))


def imported(dkms: Path, directory: Path) -> Path:
    """Import the module's source with a copy of dkms/, and return its directory in ``directory``.

    Raises RuntimeError with import_kernel.py's output.
    """
    done = import_module(_MODULE, directory / "module", USERLAND.source(), dkms=dkms)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return directory / "module"


def _made(dkms: Path, directory: Path) -> Path:
    """Build the module from a copy of dkms/, and return the files that a machine needs."""
    build(USERLAND, (imported(dkms, directory),), directory / "built")
    return directory / "built"


def _instructions() -> Samples:
    """Return the counts of a machine with both modules; raises RuntimeError with its console."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        dkms = copy_of_dkms(scratch / "copy")
        built = _made(dkms, scratch / "with")
        leave_out_hooks(dkms)
        without = next((_made(dkms, scratch / "other") / "lib").rglob("fusetuned.ko*"))
        (built / "without").mkdir()
        shutil.copy(without, built / "without")
        said = run(image_of(USERLAND), built, "measure_statistics", counted=True)
    measured = said.checks.get("measure_statistics", {"failure": "not reached"})
    if measured["failure"]:
        raise RuntimeError(f"{measured['failure']}\n{said.console[-4000:]}")
    samples: Samples = measured["value"]
    return samples


def _make() -> str:
    rows = []
    for opcode, samples in _instructions().items():
        counted, without = ([math.log(sample[side]) for sample in samples] for side in (0, 1))
        found = paired(counted, without)
        more = statistics.median(sample[0] - sample[1] for sample in samples)
        of = f"{found.ratio:.4f} [{found.low:.4f}, {found.high:.4f}]"
        rows.append((opcode, of, f"{more:.0f}"))
    return table(_COLUMNS, rows)


COST = Section(
    "What statistics of the tuned module cost",
    "Instructions of a request from call to return, in the calling program, the kernel and "
    "mirrorfs together, with the tuned module as a ratio to the same module without the hooks "
    "for statistics. The calls are fstat(2) without cached attributes and pread(2) of 512 bytes "
    "with direct I/O, 1000 of each per round, in 10 rounds that alternate between the modules. "
    "The brackets contain the 95 % interval over the rounds. Instructions are counted, not "
    f"timed, with QEMU's `-icount shift=0`, one processor and Debian's Linux {USERLAND.series}; "
    "an instruction that reads a clock counts as one.",
    (_COLUMNS,),
    _make,
)
