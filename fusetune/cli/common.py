# SPDX-License-Identifier: GPL-2.0-or-later
"""Arguments, options and output that commands share."""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fusetune.cli.pager import page
from fusetune.errors import UsageError, reason
from fusetune.host import Host
from fusetune.mounts.control import mount_controls
from fusetune.mounts.discover import find
from fusetune.mounts.mount import Mount
from fusetune.report.documents.base import Document

if TYPE_CHECKING:
    from fusetune.bench.spending import Budget
    from fusetune.bench.workloads import WorkloadSet
    from fusetune.report.documents.auto import AutoResult
    from fusetune.report.documents.bench import BenchResult

HOST_TARGET = "host"
_LONGEST_DURATION = 1000 * 3600.0  # seconds: the kernel's timeouts are limited

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Print what would be written, but write nothing."
)
allow_owner_option = click.option(
    "--allow-owner",
    "owners",
    multiple=True,
    metavar="USER",
    help="Allow this user's mounts more dirty memory; may be repeated.",
)
pass_host = click.make_pass_decorator(Host)


def pass_host_of_mounts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass the host to a command about mounts, with the control file systems mounted."""

    @pass_host
    @wraps(function)
    def command(host: Host, /, *args: Any, **kwargs: Any) -> Any:
        mount_controls(host)
        return function(host, *args, **kwargs)

    return command


class Size(click.ParamType):
    """A number of bytes with an optional suffix K, M or G (powers of 1024)."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        if isinstance(value, int):
            return value
        from fusetune.knobs import parse_number

        try:
            return parse_number(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType):
    """A time with an optional suffix s, m or h, at most 1000h; in seconds without a suffix.

    ``zero``: may be 0.
    """

    name = "TIME"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smh]?)", value)
        if not match or (float(match[1]) == 0 and not self._zero):
            self.fail(f"{value!r} is not a time such as 90, 90s or 2m", param, ctx)
        seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
        if seconds > _LONGEST_DURATION:
            self.fail(f"{value!r} is longer than {_LONGEST_DURATION // 3600:.0f}h", param, ctx)
        return seconds


