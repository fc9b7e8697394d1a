# SPDX-License-Identifier: GPL-2.0-or-later
"""Save the values that a mount has now for later mounts."""

import click

from fusetune.cli.common import (
    dry_run_option,
    json_option,
    pass_host_of_mounts,
    present,
    refuse_host,
    warn,
)
from fusetune.cli.completion import mount_argument
from fusetune.desired.config import load
from fusetune.desired.persist import save_now
from fusetune.desired.resolve import Resolver
from fusetune.host import Host
from fusetune.mounts.discover import find
from fusetune.report.documents.kept import saved_files

EXAMPLES = (("Keep the current values for later mounts of this file system", "save /mnt/x"),)


@click.command("save", help=__doc__)
@mount_argument("M")
@click.option(
    "--admin",
    is_flag=True,
    help="Write them into the section for this path alone, in fusetune.toml or mounts.d of "
    "/etc/fusetune; if there is none, add one in mounts.d.",
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(host: Host, name: str, admin: bool, dry_run: bool, as_json: bool) -> None:
    refuse_host(name)
    mount = find(host, name)
    written = save_now(host, mount, admin=admin, dry_run=dry_run)
    present(saved_files(written, dry_run), as_json)
    if not dry_run:
        resolver = Resolver(host, load(host))
        for why in resolver.caveats(mount, written.after or {}):
            warn(why)
