# SPDX-License-Identifier: GPL-2.0-or-later
"""Test programs have the same results on the module, whatever its options, as on stock."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.kernel.guest.rig import SOURCE, fresh_source, load, run, stock, tuned
from tests.native.mirror import CHECKOUT, Mirror

MOUNTS = (
    *("", "parallel_direct_writes", "parallel_extend", "no_file_caps", "max_pages=16"),
    "atomic_open",
)
_FSX = """\
flen = 262144
[weights]
mapread = {mapped}
mapwrite = {mapped}
close_open = 5
fsync = 1
posix_fallocate = 5
punch_hole = 5
copy_file_range = 5
"""
_PJDFSTEST = """\
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.1
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""
_RULES = ("truncate", "posix_fallocate", "open")
_JOBS = """\
[global]
size=256k
numjobs=4
offset_increment=256k
bsrange=512-64k
fallocate=none
randseed=7
verify=crc32c
verify_fatal=1
[in-order]
filename={directory}/in-order
rw=write
[random]
filename={directory}/random
rw=randwrite
ioengine=libaio
iodepth=4
direct=1
"""
#: One file for each: if several extend one file by mmap, fio loses track on any file system.
_MAPPED_JOB = """\
[mapped]
directory={directory}
offset_increment=0
rw=randwrite
ioengine=mmap
"""


def _is_direct(mirror: Mirror) -> bool:
    return "direct_io" in mirror.process.args  # type: ignore[operator]


def same_as_stock(
    make: Callable[[Mirror], object], *options: str, mounts: Sequence[str] = MOUNTS
) -> None:
    """``make`` must return the same for each tuned mount as for a stock one."""
    load()
    fresh_source()
    with stock(*options, "allow_other") as mirror:
        expected = make(mirror)
    for mount in mounts:
        fresh_source()
        with tuned(*options, mount="+".join(filter(None, ("allow_other", mount)))) as mirror:
            got = make(mirror)
        assert got == expected, f"{mount or 'tuned'}: {got}, not {expected}"


def fsx(mirror: Mirror) -> str:
    """Return a digest of the result of 150 operations, which are always the same."""
    config = Path("/tmp/fsx.toml")  # noqa: S108
    config.write_text(_FSX.format(mapped=0 if _is_direct(mirror) else 10))
    program = CHECKOUT / "build" / "fsx"
    # It compares with its own copy of the file, and reports a failure by its exit status.
    run(program, "-q", "-f", config, "-N", "150", "-S", "7", mirror.mountpoint / "file")
    return hashlib.sha256((SOURCE / "file").read_bytes()).hexdigest()


def check_fsx() -> None:
    """Reads, writes, truncates, fallocates, copies and maps of one file, at random."""
    same_as_stock(fsx, mounts=("", "no_file_caps+max_pages=16"))
    same_as_stock(fsx, "direct_io")


def fio(mirror: Mirror) -> list[tuple[int, int, int]]:
    """Let four processes extend each file and verify it; return errors and bytes of each."""
    jobs = Path("/tmp/verify.fio")  # noqa: S108
    text = _JOBS if _is_direct(mirror) else _JOBS + _MAPPED_JOB
    jobs.write_text(text.format(directory=mirror.mountpoint))
    said = run("fio", "--output-format=json", "--verify_state_save=0", jobs)
    report: dict[str, Any] = json.loads(said.stdout[said.stdout.index("{") :])
    found = [
        (job["error"], job["write"]["io_bytes"], job["read"]["io_bytes"]) for job in report["jobs"]
    ]
    assert found == [(0, 256 << 10, 256 << 10)] * 4 * text.count("\nrw="), found
    for path in mirror.mountpoint.iterdir():
        assert (SOURCE / path.name).read_bytes() == path.read_bytes(), path
    return found


def check_fio_verify() -> None:
    """What several processes wrote past the end of one file is read back right."""
    same_as_stock(fio, "direct_io")


def pjdfstest(mirror: Mirror, rules: Sequence[str] = _RULES) -> dict[str, str]:
    """Return the results of POSIX's rules on the named subjects, by default on all."""
    config = Path("/tmp/pjdfstest.toml")  # noqa: S108
    config.write_text(_PJDFSTEST)
    mirror.mountpoint.chmod(0o755)
    # No rules on running programs: Linux 6.12 sometimes allows opening them for writing.
    run("mount", "-o", "remount,bind,noexec", mirror.mountpoint)
    program = CHECKOUT / "build" / "pjdfstest"
    said = run(program, "-c", config, "-p", mirror.mountpoint, *rules, check=False)
    found = dict(re.findall(r"^(\S+::\S+) +(ok|skipped|FAILED)$", said.stdout, re.MULTILINE))
    assert list(found.values()).count("ok") > 50, said.stdout + said.stderr
    failed = [name for name, result in found.items() if result == "FAILED"]
    assert not failed, failed
    return found


def check_pjdfstest() -> None:
    """POSIX's rules that concern the options, in two parts because this is slow."""
    lots = ("parallel_extend", "parallel_direct_writes+no_file_caps+max_pages=16")
    same_as_stock(pjdfstest, "direct_io", mounts=lots)