def workload_option(
    what: str, default: str, more: str = ""
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --workload.

    ``what``: what it means; ``default``: the workloads without it; ``more``: what else it accepts.
    """
    from fusetune.bench.workloads import SETS, WORKLOADS

    return click.option(
        "--workload",
        "-w",
        "names",
        multiple=True,
        metavar="NAME",
        help=f"{what}: {', '.join(WORKLOADS)}; or a set of them: {', '.join(SETS)}{more}; "
        f"may be repeated.  [default: {default}]",
        shell_complete=lambda context, parameter, begun: [
            name for name in (*WORKLOADS, *SETS) if name.startswith(begun)
        ],
    )


def measuring_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of commands that measure."""
    from fusetune.bench.workloads import DEFAULT

    more = "; or profile: the traffic that 'fusetune profile' recorded"
    return workload_option("What to measure", DEFAULT, more)(budget_options()(function))


def plot_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option --plot. The file's directory is checked before anything is measured."""
    return click.option(
        "--plot",
        type=click.Path(path_type=Path, dir_okay=False, writable=True),
        callback=_with_directory,
        metavar="FILE.svg",
        help=f"{what} The file is replaced atomically.",
    )


def _with_directory(
    context: click.Context, parameter: click.Parameter, path: Path | None
) -> Path | None:
    if path:
        from fusetune.files import open_directory

        try:
            os.close(open_directory(path.parent))
        except OSError as error:
            raise click.BadParameter(f"{path.parent}: {reason(error)}") from error
    return path


def draw(document: "AutoResult | BenchResult", plot: Path | None) -> None:
    """Write the picture of a document to the file of --plot, if there is one."""
    if plot:
        from fusetune.files import write_whole
        from fusetune.report.picture import picture

        write_whole(plot, picture(document))


def tell_profile(sets: "Mapping[str, WorkloadSet]") -> None:
    """Print on standard error which workloads represent the profile, if it is among the sets."""
    from fusetune.desired.profiles import PROFILE

    if profile := sets.get(PROFILE):
        click.echo(f"fusetune: measuring the mount's profile: {profile.text}", err=True)


def files_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for read-only measurements: which files to read, and how much of them."""
    from fusetune.bench.spending import LEAST_BYTES, LEAST_REQUESTS, MIB

    return _with_options(
        function,
        click.option(
            "--files",
            multiple=True,
            metavar="PATH",
            help="Read this file, or large files of this directory, in the mount, and write "
            "nothing; may be repeated.  [default: scratch files; if none can be written, large "
            "files of the mount, newest first]",
        ),
        click.option(
            "--budget-read",
            type=Size(),
            default=4 << 30,
            help="How much the whole run may read from such files, at least "
            f"{LEAST_BYTES // MIB}M.  [default: 4G]",
        ),
        click.option(
            "--budget-requests",
            type=Size(),
            default=1_000_000,
            metavar="NUMBER",
            help="Limit of read(2) calls on such files in the whole run, at least "
            f"{LEAST_REQUESTS}.  [default: 1000000]",
        ),
    )


def budget_options(only_with: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options that limit how much a command measures.

    ``only_with``: the option without which they have no effect, if any.
    """
    from fusetune.bench.spending import LEAST_BYTES, LEAST_SECONDS, MIB, MOST_WRITTEN

    def words(text: str) -> str:
        return f"With {only_with}: {text[0].lower()}{text[1:]}" if only_with else text

    options = (
        click.option(
            "--budget",
            type=Duration(),
            default=60.0,
            help=words(
                f"Time limit of the whole run, at least {LEAST_SECONDS:.0f}s.  [default: 60s]"
            ),
        ),
        click.option(
            "--budget-bytes",
            type=Size(),
            default=MOST_WRITTEN,
            help=words(
                f"How much the whole run may write, at least {LEAST_BYTES // MIB}M.  [default: 8G]"
            ),
        ),
        click.option(
            "--size",
            type=Size(),
            help=words(
                "Size of a scratch file.  [default: as large as budget and free space allow]"
            ),
        ),
    )
    return lambda function: _with_options(function, *options)


def _with_options(function: Callable[..., Any], *options: Callable[..., Any]) -> Callable[..., Any]:
    """Add options to a command; --help shows them in this order."""
    for option in reversed(options):  # click shows the last added first
        function = option(function)
    return function


def budget_of(limits: Mapping[str, Any]) -> "Budget":
    """Return the budget that `budget_options` and `files_options` give."""
    from fusetune.bench.spending import Budget

    return Budget(
        limits["budget"],
        limits["budget_bytes"],
        limits["budget_read"],
        limits["budget_requests"],
    )


def target(host: Host, name: str) -> Mount | None:
    """Return the mount that ``name`` means, or None for the host itself."""
    return None if name == HOST_TARGET else find(host, name)


def present(document: Document, as_json: bool) -> None:
    """Print what a command has done, as JSON or as text."""
    click.echo(_shown(document, as_json), nl=False)


def browse(document: Document, as_json: bool, *, long: bool = False) -> None:
    """Print a document, through a pager if it does not fit; ``long``: with explanations."""
    page(_shown(document, as_json, long=long))


def _shown(document: Document, as_json: bool, *, long: bool = False) -> str:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return document.as_json() if as_json else document.as_text(long=long, columns=columns)


def warn(text: str) -> None:
    """Print a warning on standard error; the command goes on."""
    click.echo(f"fusetune: {text}", err=True)


def given(parameter: str) -> bool:
    """Whether the user gave a parameter of the current command."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source not in (None, click.core.ParameterSource.DEFAULT)


def spelt(parameter: str) -> str:
    """Return the option of a parameter of the current command, such as --size."""
    found = (one for one in click.get_current_context().command.params if one.name == parameter)
    return max((word for one in found for word in one.opts), key=len)


class ProgressLine:
    """Progress on standard error: a bar with the time left on a terminal, otherwise a few lines."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told = -1
        self._bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
            from rich.table import Column

            # Refreshed explicitly: a refreshing thread would not survive fork().
            self._bar = Progress(
                # A long path is truncated; the time is always shown.
                TextColumn("{task.fields[left]:>4} s left", table_column=Column(no_wrap=True)),
                BarColumn(table_column=Column(no_wrap=True)),
                TextColumn("{task.description}", table_column=Column(overflow="ellipsis")),
                console=Console(stderr=True),
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task("", total=1.0, left=f"{seconds:.0f}")

    def __enter__(self) -> Callable[[float, str], None]:
        if self._bar:
            self._bar.start()
        return self._show

    def __exit__(self, *exception: object) -> None:
        if self._bar:
            self._bar.stop()

    def tell(self, words: str) -> None:
        """Print a line above the progress bar."""
        with suppress(BrokenPipeError):
            if self._bar:
                self._bar.console.print(f"fusetune {words}", highlight=False, markup=False)
            else:
                click.echo(f"fusetune {words}", err=True)

    def _show(self, share: float, words: str) -> None:
        share = min(1.0, share)
        left = f"{self._seconds * (1 - share):.0f}"
        if self._bar:
            self._bar.update(self._task, completed=share, description=words, left=left)
            self._bar.refresh()
        elif int(share * 10) > self._told:
            self._told = int(share * 10)
            with suppress(BrokenPipeError):
                click.echo(f"{share:.0%} of the budget used, {left} s left: {words}", err=True)


def refuse_host(name: str) -> None:
    """Raise UsageError if the host is named but a mount is needed."""
    if name == HOST_TARGET:
        raise UsageError("give a mount instead of the host; 'fusetune list' shows the mounts")
