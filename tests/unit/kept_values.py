# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that the configuration has for a mount, and those that were set on it."""

from fusetune.desired.config import load
from fusetune.desired.reconcile import Reconciled
from fusetune.desired.resolve import Resolver
from fusetune.knobs import LIVE
from tests.unit.conftest import Tree

KNOBS = {knob.name: knob for knob in LIVE}
BOTH = "[[mount]]\nmax_ratio = 20\nmax_background = 64\n"


def resolver(tree: Tree, text: str | None = None) -> Resolver:
    """Return a new one, as of a new process."""
    if text is not None:
        tree.write("etc/fusetune.toml", text)
    return Resolver(tree.host, load(tree.host))


def made(kept: Reconciled) -> dict[str, int]:
    return {change.knob.name: change.new for change in kept.changes}
