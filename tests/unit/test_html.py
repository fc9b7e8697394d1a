# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as HTML: it parses strictly, has every fact, and is safe with any name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest

from fusetune.report import charts, html
from fusetune.report.documents.diagnosis import ShownFinding
from fusetune.report.documents.inventory import HostReport, ReportedMount
from fusetune.report.documents.layers import LayerBelow
from fusetune.report.documents.measured import last_measured
from fusetune.report.documents.sources import SourceAge, SourceVersion
from fusetune.report.html import page
from fusetune.report.text import ratio_text
from fusetune.text import printable
from tests.unit.sample_documents import (
    SERVED,
    named,
    odd_paths,
    report_documents,
)
from tests.unit.sample_run import RUN, saved_by

CSS = Path(html.__file__).with_name("templates") / "report.css"
HOSTILE = [
    "/mnt/<script>alert(1)</script>",
    "/mnt/\"><img src=x onerror='alert(1)'>",
    "/mnt/--><!--measured 1-->\n</style>{{ 7 * 7 }}",
    "/mnt/&lt;b&gt;&#60;",
    "/mnt/\u202eright to left\u2066\u200b",
    "/mnt/\x00\x07\x1b[31m\x9b\udcff",
]


def made(path: str = "/mnt", count: int = 1) -> HostReport:
    """A report of this many mounts with everything, and of one with as little as possible."""
    report = report_documents(named(path) if path != "/mnt" else SERVED)[1]
    assert isinstance(report, HostReport)
    full, bare = report.mounts
    mounts = [full, *(replace(full, path=f"{path}-{i}") for i in range(1, count)), bare]
    return replace(report, mounts=mounts)


def parsed(report: HostReport) -> Element:
    """The page, parsed by a strict parser."""
    text = page(report)
    assert text.replace("\n", "").isprintable()
    text.encode("utf-8")
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    root = parser.parse(text)
    assert isinstance(root, Element)
    return root


def elements(root: Element, name: str) -> list[Element]:
    """All elements of a name; those of SVG as well."""
    return [one for one in root.iter() if str(one.tag).rpartition("}")[2] == name]


def text_of(one: Element) -> str:
    return " ".join("".join(one.itertext()).split())


def shape(root: Element) -> list[tuple[str, list[str]]]:
    """The elements with the names of their attributes, in order."""
    return [(str(one.tag), sorted(one.attrib)) for one in root.iter()]


def rows(table: Element) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in elements(table, "tr")]


def table(root: Element, caption: str) -> list[list[str]]:
    """The rows of the first table with this caption, its heading first."""
    return next(rows(one) for one in elements(root, "table") if text_of(one[0]).startswith(caption))


# Contents


def test_every_knob_of_a_mount() -> None:
    report = made()
    heading, *found = table(parsed(report), "Knobs")
    assert heading == ["Knob", "Stock", "Desired", "Actual", "Set by"]
    by_name = {row[0]: row[1:] for row in found}
    assert list(by_name) == [knob.name for knob in report.mounts[0].knobs]
    assert by_name["read_ahead_kb"] == ["128", "1", "1 differs", "other"]
    assert by_name["max_ratio"] == ["1", "7 (refused: policy of /mnt)", "1 differs", "other"]
    assert by_name["max_background"] == ["12", "-", "1", "other"]
    text = text_of(parsed(report))
    assert "Desired by /etc/mnt/fusetune.toml:3: max_ratio" in text
    assert "Gain: 1.50 [1.20, 1.90] times the speed before." in text
    assert "3 requests wait for its server" in text
    assert "Left alone: the file of /mnt says so" in text
    assert "it is not there" in text
    assert "no journal of /mnt" in text


def test_what_was_done_last() -> None:
    said = [text_of(one) for one in elements(parsed(made()), "p")]
    assert "Last change, 2023-11-14 22:13 UTC: set by /mnt, max_ratio 1 → 20." in said


