# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings, origins and stacks, grouped so that a page states each only once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusetune.report.documents.diagnosis import ShownFinding
from fusetune.report.documents.expected import Origin
from fusetune.report.documents.inventory import HostReport, ReportedMount
from fusetune.report.documents.layers import LayerBelow
from fusetune.text import printable, shell_word


@dataclass(frozen=True)
class FoundOn:
    """A finding and the paths of the mounts concerned; none if it concerns the host.

    In ``what`` and ``remedy`` for several mounts, M stands for the path of each.
    """

    name: str
    what: str
    remedy: str
    mounts: Sequence[str]


def findings(report: HostReport) -> list[FoundOn]:
    """Return the findings of a report; those that differ only in the mount are merged."""
    alike: dict[tuple[str, str, str], list[ShownFinding]] = {}
    for one in report.findings:
        alike.setdefault((one.name, *_general(one)), []).append(one)
    found = []
    for (name, *general), each in alike.items():
        what, remedy = general if len(each) > 1 else (each[0].what, each[0].remedy)
        found.append(FoundOn(name, what, remedy, [one.mount for one in each if one.mount]))
    return found


def _general(one: ShownFinding) -> tuple[str, str]:
    """Return what was found and the remedy, with M for the mount's path."""
    texts = one.what, one.remedy
    for written in (shell_word(one.mount), printable(one.mount)) if one.mount else ():
        texts = texts[0].replace(written, "M"), texts[1].replace(written, "M")
    return texts


def origins(mount: ReportedMount) -> list[tuple[Origin, list[str]]]:
    """Return the origins of a mount's desired values, each with the names of its knobs."""
    found: dict[Origin, list[str]] = {}
    for knob in mount.knobs:
        if knob.origin:
            found.setdefault(knob.origin, []).append(knob.name)
    return list(found.items())


def stack(
    mount: ReportedMount, known: Mapping[str, ReportedMount]
) -> Iterator[tuple[LayerBelow, str | None]]:
    """Yield each layer below a mount, nearest first, and the layer above it, None for the mount.

    ``known``: the mounts of the report by path, with the layers below them. Each layer is yielded
    once.
    """
    todo: list[tuple[LayerBelow, str | None]] = [(layer, None) for layer in mount.below]
    seen: set[tuple[str, str]] = set()
    for layer, above in todo:
        if (layer.path, layer.device) in seen:
            continue
        seen.add((layer.path, layer.device))
        yield layer, above
        under = known.get(layer.path)
        if under and not layer.elsewhere and under.fstype == layer.fstype:
            todo += [(each, layer.path) for each in under.below]


def differing(mount: ReportedMount) -> int:
    """Return how many knobs of a mount are not as desired."""
    return sum(knob.differs for knob in mount.knobs)
