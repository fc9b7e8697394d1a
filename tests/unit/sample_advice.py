# SPDX-License-Identifier: GPL-2.0-or-later
"""The documents of advise and remount for a mount of any name, and the layers below it."""

from dataclasses import replace
from pathlib import Path

from fusetune.bench.intervals import Interval
from fusetune.bench.limits import Limits, Share
from fusetune.bench.measure import Measurement, summarise
from fusetune.bench.workloads import WORKLOADS
from fusetune.desired.remount import Remount
from fusetune.host import Host
from fusetune.mounts.mount import Mount
from fusetune.mounts.stack import FoundBy, Layer
from fusetune.recipes.advice import Advice
from fusetune.recipes.edit import Edit
from fusetune.recipes.edits import Way
from fusetune.recipes.load import load_recipes
from fusetune.recipes.plan import Change as Change_
from fusetune.report.documents.advice import advised
from fusetune.report.documents.auto import auto_options
from fusetune.report.documents.base import Document
from fusetune.report.documents.remount import remounted
from fusetune.tuner.option_search import OptionTrial
from fusetune.tuner.options import OptionsOutcome
from fusetune.tuner.search import Choice
from tests.unit.conftest import STOCK


def layers_of(mount: Mount) -> list[Layer]:
    """Layers that a mount may lie on: a kernel file system, and FUSE elsewhere."""
    lower = replace(mount, path=mount.path + "3", device="0:41")
    return [
        Layer("8:1", mount.path + "/", "ext4", FoundBy.SOURCE),
        Layer("0:41", lower.path, lower.fstype, FoundBy.OPEN, lower, elsewhere=True),
    ]


def limits_of(mount: Mount) -> Limits:
    """Figures of two layers, the lower of which limits; and a third that was not measured."""
    figures = [summarise(WORKLOADS["mixed"], [100.0, 110.0, 90.0])]
    shares = [
        Share("0:41", 1.1, 1.0, 1.2),
        Share(mount.device, -0.1, -0.2, 0.1, "0:41", Interval(0.9, 0.8, 1.0)),
    ]
    measured = [Measurement(one.label, mount, figures) for one in shares]
    return Limits(shares, "0:41", False, measured, {"8:1": f"{mount.path} is no FUSE mount"})


def advice_documents(mount: Mount) -> list[Document]:
    """``advise`` and ``auto --try-options``: with changes, without, without a recipe."""
    odd = mount.path
    (recipe,) = (one for one in load_recipes(Host()) if one.recipe.name == "mirrorfs")
    left_out = Change_("direct_io", odd, "true", None, "conditional", odd, odd, (), (), odd)
    new = Change_(
        "writeback", odd, None, odd, "safe", None, odd, (odd, "Linux 6.9"), ("metadata",), odd
    )
    full = Advice(
        *(mount, odd, odd, "1.2", "libfuse3", recipe, [left_out, new], f"a {odd}", f"b {odd}"),
        *([(f"/etc{odd}", f"-{odd}\n+b\n")], [odd], [odd]),
    )
    bare = Advice(replace(mount, bdi=None), "", None, None, None, None)
    nothing = replace(full, changes=())
    same = Choice({}, False, Interval(1.0, 1.0, 1.0), {}, ())
    gain = Interval(1.5, 1.2, 1.9)
    trial = OptionTrial({"writeback": odd, "direct_io": None}, STOCK, ({"mixed": 2.0},))
    proven = OptionsOutcome(
        *(mount, [WORKLOADS["mixed"]], STOCK, STOCK, replace(same, changed=True, gain=gain)),
        *(full, {"writeback": gain}, [trial]),
    )
    below, limits = layers_of(mount), limits_of(mount)
    return [
        *(advised(full), advised(nothing), advised(bare, [odd])),
        advised(full, [], below, {"0:41": [odd]}),
        advised(full, [], below, {}, limits),
        advised(full, [], below, {}, replace(limits, limiting=None)),
        advised(full, [], below, {}, replace(limits, shares=limits.shares[:1])),
        auto_options(proven),
        auto_options(replace(proven, advice=nothing)),
        auto_options(replace(proven, choice=same, advice=nothing)),
    ]


def remount_documents(mount: Mount) -> list[Document]:
    """``remount``: before, after, and with nothing to do."""
    odd = mount.path
    left_out = Change_("direct_io", odd, "true", None, "conditional", odd, odd, (), (), odd)
    new = Change_("writeback", odd, None, odd, "safe", None, odd, (odd,), ("metadata",), odd)
    edit = Edit(Path(f"/etc{odd}"), None, f"{odd}\n")
    full = Remount(mount, odd, "a", (), [new], [left_out], [edit], True, [odd], [odd], Way(), [odd])
    bare = Remount(replace(mount, bdi=None), "", "a", (), [], [], [], False, [], [], Way())
    return [
        remounted(full, dry_run=True),
        remounted(replace(full, remounted=True, pending=False), dry_run=False),
        remounted(bare, dry_run=False),
    ]
