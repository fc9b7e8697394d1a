# SPDX-License-Identifier: GPL-2.0-or-later
"""Write saved results to one file for other hosts."""

from pathlib import Path

import click

from fusetune.cli.common import pass_host_of_mounts, warn
from fusetune.cli.completion import mount_argument
from fusetune.desired.config import load
from fusetune.desired.exported import chosen, text_of
from fusetune.desired.signatures import sign
from fusetune.errors import UsageError
from fusetune.files import write_whole
from fusetune.host import Host

EXAMPLES = (
    ("Export what is saved for a mount", "export /mnt/x -o x.toml"),
    ("Export everything that is saved, and sign it", "export -o all.toml --key ~/.ssh/id_ed25519"),
)


@click.command("export", help=__doc__)
@mount_argument("[M...]", required=False, count=-1)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write to this file instead of standard output. The file is replaced atomically.",
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Sign with this SSH key; for a public key, with the private key in ssh-agent. The "
    "signature is written next to the output, with .sig added to its name.",
)
@pass_host_of_mounts
def command(host: Host, name: tuple[str, ...], output: Path | None, key: Path | None) -> None:
    if key and not output:
        raise UsageError("--key needs --output: the signature is a file beside it")
    exported = chosen(host, load(host), name)
    text = text_of(exported)
    if output is None:
        click.echo(text, nl=False)
        return
    signature = sign(text.encode(), key) if key else None
    write_whole(output, text)
    if signature:
        write_whole(output.with_name(f"{output.name}.sig"), signature)
    warn(f"{output}: {len(exported.results)} results, {len(exported.sections)} sections")
