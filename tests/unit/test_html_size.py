# SPDX-License-Identifier: GPL-2.0-or-later
"""The HTML report of a thousand mounts: at most 1 MiB, in seconds, with omissions stated."""

from __future__ import annotations

import time
from dataclasses import replace

import html5lib
import pytest

from fusetune.report.documents.diagnosis import ShownFinding
from fusetune.report.documents.inventory import HostReport
from fusetune.report.html import MOST, page
from tests.unit.test_html import elements, made

pytestmark = pytest.mark.slow


def crowd(measured: int) -> HostReport:
    """A thousand mounts that differ only in their names, of which this many were measured."""
    report = made()
    full = replace(report.mounts[0], waiting=0, below=[])
    # Few mounts have max_pages, and most values are as expected.
    knobs = [replace(one, differs=False, refused_reason=None) for one in full.knobs[:5]]
    full = replace(full, knobs=knobs)
    plain = replace(full, measured=None, saved=None)
    mounts = [
        replace(full if i < measured else plain, path=f"/srv/volumes/a{i:04}", source=f"host:/{i}")
        for i in range(1000)
    ]
    findings = [
        ShownFinding(name, one.path, f"{one.path} is found", f"fusetune advise {one.path}")
        for name in ("stock", "writeback-cache")
        for one in mounts
    ]
    return replace(report, mounts=mounts, findings=findings)


@pytest.mark.parametrize(("measured", "curves", "trials"), [(0, 0, 0), (20, 20, 20)])
def test_a_thousand_mounts(measured: int, curves: int, trials: int) -> None:
    report = crowd(measured)
    began = time.process_time()
    text = page(report)
    assert time.process_time() - began < 3
    assert len(text.encode()) <= MOST
    assert text.count("<svg") == 2 * curves
    assert text.count("<details") == trials
    assert "Left out</a>" not in text


@pytest.mark.parametrize(("count", "whole"), [(300, True), (450, False)])
def test_measurements_that_do_not_fit_are_left_out_and_that_is_said(
    count: int, whole: bool
) -> None:
    """Trials before curves, and those of the last mounts first."""
    text = page(replace(crowd(1000), mounts=crowd(1000).mounts[:count], findings=[]))
    curves, trials = text.count("<figure>") // 2, text.count("<details")
    assert 0 < trials < curves
    assert (curves == count) == whole
    assert text.count("<a href=#size>Left out</a>: trials") == curves - trials
    assert text.count("<a href=#size>Left out</a>: curves and trials") == count - curves
    assert text.rindex("<details") < text.index("Left out</a>: trials")
    # One more part would not have fitted.
    assert MOST - 2500 < len(text.encode()) <= MOST
    parser = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False)
    assert len(elements(parser.parse(text), "h3")) == count


def test_a_thousand_measured_mounts() -> None:
    report = crowd(1000)
    began = time.process_time()
    text = page(report)
    assert time.process_time() - began < 3
    assert len(text.encode()) <= MOST
    assert text.count("Left out</a>") + text.count("<details") == 1000
