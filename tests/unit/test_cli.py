# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line's errors for wrong words, and the modules that it loads."""

import re
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import NoReturn
from unittest.mock import Mock

import click
import pytest

from docs.commands import commands_named
from fusetune import __version__
from fusetune.cli import cli, commands, examples, lib_, main, profile_
from fusetune.errors import FusetuneError
from tests.unit.conftest import CHECKOUT

COMMANDS = commands()

each_command = pytest.mark.parametrize("command", COMMANDS)


def run(*words: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command line in its own process, to test what Python does at its exit."""
    return subprocess.run(
        [sys.executable, *python, "-m", "fusetune", *words],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=30,
        check=False,
    )


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process, which is ten times as fast."""

    def run_here(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["fusetune", *words])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        code = ended.value.code
        assert isinstance(code, int)
        return subprocess.CompletedProcess(words, int(code), *capsys.readouterr())

    return run_here


def test_spaces_in_a_path_are_printed(here: Run) -> None:
    assert "/absent/a  b does not exist" in here("show", "/absent/a  b").stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(closed: str) -> None:
    words = [f"'{sys.executable}' -m fusetune --version {closed}; echo $?"]
    done = subprocess.run(
        ["sh", "-c", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_a_profile_that_cannot_be_saved_is_shown(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> NoReturn:
        raise FusetuneError("the disk is full")

    for name in ("find", "values_now", "watch", "profiled"):
        monkeypatch.setattr(profile_, name, Mock())
    monkeypatch.setattr(profile_, "shares_of", lambda traffic: {"seq-read": 1.0})
    monkeypatch.setattr(profile_, "save_profile", fail)
    monkeypatch.setattr(profile_, "browse", lambda document, as_json: print("what it saw"))
    done = here(*own_directories(tmp_path), "profile", "/mnt")
    assert (done.stdout, done.returncode) == ("what it saw\n", 1)
    assert done.stderr.endswith("fusetune: the disk is full\n")


def test_shells_complete_commands(here: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COMP_WORDS", "fusetune re"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_FUSETUNE_COMPLETE", "bash_complete")
    assert here().stdout.split() == ["plain,reset", "plain,report", "plain,remount"]


def own_directories(directory: Path) -> list[str]:
    """Return options that keep a run from the directories of an installed fusetune."""
    return [
        word
        for name in ("state", "run", "config")
        for word in (f"--{name}-dir", f"{directory}/{name}")
    ]


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return stderr, which must be one whole line, with nothing on stdout."""
    assert done.stdout == ""
    assert done.stderr.endswith("\n")
    (line,) = done.stderr.splitlines()
    return line


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    for name, words in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(words)}$", done.stdout, re.MULTILINE)
    assert run("-h").stdout == done.stdout


@each_command
def test_help_of_a_command(command: str, here: Run) -> None:
    done = here(command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: fusetune {command} ")
    assert " ".join(COMMANDS[command].split()) in " ".join(done.stdout.split())
    assert ("--json" in done.stdout) == (command not in ("watch", "run", "lib", "export"))
    changing = {"set", "reset", "auto", "apply", "save", "forget", "module", "remount"}
    changing |= {"enable", "disable", "import"}
    assert ("--dry-run" in done.stdout) == (command in changing)


def test_choices_are_plain_strings() -> None:
    """Of members of an enumeration, click takes the values until 8.1, and the names since 8.2."""
    params = [param for _, command in commands_named(COMMANDS) for param in command.params]
    choices = [(param, param.type) for param in params if isinstance(param.type, click.Choice)]
    assert {"form", "target", "action"} <= {param.name for param, _ in choices}
    for param, kind in choices:
        assert {type(choice) for choice in kind.choices} == {str}
        assert not isinstance(param.default, StrEnum)


def test_a_group_without_a_command_prints_its_help(
    here: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As click does since 8.2, by an error that older versions do not have."""

    class NoArgs(click.UsageError):
        def show(self, file: object = None) -> None:
            click.echo(self.format_message(), err=True)

    def refuse(context: click.Context, words: list[str]) -> NoReturn:
        raise NoArgs(context.get_help(), context)

    old = here("lib")
    assert (old.stdout + old.stderr).startswith(
        "Usage: fusetune lib [OPTIONS] COMMAND [ARGS]...\n\n"
    )
    monkeypatch.setattr(click.exceptions, "NoArgsIsHelpError", NoArgs, raising=False)
    monkeypatch.setattr(lib_.command, "parse_args", refuse)
    new = here("lib")
    assert (new.returncode, new.stdout) == (2, "")
    assert new.stderr == old.stdout + old.stderr


@each_command
def test_examples_are_right_and_fit_a_terminal(command: str, here: Run) -> None:
    assert examples(command)
    shown = here(command, "--help").stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    for what, words in examples(command):
        assert f"  {what}\n        fusetune {words}\n" in shown
        with cli.make_context("fusetune", []) as context:
            name, used, rest = cli.resolve_command(context, words.split())
            assert used
            used.make_context(name, rest, parent=context)


def test_version(here: Run) -> None:
    done = here("--version")
    assert (done.returncode, done.stdout) == (0, f"fusetune {__version__}\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nonsense", "No such command 'nonsense'"),
        ("--nonsense list", "No such option: --nonsense"),
        ("list extra", "unexpected extra argument"),
        ("list --nonsense", "No such option: --nonsense"),
        ("show", "Missing argument 'M|host'"),
        ("set", "Missing argument 'M|host'"),
        ("set host", "give KNOB=VALUE or, for the host, --for OPTIONS or --for-unit UNIT"),
        ("set host enable_uring=0 --for max_pages=9", "give KNOB=VALUE or, for the host,"),
        ("set host --persist --for max_pages=9", "--persist needs values"),
        ("set host --persist max_user_bgreq=9", "on the kernel's command line"),
        ("set host fs.pipe-max-size", "is not KNOB=VALUE"),
        ("set host fs.pipe-max-size=", "is not a whole number"),
        ("set host fs.pipe-max-size=-1", "is not a whole number"),
        ("set host fs.pipe-max-size=1", "is out of range"),
        ("set host fs.pipe-max-siz=2M", "did you mean fs.pipe-max-size?"),
        ("set host max_ration=2", "did you mean max_ratio?"),
        ("set host max_ratio=2", "fusetune set MOUNT max_ratio=2"),
        ("set host enable_uring=2", "is out of range"),
        ("set host enable_uring=0 enable_uring=0", "is given twice"),
        ("set host fs.pipe-max-size=16\u212a", "is not a whole number"),
        ("set host enable_uring=0 --allow-owner no-such-user", "there is no such user"),
        ("set host enable_uring=0 --allow-owner \u00b2", "there is no such user"),
        ("reset", "give either a mount, 'host' or --all"),
        ("reset host --all", "give either a mount, 'host' or --all"),
        ("reset /mnt/x --keep-results", "--keep-results needs --all: "),
        ("reset --all --keep-saved --keep-results", "give either --keep-saved, to restore only "),
        ("auto", "Missing argument 'M'"),
        ("auto host", "give a mount instead of the host"),
        ("auto /mnt -w nonsense", "unknown workload 'nonsense'; known are mixed"),
        ("auto /mnt --budget 0", "is not a time such as 90, 90s or 2m"),
        ("auto /mnt --budget -5", "is not a time"),
        ("auto /mnt --budget 5x", "is not a time"),
        ("auto /mnt --budget nan", "is not a time"),
        ("auto /mnt --budget 1001h", "'1001h' is longer than 1000h. See"),
        ("auto /mnt --size 5x", "is not a whole number"),
        ("auto /mnt --budget-bytes much", "is not a whole number"),
        ("auto /mnt --seed x", "is not a valid integer"),
        ("auto /mnt --plot /nowhere/x.svg", "/nowhere: No such file or directory"),
        ("auto /mnt --plot x.svg --try-options", "--plot cannot be combined with --try-options or"),
        (
            "auto /mnt --plot x.svg --live",
            "--plot cannot be combined with --live, which measures no curves",
        ),
        ("bench --suite published --plot x.svg", "--plot cannot draw the tables of --suite"),
        ("bench", "give a mount, or --calibrate"),
        ("bench host", "give a mount instead of the host"),
        ("bench /mnt -w nonsense", "unknown workload 'nonsense'"),
        ("doctor extra", "unexpected extra argument"),
        ("apply", "give exactly one of a mount, --all or --bdi"),
        ("apply /mnt --all", "give exactly one of a mount, --all or --bdi"),
        ("apply --bdi 0:40 --all", "give exactly one of a mount, --all or --bdi"),
        ("apply --bdi /mnt", "is not a bdi name; give one such as 0:43"),
        ("apply host", "give a mount instead of the host"),
        ("verify host", "give a mount instead of the host"),
        ("verify /a /b", "unexpected extra argument"),
        ("save", "Missing argument 'M'"),
        ("save host", "give a mount instead of the host"),
        ("forget", "Missing argument 'M'"),
        ("forget host", "give a mount instead of the host"),
        ("watch /mnt", "unexpected extra argument"),
        ("watch --idle soon", "is not a time such as 90, 90s or 2m"),
        ("report host", "give a mount instead of the host"),
        ("report --format yaml", "is not one of"),
    ],
)
def test_wrong_use_is_told_in_one_line(words: str, message: str, tmp_path: Path, here: Run) -> None:
    done = here(*own_directories(tmp_path), *words.split())
    assert done.returncode == 2, done.stderr
    line = one_line(done)
    assert message in line
    assert line.startswith("fusetune")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        *("verify", "report", "top -n 1", "show", "export /mnt", "bench", "apply", "reset"),
        *("apply --all --dry-run", "reset --all --dry-run"),
    ],
)
def test_an_empty_name_means_no_mount(words: str, tmp_path: Path, here: Run) -> None:
    """Of an unset variable in a script; neither every mount nor the current directory is meant."""
    done = here(*own_directories(tmp_path), *words.split(), "")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert one_line(done) == (
        "fusetune: a mount's name is empty; give its mount point, or its bdi such as 0:43"
    )


