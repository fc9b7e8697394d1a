# SPDX-License-Identifier: GPL-2.0-or-later
"""`report` as GitHub-flavoured Markdown, for tickets.

Names and sentences are code, so that nothing in them becomes markup, a link or a mention.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusetune.report import grouped
from fusetune.report.documents.inventory import HostReport, ReportedKnob, ReportedMount
from fusetune.report.documents.measured import Measured, MeasuredKnob
from fusetune.report.text import figure_text, ratio_text, value_text
from fusetune.text import counted, printable

#: Maximum number of mounts that a finding names.
_MOST_NAMED = 10
_LATEST = 3  # entries of the history
# These would end code or a table cell: rows are split into cells before code is parsed.
_SHOWN = str.maketrans({"`": "\\x60", "|": "\\x7c"})


def code(text: str) -> str:
    """Return a text as code on one line, also valid in a table; ` and | become \\x60 and \\x7c."""
    shown = printable(text).translate(_SHOWN) or "-"
    # Markdown strips a space at both ends, unless the code is blank.
    padded = shown[0] == shown[-1] == " " and shown.strip(" ")
    return f"` {shown} `" if padded else f"`{shown}`"


def markdown(report: HostReport) -> str:
    """Return a report as Markdown."""
    known = {mount.path: mount for mount in reversed(report.mounts)}
    lines = [*_host(report), *_findings(report)]
    for mount in report.mounts:
        lines += _mount(mount, known)
    return "\n".join(lines) + "\n"


def _host(report: HostReport) -> Iterator[str]:
    host = report.host
    yield "# FUSE mounts"
    yield ""
    parts = [one for one in host.parts() if one]
    bound = report.max_dirty_percent
    parts.append(
        f"tuned mounts together may use {report.dirty_percent} % of the host's dirty limit"
        + ("" if bound is None else f"; max_dirty_percent is {bound}")
    )
    parts.append(
        f"{counted(len(report.mounts), 'mount')}, "
        f"{counted(report.differences, 'value')} not as desired"
    )
    if report.mounts_elsewhere:
        parts.append(f"{counted(report.mounts_elsewhere, 'FUSE mount')} in other mount namespaces")
    yield from (f"- {code(part)}" for part in parts)
    yield from (f"- problem: {code(problem)}" for problem in report.problems)
    yield ""


def _findings(report: HostReport) -> Iterator[str]:
    yield "## Findings"
    yield ""
    for one in grouped.findings(report):
        yield f"- {code(one.what)}; remedy: {code(one.remedy)}"
        if len(one.mounts) > 1:
            more = len(one.mounts) - _MOST_NAMED
            named = ", ".join(map(code, one.mounts[:_MOST_NAMED]))
            yield f"  M: {named}" + (f" and {more} more" if more > 0 else "")
    if not report.findings:
        yield "None."
    yield ""


def _mount(mount: ReportedMount, known: Mapping[str, ReportedMount]) -> Iterator[str]:
    yield f"## {code(mount.path)}"
    yield ""
    yield (
        f"- {code(mount.fstype)} of {code(mount.shown_source)}, bdi {value_text(mount.bdi)}, "
        f"uid {mount.owner_uid}"
    )
    if mount.left_alone_reason:
        yield f"- left alone: {code(mount.left_alone_reason)}"
    if mount.waiting:
        yield f"- {mount.waiting} requests wait for its server"
    for layer, above in grouped.stack(mount, known):
        yield f"- lies on {code(layer.text)}" + (f", below {code(above)}" if above else "")
    for origin, knobs in grouped.origins(mount):
        yield f"- desired by {code(str(origin))}: {', '.join(map(code, knobs))}"
    if mount.saved and mount.saved.gain_ratio is not None:
        gain, ci95 = mount.saved.gain_ratio, mount.saved.ci95
        speed = f"{gain:.2f}" if ci95 is None else ratio_text(gain, ci95)
        yield f"- last auto: {speed} times the speed before"
    yield ""
    yield from _table(
        ("knob", "stock", "desired", "actual", "set by", "note"),
        [
            (
                code(knob.name),
                value_text(knob.stock),
                value_text(knob.expected),
                value_text(knob.value),
                value_text(knob.set_by),
                _note(knob),
            )
            for knob in mount.knobs
        ],
    )
    if mount.measured:
        yield from _measured(mount.measured)
    for entry in mount.history[-_LATEST:]:
        yield f"- {code(entry.heading())}"
        changes = (f"{one.knob} {one.old} -> {one.new}" for one in entry.changes)
        yield from (f"  {code(change)}" for change in changes)
    if mount.history:
        yield ""


def _note(knob: ReportedKnob) -> str:
    why = knob.refused_reason or knob.absent_reason
    return " ".join([*(["**differs**"] if knob.differs else ()), *([code(why)] if why else ())])


def _measured(measured: Measured) -> Iterator[str]:
    """Yield the measurements: speeds before and after, a row for each knob, and the trials."""
    yield from _table(
        ("workload", "before", "after", "ratio"),
        [
            (
                code(one.name),
                figure_text(one.before, one.unit),
                figure_text(one.after, one.unit),
                ratio_text(one.ratio, one.ci95),
            )
            for one in measured.workloads
            if one.before and one.after and one.ratio and one.ci95
        ],
    )
    yield from _table(
        ("knob", "before", "after", "speed with each value / initial value"),
        [
            (code(knob.name), str(knob.start), f"**{knob.chosen}**", _curve(knob))
            for knob in measured.knobs
        ],
    )
    blocks = len({one.block for one in measured.trials})
    yield f"{len(measured.trials)} trials in {blocks} blocks are on record."
    yield ""


def _curve(knob: MeasuredKnob) -> str:
    return "; ".join(
        f"{one.value}: {ratio_text(one.ratio, one.ci95) if one.value != knob.start else '1'}"
        for one in knob.points
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table and an empty line; nothing if it has no rows."""
    if rows:
        for row in (headings, ["---"] * len(headings), *rows):
            yield f"| {' | '.join(row)} |"
        yield ""
