# SPDX-License-Identifier: GPL-2.0-or-later
"""The picture of --plot: XML with every measured point, which no name can break."""

import re
from collections.abc import Iterator
from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest

from fusetune.report.documents.auto import AutoResult
from fusetune.report.documents.bench import BenchResult
from fusetune.report.picture import auto_picture, bench_picture
from tests.unit.sample_documents import SERVED, auto_documents, bench_documents, named
from tests.unit.test_html import HOSTILE

SVG = "{http://www.w3.org/2000/svg}"


def auto_of(path: str = "/mnt") -> AutoResult:
    """A result of ``auto`` with curves."""
    mount = SERVED if path == "/mnt" else named(path)
    return next(one for one in auto_documents(mount) if isinstance(one, AutoResult))


def benches(path: str = "/mnt") -> Iterator[BenchResult]:
    mount = SERVED if path == "/mnt" else named(path)
    return (one for one in bench_documents(mount) if isinstance(one, BenchResult))


def parsed(picture: str) -> Element:
    return ElementTree.fromstring(picture)  # noqa: S314 - it must be harmless, and has no DTD


def texts(root: Element) -> list[str]:
    return [" ".join("".join(one.itertext()).split()) for one in root.iter(f"{SVG}text")]


def test_every_point_of_every_curve() -> None:
    result = auto_of()
    root = parsed(auto_picture(result))
    panels = root.findall(f"{SVG}g")
    assert len(panels) == len(result.curves) > 0
    for panel, knob in zip(panels, result.curves, strict=True):
        (dots,) = (one for one in panel.iter(f"{SVG}path") if one.get("class") == "p")
        assert dots.get("d", "").count("M") == len(knob.points)
        (caption, *labels) = texts(panel)
        assert caption.startswith(f"{knob.name}: {knob.chosen} chosen, ")
        assert {str(knob.start), str(knob.chosen)} <= set(labels)
    assert texts(root)[0] == "/mnt"


def test_panels_do_not_overlap_and_are_in_the_picture() -> None:
    root = parsed(auto_picture(auto_of()))
    tops = [
        float(re.findall(r"[\d.]+", one.get("transform", ""))[1]) for one in root.findall(f"{SVG}g")
    ]
    ends = [*tops[1:], float(root.get("height", ""))]
    assert all(end - top >= 170 for top, end in zip(tops, ends, strict=True))


def test_a_run_without_curves_says_so() -> None:
    shown = texts(parsed(auto_picture(replace(auto_of(), curves=[]))))
    assert shown[1].startswith("no knob was measured at several values")


def test_bars_are_as_long_as_their_figures() -> None:
    for result in benches():
        root = parsed(bench_picture(result))
        measured = [one for one in result.series if one.workloads]
        panels = root.findall(f"{SVG}g")
        assert len(panels) == len(measured[0].workloads) > 0
        for number, panel in enumerate(panels):
            figures = [one.workloads[number].figure for one in measured]
            bars = [float(one.get("width", "")) for one in panel.iter(f"{SVG}rect")]
            scale = bars[0] / figures[0]
            assert bars == pytest.approx([figure * scale for figure in figures], abs=0.1)
            assert max(bars) <= 460


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_name_is_text(path: str) -> None:
    harmless = parsed(auto_picture(auto_of()))
    for text in (auto_picture(auto_of(path)), *map(bench_picture, benches(path))):
        assert text.replace("\n", "").isprintable()
        root = parsed(text)
        assert {one.tag for one in root.iter()} <= {one.tag for one in harmless.iter()} | {
            f"{SVG}rect"
        }