@pytest.mark.parametrize("word", ["/mnt/point", "./mnt", "_x", "0:43"])
def test_a_mount_without_a_command_is_wrong_use(word: str, here: Run) -> None:
    done = here(word)
    assert done.returncode == 2
    assert f"No such command '{word}'" in one_line(done)


def test_odd_words_are_told_in_one_line(here: Run) -> None:
    for word in ("new\nline", "\udcff", "größe", "\x1b[31m", ""):
        for words in ((word,), ("set", "host", word), ("set", "host", f"{word}=1")):
            done = here(*words)
            assert done.returncode == 2
            line = one_line(done)
            assert "\x1b" not in line
            line.encode()


def test_a_process_of_its_own_ends_the_same_way() -> None:
    for words in (("nonsense",), ("set", "host", "\udcff=1"), ("reset",)):
        done = run(*words)
        assert done.returncode == 2
        one_line(done)


@each_command
def test_a_name_that_is_nowhere_fails_in_one_line(command: str, tmp_path: Path, here: Run) -> None:
    words = {
        "list": None,
        "doctor": None,
        "watch": None,
        "module": None,
        "run": None,
        "lib": None,
        "import": None,
        "enable": None,
        "disable": None,
        "set": ["set", f"{tmp_path}/absent", "max_ratio=1"],
    }.get(command, [command, f"{tmp_path}/absent"])
    if words is None:
        return
    done = here(*own_directories(tmp_path), *words)
    assert done.returncode == 1
    assert "does not exist; 'fusetune list' shows the FUSE mounts" in one_line(done)
    assert list(tmp_path.iterdir()) == []


