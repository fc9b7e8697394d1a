# SPDX-License-Identifier: GPL-2.0-or-later
"""The HTML report in Chromium: on a phone and a desktop, light and dark, and printed.

Debian's Chromium and its driver; the page is a file, and nothing is fetched.
"""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fusetune.report import charts
from fusetune.report.documents.inventory import HostReport
from fusetune.report.documents.measured import MeasuredKnob
from fusetune.report.html import page
from tests.native.mirror import CHECKOUT
from tests.unit.sample_documents import named, report_documents
from tests.unit.test_html import HOSTILE, schemes
from tests.unit.test_html_size import crowd

if TYPE_CHECKING:
    from tests.system.browser import Browser

webdriver = pytest.importorskip("selenium.webdriver")
browsing = pytest.importorskip("tests.system.browser")
pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="missing: chromium, chromium-driver",
)

WIDTHS = (360, 1280)
SCHEMES = ("light", "dark")
#: axe-core, which finds accessibility problems of a page.
AXE = next((CHECKOUT / "build" / "venv").glob("lib/*/site-packages/*/axe.min.js"), None)
#: Its name for a rule of WCAG 2.2, level AA or below, or of good practice.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
needs_axe = pytest.mark.skipif(not AXE, reason="missing: axe-core in build/venv (make lint)")
#: How much a colour channel may differ from the expected value: only by rounding.
NEAR = 2


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = browsing.Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="module")
def report() -> HostReport:
    """A report with long names, hostile names, or both."""
    paths = ("/mnt/media", "/mnt/" + "long" * 200, *HOSTILE)
    reports = [report_documents(named(path))[1] for path in paths]
    found = [one for one in reports if isinstance(one, HostReport)]
    return replace(found[0], mounts=[mount for one in found for mount in one.mounts])


@pytest.fixture(scope="module")
def file(report: HostReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("page") / "report.html"
    found.write_text(page(report), encoding="utf-8")
    return found


def rgb(colour: str) -> tuple[int, ...]:
    """The channels of #rrggbb."""
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_shown_whole_and_without_an_error(
    browser: Browser, file: Path, width: int, scheme: str
) -> None:
    address = file.as_uri()
    browser.asked(address)
    browser.show(file, width, scheme)
    assert browser.run("return innerWidth") == width
    assert browser.run("return document.documentElement.scrollWidth") <= width
    assert browser.driver.get_log("browser") == []
    assert browser.asked(address) == [address]
    colours = dict(zip(SCHEMES, schemes(), strict=True))[scheme]
    for y in (2, 890):
        assert browser.colour(2, y) == rgb(colours["back"])
    # What a script in a hostile name would have done.
    assert browser.run("return document.scripts.length") == 0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_chosen_point_of_each_chart_is_where_the_data_says(
    browser: Browser, report: HostReport, file: Path, width: int, scheme: str
) -> None:
    browser.show(file, width, scheme)
    wanted = rgb(dict(zip(SCHEMES, schemes(), strict=True))[scheme]["chosen"])
    knobs = [knob for one in report.mounts if one.measured for knob in one.measured.knobs]
    drawings = browser.driver.find_elements("css selector", "svg")
    assert len(drawings) == len(knobs) == 16
    for number, (knob, drawn) in enumerate(zip(knobs, drawings, strict=True)):
        browser.run("arguments[0].scrollIntoView({block: 'center'})", drawn)
        box = browser.run("return arguments[0].getBoundingClientRect().toJSON()", drawn)
        assert 200 <= box["width"] <= width
        assert box["height"] == pytest.approx(box["width"] * charts.HEIGHT / charts.WIDTH, abs=1)
        if number < 4:  # a picture takes a tenth of a second
            assert place_is(browser, box, knob, wanted)


def place_is(
    browser: Browser, box: dict[str, float], knob: MeasuredKnob, wanted: tuple[int, ...]
) -> bool:
    """Whether the chosen value's pixel has a colour, and no other value's pixel has it."""
    scale, unit = charts.Scale(knob), box["width"] / charts.WIDTH
    near = {}
    for point in knob.points:
        x, y = scale.x(point.value), scale.y(point.ratio)
        found = browser.colour(box["left"] + x * unit, box["top"] + y * unit)
        near[point.value] = all(abs(a - b) <= NEAR for a, b in zip(found, wanted, strict=True))
    return near == {point.value: point.value == knob.chosen for point in knob.points}


def test_it_is_read_aloud_and_used_by_keyboard(
    browser: Browser, report: HostReport, file: Path
) -> None:
    browser.show(file, 1280, "light")
    nodes = [
        (one["role"]["value"], one.get("name", {}).get("value", ""))
        for one in browser.cdp("Accessibility.getFullAXTree")["nodes"]
        if not one["ignored"]
    ]
    roles = {role for role, _ in nodes}
    assert {"banner", "main", "contentinfo"} <= roles
    assert ("navigation", "Contents") in nodes
    images = [name for role, name in nodes if role in ("img", "image")]
    assert len(images) == 16
    assert images[0].startswith("max_ratio: 5 chosen, 1.50 [")
    assert ("columnheader", "Desired") in nodes
    assert ("rowheader", "max_ratio") in nodes
    keys = webdriver.Keys
    body = browser.driver.find_element("css selector", "body")
    body.send_keys(keys.TAB)
    focused = browser.driver.switch_to.active_element
    assert focused.text == "Skip to the report"
    assert focused.rect["x"] >= 0
    focused.send_keys(keys.ENTER)
    assert browser.run("return location.hash") == "#main"


def complaints(browser: Browser) -> list[tuple[str, str]]:
    """axe-core's findings on the open page: the rule, and the first place."""
    assert AXE
    browser.run(AXE.read_text(encoding="utf-8"))
    found = browser.driver.execute_async_script(
        "axe.run({runOnly: arguments[0]}).then(arguments[1])", RULES
    )
    assert len(found["passes"]) > 5
    return [(one["id"], one["nodes"][0]["html"]) for one in found["violations"]]


@needs_axe
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(browser: Browser, file: Path, width: int, scheme: str) -> None:
    browser.show(file, width, scheme)
    assert complaints(browser) == []


@needs_axe
def test_axe_finds_what_is_wrong(browser: Browser, file: Path, tmp_path: Path) -> None:
    text = file.read_text(encoding="utf-8")
    worse = tmp_path / "worse.html"
    worse.write_text(text.replace("<html lang=en", "<html", 1), encoding="utf-8")
    browser.show(worse, 360, "light")
    assert [rule for rule, _ in complaints(browser)] == ["html-has-lang"]


def test_it_is_printed_light_and_whole(browser: Browser, file: Path) -> None:
    browser.show(file, 800, "dark", media="print")
    back = browser.run("return getComputedStyle(document.body).backgroundColor")
    light, _ = schemes()
    assert back == f"rgb{rgb(light['back'])}"
    assert browser.run("return [...document.querySelectorAll('details')].every(d => d.open)")
    printed = base64.b64decode(browser.driver.print_page())
    assert printed.startswith(b"%PDF-")
    assert printed.count(b"/Type /Page\n") > 3


def test_a_thousand_mounts(browser: Browser, tmp_path: Path) -> None:
    large = tmp_path / "large.html"
    large.write_text(page(crowd(20)), encoding="utf-8")
    browser.show(large, 360, "light")
    assert browser.run("return document.querySelectorAll('h3').length") == 1002
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    assert browser.driver.get_log("browser") == []
