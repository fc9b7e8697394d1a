# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: one module a command, loaded only when it is the one asked for."""

import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from fusetune import __version__
from fusetune.errors import ExitCode, FusetuneError, reason
from fusetune.host import ADMIN_DIR, RUN_DIR, STATE_DIR, Host

# Name of each command, also its module's (with an underscore added), and its line in --help: shown
# without loading the modules.
COMMANDS = {
    "list": "Show every FUSE mount with its values.",
    "show": "Show what can be tuned on a mount, or on the host.",
    "set": "Set values of a mount, or of the host: all of them or none.",
    "reset": "Put back the values found before the first change.",
    "auto": "Measure a mount, choose values, set and keep them.",
    "apply": "Set the values kept for a mount, or for every mount.",
    "verify": "Compare the values of mounts with what is kept for them.",
    "save": "Keep the values that a mount has now for its later mounts.",
    "forget": "Remove what is kept for a mount.",
    "report": "Report on every mount, for people and for monitoring.",
    "watch": "Set kept values on mounts as they appear; udev starts this.",
    "bench": "Measure a mount as it is, or what FUSE can do on this host.",
    "module": "Show the tuned kernel modules; build, load or unload one.",
    "run": "Run a FUSE server with the tuned libfuse3.",
    "lib": "Show who uses the tuned libfuse3; give it to a service or the host.",
    "doctor": "Show what limits FUSE on this host, with remedies.",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"fusetune.cli.{cmd_name}_")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click takes an unknown word that begins with a slash for an option, and prints help.
        if args[0] not in COMMANDS:
            ctx.fail(f"No such command {args[0]!r}.")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _directory(name: str, default: Path, text: str) -> Callable[[Callable[..., None]], Any]:
    return click.option(
        f"--{name}-dir",
        type=click.Path(path_type=Path),
        default=default,
        show_default=True,
        envvar=f"FUSETUNE_{name.upper()}_DIR",
        help=text,
    )


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Exit status: {'; '.join(f'{code:d} {code.meaning}' for code in ExitCode)}.",
)
@click.version_option(__version__, prog_name="fusetune", message="%(prog)s %(version)s")
@_directory("state", STATE_DIR, "Where the undo journal and saved results are kept.")
@_directory("run", RUN_DIR, "Where locks are kept.")
@_directory("config", ADMIN_DIR, "The administrator's configuration.")
@click.pass_context
def cli(context: click.Context, state_dir: Path, run_dir: Path, config_dir: Path) -> None:
    """Measure, choose, apply and undo the tuning of FUSE mounts.

    A mount M is named by its mount point or its bdi (0:43).
    """
    context.obj = Host(state_dir=state_dir, run_dir=run_dir, admin_dir=config_dir)


def main() -> None:
    """Run the command line and exit: whatever fails is told in one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a path may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    sys.exit(_run())


def _run() -> int:
    try:
        code: int | None = cli.main(prog_name="fusetune", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "fusetune"
        return _tell(f"{command}: {error.format_message()} See '{command} --help'.", ExitCode.USAGE)
    except FusetuneError as error:
        return _tell(f"fusetune: {error}", error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return _tell("fusetune: interrupted", ExitCode.FAILED)
    except OSError as error:
        # Keep Python from flushing what is left into a closed pipe or a full disk at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return ExitCode.FAILED  # the reader has what it wanted
        where = f"{error.filename}: " if error.filename else ""
        return _tell(f"fusetune: {where}{reason(error)}", ExitCode.FAILED)
    return code or ExitCode.DONE


def _tell(text: str, code: ExitCode) -> ExitCode:
    print(" ".join(text.split()), file=sys.stderr)
    return code