def test_what_auto_measured() -> None:
    report = made()
    root, measured = parsed(report), report.mounts[0].measured
    assert measured
    assert table(root, "Before and after")[1:] == [
        ["max_ratio", "1", "5"],
        ["strict_limit", "1", "1"],
    ]
    assert table(root, "Speed before and after")[1][0] == "mixed"
    for knob in measured.knobs:
        found = table(root, f"{knob.name} (")[1:]
        for point, (value, ratio, samples) in zip(knob.points, found, strict=True):
            assert value == f"{point.value}" + " (chosen)" * (point.value == knob.chosen)
            start = point.value == knob.start
            assert ratio == ("1 (start)" if start else ratio_text(point.ratio, point.ci95))
            assert samples == str(point.samples)
    trials = table(root, "Trials")[1:]
    assert len(trials) == len(measured.trials) == 8
    assert trials[0] == ["1", "as at the start", "mixed 977 KiB/s"]
    assert trials[3] == ["1", "max_ratio=5 strict_limit=0", "mixed 1.42 MiB/s"]


def test_a_run_that_does_not_tell_its_start_has_trials_alone() -> None:
    """As runs were saved at first."""
    report = made()
    saved = saved_by(SERVED, "auto")
    run = replace(RUN, start={}, chosen={}, weights={})
    old = replace(report.mounts[0], measured=last_measured(replace(saved, run=run)))
    root = parsed(replace(report, mounts=[old]))
    assert elements(root, "svg") == []
    assert table(root, "Trials")[2] == ["1", "max_ratio=5 strict_limit=1", "mixed 1.43 MiB/s"]
    assert last_measured(saved_by(SERVED, "save")) is last_measured(None) is None


def test_points_stand_where_the_data_says() -> None:
    report = made()
    measured = report.mounts[0].measured
    assert measured
    drawings = elements(parsed(report), "svg")
    assert len(drawings) == len(measured.knobs) == 2
    for knob, drawn in zip(measured.knobs, drawings, strict=True):
        paths = {one.attrib["class"]: one.attrib["d"] for one in elements(drawn, "path")}
        (circle,) = elements(drawn, "circle")
        dots = re.findall(r"M(\S+) (\S+)h0", paths["p"])
        bars = re.findall(r"M(\S+) (\S+?)V([\d.]+)", paths["i"])
        scale = charts.Scale(knob)
        for point, dot, bar in zip(knob.points, dots, bars, strict=True):
            x, y = map(float, dot)
            # Back from the place to the data.
            height = (charts.BOTTOM - y) / (charts.BOTTOM - charts.TOP)
            ratio = scale.low + height * (scale.high - scale.low)
            assert ratio == pytest.approx(point.ratio, abs=0.002 * scale.high)
            assert [float(each) for each in bar] == [x, *map(scale.y, point.ci95)]
            assert charts.LEFT <= x <= charts.RIGHT
            if point.value == knob.chosen:
                assert (float(circle.attrib["cx"]), float(circle.attrib["cy"])) == (x, y)
        across = [float(x) for x, _ in dots]
        assert across == sorted(set(across))
        assert ("l" in paths) == knob.ordered


def test_a_log_scale_that_has_0() -> None:
    measured = made().mounts[0].measured
    assert measured
    knob = replace(
        measured.knobs[0],
        points=[replace(measured.knobs[0].points[0], value=v) for v in (0, 32, 64, 256)],
    )
    scale = charts.Scale(knob)
    places = [scale.x(value) for value in (0, 32, 64, 256)]
    assert places[0] == charts.LEFT
    assert places[-1] == charts.RIGHT
    step = places[1] - places[0]
    assert places[2] - places[1] == pytest.approx(step, abs=0.11)
    assert places[3] - places[2] == pytest.approx(2 * step, abs=0.11)


def test_findings_are_said_once() -> None:
    report = made(count=30)
    findings = [
        ShownFinding("stock", one.path, f"{one.path} has defaults", f"fusetune auto {one.path}")
        for one in report.mounts
    ]
    findings.append(ShownFinding("fio", None, "fio is not installed", "apt install fio"))
    root = parsed(replace(report, findings=findings))
    text = text_of(root)
    assert text.count("M has defaults") == 1
    assert "Remedy: fusetune auto M" in text
    assert f"{len(report.mounts) - 10} more" in text
    assert "fio is not installed" in text
    links = [one for one in elements(root, "a") if one.attrib["href"] == "#f1"]
    assert len(links) == len(report.mounts)


