# SPDX-License-Identifier: GPL-2.0-or-later
"""Import saved results that another host exported."""

from pathlib import Path

import click

from fusetune.cli.common import dry_run_option, json_option, pass_host_of_mounts, present
from fusetune.desired.config import load
from fusetune.desired.resolve import Resolver
from fusetune.desired.transfer import Importer, import_sections, read
from fusetune.errors import ExitCode
from fusetune.host import Host
from fusetune.report.documents.transfer import imported_file

EXAMPLES = (
    ("What would a file of another host change?", "import x.toml --dry-run"),
    ("Import its results; later mounts get the values", "import x.toml"),
)


@click.command("import", help=__doc__)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--admin",
    is_flag=True,
    help="Also import sections of the configuration, to /etc/fusetune/mounts.d/imported.toml.",
)
@click.option(
    "--signers",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="SIGNERS",
    help="Accept only signatures by these signers (ssh-keygen(1), ALLOWED SIGNERS).  [default: "
    "/etc/fusetune/allowed_signers; if that file does not exist, no signature is required]",
)
@dry_run_option
@json_option
@pass_host_of_mounts
def command(
    host: Host, file: Path, admin: bool, signers: Path | None, dry_run: bool, as_json: bool
) -> int:
    resolver = Resolver(host, load(host))
    found = read(host, file, signers)
    results = list(Importer(host, resolver, dry_run=dry_run).results(found.exported))
    sections = found.exported.sections if admin else ()
    written, done = import_sections(host, sections, dry_run=dry_run) if sections else (None, [])
    document = imported_file(found, results, written, done, dry_run)
    present(document, as_json)
    return ExitCode.FAILED if document.refused else ExitCode.DONE
