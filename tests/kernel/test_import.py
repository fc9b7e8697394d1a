# SPDX-License-Identifier: GPL-2.0-or-later
"""import_kernel.py accepts a kernel source only if it is what the rules expect."""

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import tomlkit

from fusetune import __version__
from tests.bench import cost
from tests.kernel.machine import package
from tests.kernel.suites import MODULES, SUITES, copy_of_dkms, import_module, rules

_EACH = pytest.mark.parametrize("name", MODULES)


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A copy of dkms/ for tests to break."""
    return copy_of_dkms(tmp_path / "ours")


def refused(ours: Path, tmp_path: Path, source: Path, name: str = "fusetuned") -> str:
    """Import, which must fail and leave nothing; return what it says."""
    output = tmp_path / "output"
    done = import_module(name, output, source, dkms=ours)
    assert done.returncode == 1, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ours"]
    assert done.stderr.startswith("import_kernel.py: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_hooks_of_statistics_may_be_left_out(ours: Path, tmp_path: Path) -> None:
    """Their cost is measured against a module without them."""

    def ended_in(directory: Path) -> bool:
        module = cost.imported(ours, directory)
        return any("tuned_request_end(" in path.read_text() for path in module.rglob("dev.c"))

    assert ended_in(tmp_path / "with")
    cost.leave_out_hooks(ours)
    assert not ended_in(tmp_path / "without")


@_EACH
def test_every_series_is_imported(modules: dict[str, Path], name: str) -> None:
    module = modules[name]
    expected = {"Kbuild", "dkms.conf", "tuned", "rules", "rules.toml"}
    expected |= {"build.sh", "source.sh", "series", "import_kernel.py", "hooks.py"}
    for suite in SUITES:
        expected |= {suite.series, f"{suite.series}.source"}
        assert (module / f"{suite.series}.source").read_text() == f"{suite.origin()}\n"
    assert {path.name for path in module.iterdir()} == expected
    assert package(module).endswith(f"-{__version__}")


@_EACH
def test_private_headers_are_the_imported_kernels(modules: dict[str, Path], name: str) -> None:
    for suite in SUITES:
        for header, there in rules(name)["headers"].items():
            taken = modules[name] / suite.series / "include" / header
            assert taken.read_bytes() == (suite.source() / there).read_bytes()


@_EACH
def test_an_archive_gives_what_its_tree_gives(
    modules: dict[str, Path], name: str, tmp_path: Path
) -> None:
    """As in linux-source-* packages: one directory in a compressed tar file."""
    suite = SUITES[0]
    archive = tmp_path / "linux-source.tar.xz"
    with tarfile.open(archive, "w:xz", preset=0) as tar:
        tar.add(suite.source(), "linux-source")
    output = tmp_path / "output"
    done = import_module(name, output, archive)
    assert done.returncode == 0, done.stderr
    assert (output / f"{suite.series}.source").read_text() == f"{suite.origin().split()[0]}\n"
    directory = suite.series
    compared = subprocess.run(
        ["diff", "-r", output / directory, modules[name] / directory],
        check=False,
        capture_output=True,
    )
    assert compared.returncode == 0, compared.stdout


def test_a_record_of_another_version_is_refused(ours: Path, tmp_path: Path) -> None:
    tree = shutil.copytree(SUITES[0].source(), ours / "tree")
    (tree / "fusetune-source").write_text("6.1.1 linux-source-6.1 6.1.1-1\n")
    assert "'6.1.1 linux-source-6.1 6.1.1-1', but the tree is of 6.1." in refused(
        ours, tmp_path, tree
    )


def _texts() -> list[tuple[str, int]]:
    return [(name, number) for name in MODULES for number in range(len(rules(name)["text"]))]


def _hooks() -> list[tuple[str, dict[str, Any]]]:
    return [(name, hook) for name in MODULES for hook in rules(name)["hook"]]


@pytest.mark.parametrize(("name", "number"), _texts())
def test_a_name_found_too_often_is_refused(
    name: str, number: int, ours: Path, tmp_path: Path
) -> None:
    """A rule that expects one occurrence too many fails, each in one of the series."""
    suite = SUITES[number % len(SUITES)]
    rule = rules(name)["text"][number]
    times = rule["times"] if isinstance(rule["times"], int) else rule["times"][suite.series]
    file = ours / name / "rules.toml"
    parts = file.read_text().split("\n[[text]]")
    parts[number + 1] = re.sub(
        r"^times = .*$", f"times = {times + 1}", parts[number + 1], flags=re.M
    )
    file.write_text("\n[[text]]".join(parts))
    assert f"{rule['find']!r} {times} times, not {times + 1}" in refused(
        ours, tmp_path, suite.source(), name
    )


def _leave_out(rules_file: Path, **others: object) -> None:
    """Replace the rules of these kinds with ``others``, which is faster."""
    document = tomlkit.parse(rules_file.read_text()).unwrap()
    rules_file.write_text(tomlkit.dumps({**document, **others}))


@pytest.mark.parametrize(
    ("name", "hook"), _hooks(), ids=lambda value: value if isinstance(value, str) else value["call"]
)
def test_a_hook_that_did_not_land_is_refused(
    name: str, hook: dict[str, Any], ours: Path, tmp_path: Path
) -> None:
    """On the first series that the rule applies to; 7.2 makes one comparison itself."""
    sites = hook["sites"]
    suite = next(s for s in SUITES if (sites if isinstance(sites, list) else sites[s.series]))
    call = hook["call"]
    other = call.replace(">=", "!=") if ">=" in call else re.sub(r"\w+", "other", call, count=1)
    broken = []
    for path in (ours / name / "rules").glob("*.cocci"):
        lines = path.read_text().splitlines()
        # The rule adds the wrong code, which spatch does not notice.
        changed = [line.replace(call, other) if line.startswith("+") else line for line in lines]
        path.write_text("\n".join([*changed, ""]))
        broken += [path.name] if changed != lines else []
    (script,) = broken
    patches = {script: rules(name)["patches"][script]}
    _leave_out(ours / name / "rules.toml", patches=patches, hook=[hook])
    assert f"{hook['call']!r} is in {{" in refused(ours, tmp_path, suite.source(), name)


@pytest.mark.parametrize("number", range(len(rules("fusetuned")["place"])))
def test_a_place_that_the_hooks_do_not_know_is_refused(
    number: int, ours: Path, tmp_path: Path
) -> None:
    """As a later kernel may add; a comment does not count."""
    suite = SUITES[number % len(SUITES)]
    place = rules("fusetuned")["place"][number]
    text = place["text"]
    _leave_out(ours / "fusetuned" / "rules.toml", patches={}, hook=[], place=[place])
    source = shutil.copytree(suite.source(), ours / "source")
    with (source / "fs" / "fuse" / "xattr.c").open("a") as file:
        file.write(f"\n/* {text} */\nstatic void later(void)\n{{\n\t{text};\n}}\n")
    said = refused(ours, tmp_path, source)
    assert f"{text!r} is in {{" in said
    assert "'xattr.c later': 1" in said
    assert "'xattr.c -'" not in said


def test_a_hook_in_another_place_is_refused(ours: Path, tmp_path: Path) -> None:
    file = ours / "fusetuned" / "rules.toml"
    text = file.read_text()
    file.write_text(text.replace("passthrough.c fuse_passthrough_open", "passthrough.c other"))
    said = refused(ours, tmp_path, SUITES[1].source())
    assert "passthrough.c fuse_passthrough_open" in said


def test_a_name_left_over_is_refused(ours: Path, tmp_path: Path) -> None:
    """As a later kernel may add: a string without a rule."""
    source = shutil.copytree(SUITES[0].source(), tmp_path / "ours" / "source")
    file = source / "fs" / "fuse" / "xattr.c"
    file.write_text(file.read_text() + 'static const char *left = "fuseblk";\n')
    assert '"fuseblk" is still in xattr.c -' in refused(ours, tmp_path, source)


@pytest.mark.parametrize(
    ("makefile", "why"),
    [
        ("VERSION = 6\nPATCHLEVEL = 5\nSUBLEVEL = 0\n", "Linux 6.5 is not supported"),
        ("all:\n", "not a kernel's"),
    ],
)
def test_another_kernel_is_refused(makefile: str, why: str, ours: Path, tmp_path: Path) -> None:
    source = ours / "source"
    source.mkdir()
    (source / "Makefile").write_text(makefile)
    assert why in refused(ours, tmp_path, source)


def test_one_series_twice_is_refused(tmp_path: Path) -> None:
    done = import_module("fusetuned", tmp_path / "output", *(SUITES[0].source(),) * 2)
    assert done.returncode == 1
    assert "given twice" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_broken_archive_is_refused_and_the_old_output_stays(tmp_path: Path) -> None:
    archive = tmp_path / "linux.tar"
    with tarfile.open(archive, "w") as tar:
        entry = tarfile.TarInfo("linux/README")
        tar.addfile(entry, io.BytesIO())
    output = tmp_path / "output"
    output.mkdir()
    (output / "kept").touch()
    assert import_module("fusetuned", output, archive).returncode == 1
    assert [path.name for path in output.iterdir()] == ["kept"]
