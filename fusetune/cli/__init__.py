# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: one module for each command, loaded only when needed."""

import errno
import importlib
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from fusetune import __version__
from fusetune.errors import ExitCode, FusetuneError, as_root, reason
from fusetune.host import ADMIN_DIR, RUN_DIR, STATE_DIR, Host

_DIRECTORY = Path(__file__).parent
#: The environment variable that click's shell functions set.
_COMPLETING = "_FUSETUNE_COMPLETE"
# The order of --help. Other commands come after these.
_ORDER = (
    *("list", "show", "set", "reset", "auto", "apply", "verify", "save", "forget", "report"),
    *("history", "explain", "export", "import"),
    *(
        "advise",
        "remount",
        "watch",
        "bench",
        "profile",
        "top",
        "module",
        "run",
        "enable",
        "disable",
        "lib",
    ),
    "doctor",
)


def commands() -> dict[str, str]:
    """Return the first help line of each command by name, without loading the commands.

    A command NAME is the module NAME_ in this package. The module's docstring is the command's
    help. Its EXAMPLES, if any, are shown at the end of the help.
    """
    found = {}
    for file in sorted(_DIRECTORY.glob("[a-z]*_.py")):
        line = re.search(r'^"""(.+?)(?:"""|$)', file.read_text(encoding="utf-8"), re.MULTILINE)
        found[file.stem[:-1]] = line[1] if line else ""
    first = {name: found.pop(name) for name in _ORDER if name in found}
    return first | found


def _is_command(word: str) -> bool:
    return re.fullmatch("[a-z]+", word) is not None and (_DIRECTORY / f"{word}_.py").is_file()


def examples(name: str) -> Sequence[tuple[str, str]]:
    """Return the examples of a command: for each, what it is for and the arguments."""
    found: Sequence[tuple[str, str]] = getattr(_module(name), "EXAMPLES", ())
    return found


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"fusetune.cli.{name}_")


def _epilog(name: str) -> str | None:
    """Return the end of a command's help: the description and command line of each example."""
    lines = [f"  {what}\n      fusetune {words}" for what, words in examples(name)]
    return "\n".join(["\b", "Examples:", *lines]) if lines else None  # \b: click must not rewrap


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if not _is_command(cmd_name):
            return None
        command: click.Command = _module(cmd_name).command
        command.epilog = _epilog(cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click treats an unknown word that begins with a slash as an option and prints help.
        if not _is_command(args[0]):
            ctx.fail(f"No such command {args[0]!r}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(commands().items()))


def _directory(name: str, default: Path, text: str) -> Callable[[Callable[..., None]], Any]:
    return click.option(
        f"--{name}-dir",
        type=click.Path(path_type=Path, readable=False),
        default=default,
        show_default=True,
        envvar=f"FUSETUNE_{name.upper()}_DIR",
        help=text,
    )


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit status: {'; '.join(f'{code:d} {code.meaning}' for code in ExitCode)}.",
)
@click.version_option(__version__, prog_name="fusetune", message="%(prog)s %(version)s")
@_directory("state", STATE_DIR, "Directory of the undo journal and the saved results.")
@_directory("run", RUN_DIR, "Directory of the locks.")
@_directory("config", ADMIN_DIR, "Directory of the administrator's configuration.")
@click.option(
    "--no-pager",
    is_flag=True,
    help="Do not start $PAGER for output that is longer than the terminal.",
)
@click.pass_context
def cli(
    context: click.Context, state_dir: Path, run_dir: Path, config_dir: Path, no_pager: bool
) -> None:
    """Measure, choose, apply and undo the tuning of FUSE mounts.

    A mount M is named by its mount point or by its bdi (0:43). Without a command, fusetune
    summarises the state of all mounts.
    """
    context.obj = Host(state_dir=state_dir, run_dir=run_dir, admin_dir=config_dir)
    if context.invoked_subcommand is None:
        _say_how_mounts_stand(context)


def _say_how_mounts_stand(context: click.Context) -> None:
    from fusetune.mounts.control import mount_controls
    from fusetune.report.inventory import take_inventory
    from fusetune.report.overview import overview

    mount_controls(context.obj)
    lines = overview(take_inventory(context.obj))
    click.echo("\n".join(lines) if lines else context.get_help())


def main() -> None:
    """Run the command line and exit. A failure prints one line on standard error."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # paths may be unprintable
            stream.reconfigure(errors="backslashreplace")
    if _COMPLETING in os.environ:
        from fusetune.cli.shells import register

        register()
    sys.exit(_run())


def _open_standard_streams() -> None:
    """Replace closed ones with /dev/null, so that no file gets their numbers."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


#: Errors of writing that no file's name explains.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _run() -> int:
    try:
        code: int | None = cli.main(prog_name="fusetune", standalone_mode=False)
        sys.stdout.flush()
    except getattr(click.exceptions, "NoArgsIsHelpError", ()) as error:
        error.show()  # the help of a group without a command; click 8.1 prints it without an error
        code = ExitCode.USAGE
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "fusetune"
        said = error.format_message().removesuffix(".")
        return _tell(f"{command}: {said}. See '{command} --help'.", ExitCode.USAGE)
    except FusetuneError as error:
        return _tell(f"fusetune: {error}", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _tell("fusetune: interrupted", ExitCode.FAILED)
    except OSError as error:
        # Keep Python from flushing buffered output into a closed pipe or a full disk at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ExitCode.FAILED  # the reader closed the pipe
        where = f"{error.filename}: " if error.filename else ""
        if not where and error.errno in _FULL:
            where = "cannot write to standard output: "
        return _tell(f"fusetune: {where}{reason(error)}{as_root(error)}", ExitCode.FAILED)
    return code or ExitCode.DONE


def _tell(text: str, code: ExitCode) -> ExitCode:
    print(re.sub(r"\s*[\r\n]\s*", " ", text.strip()), file=sys.stderr)
    return code
