# SPDX-License-Identifier: GPL-2.0-or-later
"""Shows output that is longer than the terminal in the user's pager."""

import os
import shutil
import signal
import subprocess
import sys

import click

#: Exit statuses of sh when it cannot run a command.
_NOT_RUN = (126, 127)
#: Set by sudo(8), doas(1) and pkexec(1) for the commands that they run as another user.
_ELEVATED = frozenset({"SUDO_UID", "DOAS_USER", "PKEXEC_UID"})


def page(text: str) -> None:
    """Print a text; if it is longer than the terminal, with ``$PAGER`` or else with less.

    Under sudo, doas or pkexec, the pager is always less in its secure mode: a user who may run
    fusetune as root must not thereby run arbitrary commands as root (sudo(8), "Preventing shell
    escapes"; less(1), "SECURITY").
    """
    if not _is_longer(text) or not _paged(text):
        click.echo(text, nl=False)


def _is_longer(text: str) -> bool:
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if not terminal or click.get_current_context().find_root().params["no_pager"]:
        return False
    size = shutil.get_terminal_size()
    rows = sum(max(1, -(-len(line) // size.columns)) for line in text.splitlines())
    return rows >= size.lines  # the shell's prompt takes one


def _paged(text: str) -> bool:
    """Show a text in the pager; return False if there is none."""
    pager, environment = (
        os.environ.get("PAGER", "").strip() or "less",
        {"LESS": "FRX", **os.environ},
    )
    if not _ELEVATED.isdisjoint(environment):
        pager, environment["LESSSECURE"] = "less", "1"
    # PAGER is a command line of sh (POSIX, man(1)).
    with subprocess.Popen(
        ["/bin/sh", "-c", pager],
        stdin=subprocess.PIPE,
        env=environment,
        encoding=sys.stdout.encoding,
        errors="backslashreplace",
    ) as process:
        # The pager handles interrupts.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            process.communicate(text)
        finally:
            signal.signal(signal.SIGINT, before)
    return process.returncode not in _NOT_RUN