def loaded(*words: str) -> set[str]:
    """Return the modules that a command line loads."""
    done = run(*words, python=("-X", "importtime"))
    return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_help_loads_no_command() -> None:
    modules = loaded("--help")
    assert "fusetune.cli" in modules
    for unwanted in ("rich", "pyudev", "fusetune.bench", "fusetune.tuner"):
        assert unwanted not in modules
    assert not {f"fusetune.cli.{name}_" for name in COMMANDS} & modules


@pytest.mark.parametrize(
    "words",
    [
        "list --json",
        "show /absent --json",
        "set /absent max_ratio=1",
        "reset /absent",
        "apply --all --json",
        "verify --json",
    ],
)
def test_what_measures_nothing_loads_nothing_that_measures(words: str) -> None:
    modules = loaded(*words.split())
    assert "fusetune.mounts" in modules
    for unwanted in ("rich", "pyudev", "tomlkit", "fusetune.bench.runner", "fusetune.tuner"):
        assert unwanted not in modules
    assert "fusetune.bench.workloads" not in modules


def test_a_reader_that_stops_reading(tmp_path: Path) -> None:
    """As with ``| head``: no traceback, and no complaint at exit."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fusetune", "show", "host", "--long"],
        cwd=CHECKOUT,
        env={"PATH": "/usr/bin:/bin", "FUSETUNE_STATE_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.close()
    try:
        assert process.stderr
        assert process.stderr.read() == b""
        assert process.wait(30) in (0, 1)
    finally:
        process.kill()
        process.wait(10)
        assert process.stderr
        process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="missing: /dev/full")
def test_a_full_disk_for_the_output(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        for option in ("--json", "--long"):
            done = subprocess.run(
                [sys.executable, "-m", "fusetune", "show", "host", option],
                cwd=CHECKOUT,
                env={"PATH": "/usr/bin:/bin", "FUSETUNE_STATE_DIR": str(tmp_path)},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=30,
                check=False,
            )
            assert done.returncode == 1
            (line,) = done.stderr.splitlines()
            assert line.endswith("cannot write to standard output: No space left on device")
