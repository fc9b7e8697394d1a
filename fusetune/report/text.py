# SPDX-License-Identifier: GPL-2.0-or-later
"""The text that administrators read, made from the same objects as the JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fusetune.mounts import printable, shell_word

Object = Mapping[str, Any]
_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _console() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console = Console(highlight=False, soft_wrap=True, width=10_000)  # a pipe has no width
    return console


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
    """Print rows under headings; columns whose heading is among the words of ``right`` align so."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        numeric = heading in right.split()
        table.add_column(
            Text(printable(heading)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    _console().print(table)


def _say(text: str = "") -> None:
    _console().print(Text(printable(text)))


def _value(value: object) -> str:
    return "-" if value is None else str(value)


def figure_text(figure: float, unit: str) -> str:
    """Return a figure for reading: bytes/s in MiB/s and the like, operations/s as they are."""
    if unit == "bytes_per_second":
        scale, name = next(((s, n) for s, n in _SCALES if figure >= s), (1, "B"))
        return (
            f"{figure / scale:.3g} {name}/s"
            if figure / scale < 1000
            else f"{figure / scale:.0f} {name}/s"
        )
    return f"{figure:.0f} /s"


def gain_text(gain: Object) -> str:
    """Return a ratio with its 95 % interval."""
    low, high = gain["ci95"]
    return f"{gain['ratio']:.2f} [{low:.2f}, {high:.2f}]"


def print_list(document: Object) -> None:
    """Print ``list``'s object."""
    if not document["mounts"]:
        _say("no FUSE mount")
        return
    names = sorted({name for mount in document["mounts"] for name in mount["knobs"]})
    _table(
        ("mount", "type", "bdi", *names, "tuned"),
        (
            (
                mount["path"],
                mount["fstype"],
                _value(mount["bdi"]),
                *(_value(mount["knobs"].get(name)) for name in names),
                "left alone" if mount["excluded_reason"] else "yes" if mount["tuned"] else "no",
            )
            for mount in document["mounts"]
        ),
        right=" ".join(names),
    )


def print_show(document: Object, long: bool) -> None:
    """Print ``show``'s object; ``long`` adds what each knob does, its risk and source."""
    mount = document["mount"]
    _say(f"{mount['path']} ({mount['fstype']}, bdi {mount['bdi']})" if mount else "host")
    _table(
        ("knob", "value", "stock", "range", "unit", "set by"),
        (
            (
                knob["name"],
                _value(knob["value"]),
                _value(knob["stock"]),
                f"{knob['low']}-{'' if knob['high'] is None else knob['high']}",
                knob["unit"],
                knob["absent_reason"] or _value(knob["set_by"]),
            )
            for knob in document["knobs"]
        ),
        right="value stock range",
    )
    if document["saved"]:
        kept = " ".join(f"{name}={value}" for name, value in document["saved"]["knobs"].items())
        _say(f"saved: {kept}")
    if document["needs_remount"]:
        _say("needs a remount: " + ", ".join(knob["name"] for knob in document["needs_remount"]))
    if long:
        for knob in (*document["knobs"], *document["needs_remount"]):
            _say()
            _say(f"{knob['name']}: {knob['summary']}")
            if "remedy" in knob:
                _say(f"  how: {knob['remedy']}")
            _say(f"  risk: {knob['risk']}")
            _say(f"  source: {knob['source']}")


def print_changes(document: Object) -> None:
    """Print the object of ``set`` or ``reset``."""
    if not document["changes"]:
        _say("nothing to change")
        return
    _table(
        ("file", "before", "after"),
        ((c["file"], str(c["before"]), str(c["after"])) for c in document["changes"]),
        right="before after",
    )
    if document["dry_run"]:
        _say("dry run: nothing was written")


def print_preview(document: Object) -> None:
    """Print the object of ``auto --dry-run``."""
    _table(
        ("file", "before", "would try"),
        (
            (knob["file"], str(knob["before"]), " ".join(map(str, knob["candidates"])))
            for knob in document["knobs"]
        ),
        right="before",
    )
    _say(f"dry run: would measure {', '.join(document['workloads'])}; nothing was written")


def print_auto(document: Object) -> None:
    """Print ``auto``'s object."""
    _table(
        ("knob", "before", "after"),
        (
            (name, str(value), str(document["after"][name]))
            for name, value in document["before"].items()
        ),
        right="before after",
    )
    if document["per_workload"]:
        _say()
        _table(
            ("workload", "before", "after", "gain [95 %]"),
            (
                (
                    row["name"],
                    figure_text(row["before"], row["unit"]),
                    figure_text(row["after"], row["unit"]),
                    gain_text(row),
                )
                for row in document["per_workload"]
            ),
            right="before after",
        )
    _say()
    for reason in document["reasons"]:
        _say(f"- {reason}")
    cost = document["cost"]
    _say(
        f"{cost['evaluations']} evaluations in {cost['seconds']:.0f} s, "
        f"{cost['bytes_written'] / (1 << 20):.0f} MiB written"
    )
    if document["applied"]:
        path = shell_word(document["mount"]["path"])
        _say(f"set and saved: {gain_text(document['gain'])}; 'fusetune reset {path}' undoes it")
    else:
        _say("nothing better was found than what is set; nothing was changed")


def print_bench(document: Object) -> None:
    """Print ``bench``'s object: a row a workload, a column a series."""
    series = [one for one in document["series"] if one["workloads"]]
    rows: list[list[str]] = []
    for position, workload in enumerate(series[0]["workloads"]):
        cells = (one["workloads"][position] for one in series)
        rows.append([workload["name"], *map(_figure_cell, cells)])
    _table(("workload", *(one["label"] for one in series)), rows)
    for one in document["series"]:
        if one["absent_reason"]:
            _say(f"{one['label']}: {one['absent_reason']}")


def _figure_cell(workload: Object) -> str:
    low, high = workload["ci95"]
    half = (high - low) / 2 / workload["figure"]
    return f"{figure_text(workload['figure'], workload['unit'])} ±{half:.0%}"


def print_doctor(document: Object) -> None:
    """Print ``doctor``'s object."""
    _table(
        ("feature", "value", "unit"),
        (
            (f["name"], _value(f["value"]), f["absent_reason"] or f["unit"])
            for f in document["features"]
        ),
        right="value",
    )
    _say()
    for finding in document["findings"]:
        _say(f"! {finding['what']}")
        _say(f"  remedy: {finding['remedy']}")
    if not document["findings"]:
        _say("nothing found that limits FUSE here")
