# SPDX-License-Identifier: GPL-2.0-or-later
"""The layers of a stack, in the document of ``advise``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.limits import Limits
from fusetune.mounts.mount import Mount
from fusetune.mounts.stack import FoundBy, Layer
from fusetune.report.documents.base import MountPoint, Text
from fusetune.report.documents.bench import WorkloadFigure, figure_cell, shown_figure
from fusetune.report.documents.figures import Ratio
from fusetune.report.documents.layers import Device, Elsewhere
from fusetune.report.text import Table, value_text
from fusetune.schema import Rule
from fusetune.text import shell_word

Portion = Annotated[float, Rule(minimum=0)]


@dataclass(frozen=True)
class LayerShare:
    """A layer's share of the time that the top of the stack needs for a unit of work."""

    share: Annotated[
        Portion,
        "Share of that time, 1 for all of it; the lowest layer's share includes what it lies on. "
        "Negative results of noise become 0.",
    ]
    ci95: Annotated[
        Sequence[Annotated[Portion, "End of the interval."]],
        "95 % interval of the share, lower end first.",
        Rule(minItems=2, maxItems=2),
    ]
    over: Annotated[MountPoint | None, "The next layer below it that counts; null for the lowest."]
    fall: Annotated[
        Ratio | None,
        "Time for the work divided by the time on the layer below; null for the lowest.",
    ]


@dataclass(frozen=True)
class StackLayer:
    """A layer of a stack: a mount that the mount lies on, or the mount itself."""

    path: MountPoint
    fstype: Annotated[Text, "File system type as in /proc/self/mountinfo."]
    device: Device
    found_by: Annotated[
        str | None,
        "How it was found, see 'list --tree'; null for the mount itself.",
        Rule(enum=list(FoundBy)),
    ]
    elsewhere: Elsewhere
    changes: Annotated[
        Sequence[Annotated[Text, "Name of an option in the recipe."]],
        "The options that its recipe proposes to change at the next mount.",
    ]
    workloads: Annotated[
        Sequence[WorkloadFigure], "Its figures; empty without --measure-layers, or if left out."
    ]
    left_out_reason: Annotated[
        Text | None, "Why it was not measured; null if it was, or without --measure-layers."
    ]
    share: Annotated[
        LayerShare | None,
        "Its share of the top's time; null if it was not measured or does not count.",
    ]


Layers = Annotated[
    Sequence[StackLayer],
    "The stack from the bottom up, the mount itself last; empty if nothing below it is known.",
]


@dataclass(frozen=True)
class LimitingLayer:
    """The layer with a significantly larger share of the time than any other."""

    path: MountPoint
    device: Device


def stack_layers(
    mount: Mount,
    below: Sequence[Layer],
    proposed: Mapping[str, Sequence[str]],
    limits: Limits | None,
) -> list[StackLayer]:
    """Return the layers of a stack in the form of documents: a mount and all layers below it.

    ``layers`` are given from the bottom up. ``proposed``: the options to change, by device;
    ``limits``: what was measured, None if nothing was.
    """
    if not below:
        return []
    every: list[Layer | Mount] = [*below, mount]
    paths = {one.device: one.path for one in every}
    figures = {one.label: one.figures for one in limits.measured} if limits else {}
    shares = {
        one.label: LayerShare(
            max(0.0, one.share),
            [max(0.0, one.low), max(0.0, one.high)],
            paths[one.over] if one.over else None,
            Ratio(one.fall.ratio, [one.fall.low, one.fall.high]) if one.fall else None,
        )
        for one in (limits.shares if limits else ())
    }
    return [
        StackLayer(
            one.path,
            one.fstype,
            one.device,
            str(one.found_by) if isinstance(one, Layer) else None,
            isinstance(one, Layer) and one.elsewhere,
            proposed.get(one.device, []),
            [shown_figure(figure) for figure in figures.get(one.device, ())],
            limits.left_out.get(one.device) if limits else None,
            shares.get(one.device),
        )
        for one in every
    ]


def limiting_layer(layers: Sequence[StackLayer], limits: Limits | None) -> LimitingLayer | None:
    """Return the layer that limits; None if none does or nothing was measured."""
    found = (one for one in layers if limits and one.device == limits.limiting)
    return next((LimitingLayer(one.path, one.device) for one in found), None)


def stack_text(
    layers: Sequence[StackLayer], limiting: LimitingLayer | None
) -> Iterator[str | Table]:
    """Yield the layers from the bottom up, the limiting one if measured, and what to do."""
    measured = next((one.workloads for one in reversed(layers) if one.workloads), ())
    yield "layers, from the bottom up:"
    yield Table(
        (
            *("mount", "type", "found by", "options to change"),
            *(one.name for one in measured),
            *(["share of time"] if measured else []),
        ),
        [_cells(one, len(measured)) for one in layers],
    )
    if measured:
        yield from (
            f"{one.path} is left out: {one.left_out_reason}"
            for one in layers
            if one.left_out_reason
        )
        yield from (
            f"{one.path} does not count: no layer above it waits for it"
            for one in layers
            if one.workloads and not one.share
        )
        yield _verdict(layers, limiting)
    if todo := [one for one in layers[:-1] if one.changes and not one.elsewhere]:
        commands = (f"'fusetune advise {shell_word(one.path)}'" for one in todo)
        yield f"tune from the bottom up: first {', then '.join(commands)}"
    yield ""


def _cells(one: StackLayer, workloads: int) -> list[str]:
    figures = [figure_cell(each) for each in one.workloads] or ["-"] * workloads
    return [
        one.path,
        one.fstype,
        value_text(one.found_by),
        ", ".join(one.changes) or "-",
        *figures,
        *([_share_text(one.share) if one.share else "-"] if workloads else []),
    ]


def _share_text(one: LayerShare) -> str:
    low, high = one.ci95
    return f"{one.share:.0%} [{low:.0%}, {high:.0%}]"


def _verdict(layers: Sequence[StackLayer], limiting: LimitingLayer | None) -> str:
    counting = {one.device: one.share for one in layers if one.share}
    if limiting is None:
        return "no layer takes significantly more time than the others"
    share = counting[limiting.device]
    besides = "" if share.over else ", including the layers below it"
    return f"{limiting.path} limits: it takes {share.share:.0%} of the time{besides}"
