# SPDX-License-Identifier: GPL-2.0-or-later
"""Files in /etc that mount oursd, and remount and reset on them."""

from pathlib import Path

from fusetune.cli.remount_ import command as remount_command
from fusetune.cli.reset_ import command as reset_command
from tests.unit.conftest import Tree

FSTAB = """\
# what is mounted
//h/x\t/x cifs user=u,password=hunter2 0 0
a\t/mnt/one/  fuse.ours   ro,cache=off,door=hunter2,threads=1  0 0{}
b /mnt/two fuse.ours ro 0 0
""".format("  ")
OPTIONS = "ro,cache=off,door=hunter2,threads=1"


#: On Linux 6.12, with root's server, and no conditions accepted.
SAFE = "ro,cache=off,door=hunter2,threads=8,passthrough"
DROP_IN = "etc/systemd/system/ours.service.d/60-fusetune-options.conf"
SERVICE = "[Service]\nExecStart=/usr/bin/oursd a /mnt/one\n"
ACCEPT = ("--accept", "writeback")


def run(tree: Tree, *words: str) -> int:
    """Run remount on /mnt/one, or reset; return its exit code."""
    command = reset_command if words[:1] == ("reset",) else remount_command
    words = words[1:] if words[:1] == ("reset",) else words
    code = command.main(
        ["/mnt/one", *words], prog_name="fusetune", obj=tree.host, standalone_mode=False
    )
    return code or 0


def fstab(tree: Tree) -> str:
    return (tree.root / "etc/fstab").read_bytes().decode()


def with_options(options: str) -> str:
    return FSTAB.replace(OPTIONS, options)


def files(tree: Tree) -> dict[Path, bytes]:
    """Every file of the tree with its content."""
    return {path: path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}


def undone(tree: Tree) -> dict[Path, bytes]:
    """As `files`, but without the history, which also records what was undone."""
    return {path: text for path, text in files(tree).items() if "history" not in path.parts}