def test_the_stack_and_the_age_of_our_code() -> None:
    low, lower, top = "/mnt/low", "/mnt/lower", "/mnt/top"
    report = made()
    full = report.mounts[0]

    def lying_on(path: str, *below: str) -> ReportedMount:
        layers = [LayerBelow(one, full.fstype, "0:9", "source", elsewhere=False) for one in below]
        return replace(full, path=path, below=layers)

    # Two mounts on each other must not loop forever.
    mounts = [lying_on(top, lower), lying_on(lower, low), lying_on(low, lower)]
    version = SourceVersion("6.12.94", None, None)
    age = SourceAge("fusetuned", version, version, 23, True, "fusetuned is 23 releases behind")
    report = replace(report, mounts=mounts, host=replace(report.host, sources=[age]))
    root = parsed(report)
    assert "Older: fusetuned is 23 releases behind" in text_of(root)
    lists = list(root.iter())
    below = lists[next(i for i, one in enumerate(lists) if text_of(one) == "Lies on:") :]
    items = [text_of(one) for one in next(one for one in below if one.tag == "ul")]
    assert items == [
        f"{lower} (fuse.x, found by source)",
        f"{low} (fuse.x, found by source), below {lower}",
    ]


# Markup and style


@pytest.mark.parametrize("path", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_name_is_inert_and_visible(path: str) -> None:
    root = parsed(made(path))
    assert shape(root) == shape(parsed(made("/mnt/a")))
    assert elements(root, "script") == elements(root, "img") == []
    headings = ["".join(one.itertext()) for one in elements(root, "h3")]
    assert printable(path) in headings


@odd_paths
def test_an_odd_name_is_visible(path: str) -> None:
    assert printable(path) in "".join(parsed(made(path)).itertext())


def test_it_needs_nothing_else() -> None:
    root = parsed(made(count=3))
    assert not re.search(r"https?:|//|url\(|@import|javascript:", page(made()))
    for one in root.iter():
        assert str(one.tag).rpartition("}")[2] not in ("script", "link", "iframe", "img", "object")
        assert not [name for name in one.attrib if name.startswith("on") or name == "src"]
    policies = [one.attrib["content"] for one in elements(root, "meta") if "content" in one.attrib]
    assert "default-src 'none'; style-src 'unsafe-inline'" in policies


def test_it_is_fit_for_a_screen_reader() -> None:
    root = parsed(made(count=3))
    assert root.attrib["lang"] == "en"
    for landmark in ("header", "nav", "main", "footer", "title", "h1"):
        assert len(elements(root, landmark)) == 1
    level = 0
    for one in root.iter():
        if re.fullmatch("h[1-6]", str(one.tag)):
            assert int(str(one.tag)[1]) <= level + 1, text_of(one)
            level = int(str(one.tag)[1])
    ids = [one.attrib["id"] for one in root.iter() if "id" in one.attrib]
    assert len(ids) == len(set(ids))
    for one in elements(root, "a"):
        assert one.attrib["href"].removeprefix("#") in ids
        assert text_of(one)
    for one in elements(root, "table"):
        assert one[0].tag == "caption"
        assert text_of(one[0])
    for one in elements(root, "th"):
        assert re.fullmatch("row|col", one.attrib["scope"])
    for one in elements(root, "figure"):
        assert [str(each.tag).rpartition("}")[2] for each in one] == ["figcaption", "svg", "table"]
        assert one[1].attrib["aria-labelledby"] == one[0].attrib["id"]
        assert one[1].attrib["role"] == "img"
        assert " chosen" in text_of(one[0])


def luminance(colour: str) -> float:
    """The relative luminance of #rrggbb, by WCAG 2."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return sum(w * s for w, s in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def schemes() -> Iterator[dict[str, str]]:
    """The colours by name, light and dark."""
    for block in re.findall(r":root \{(.*?)\}", CSS.read_text()):
        yield dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))


def test_colours_have_contrast_in_both_schemes() -> None:
    light, dark = schemes()
    assert light.keys() == dark.keys() >= {"back", "text", "link", "curve", "chosen"}
    for scheme in (light, dark):
        back = luminance(scheme["back"])
        for name, colour in scheme.items():
            low, high = sorted((luminance(colour), back))
            assert name == "back" or (high + 0.05) / (low + 0.05) >= 4.5, (name, colour)
    rest = re.sub(r":root \{.*?\}", "", CSS.read_text())
    assert not re.search(r"#[0-9a-f]{3}|rgb|hsl", rest)  # all others are these
