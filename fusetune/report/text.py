# SPDX-License-Identifier: GPL-2.0-or-later
"""The text that administrators read, made from the same objects as the JSON."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import click
from rich.cells import cell_len

from fusetune.text import printable, shell_word

Object = Mapping[str, Any]
_SCALES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: str = "") -> None:
    """Print rows under headings; columns whose heading is among the words of ``right`` align so."""
    lines = [[printable(cell) for cell in line] for line in (headings, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    numeric = [heading in right.split() for heading in headings]
    for number, line in enumerate(lines):
        cells = []
        for cell, width, to_right in zip(line, widths, numeric, strict=True):
            space = " " * (width - cell_len(cell))
            cells.append(space + cell if to_right else cell + space)
        text = "  ".join(cells).rstrip()
        click.secho(text, bold=True) if number == 0 else click.echo(text)


def _say(text: str = "") -> None:
    click.echo(printable(text))


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
        ("knob", "value", "stock", "range", "unit", "set by", "to be kept"),
        (
            (
                knob["name"],
                _value(knob["value"]),
                _value(knob["stock"]),
                f"{knob['low']}-{'' if knob['high'] is None else knob['high']}",
                knob["unit"],
                knob["absent_reason"] or _value(knob["set_by"]),
                "-" if knob["origin"] is None else f"{knob['expected']} ({_origin(knob)})",
            )
            for knob in document["knobs"]
        ),
        right="value stock range",
    )
    if document["saved"]:
        kept = " ".join(f"{name}={value}" for name, value in document["saved"]["knobs"].items())
        _say(f"saved: {kept}")
    if document["init"]:
        numbers = [f"{name} {value}" for name, value in document["init"].items() if name != "flags"]
        _say(f"INIT settled on: {', '.join(numbers)}; {' '.join(document['init']['flags'])}")
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


def _origin(knob: Object) -> str:
    file, line = knob["origin"]["file"], knob["origin"]["line"]
    return file if line is None else f"{file}:{line}"


def print_kept(document: Object) -> None:
    """Print the object of ``save`` or ``forget``."""
    for one in document["files"]:
        _say(f"{one['file']}: {_values(one['before'])} -> {_values(one['after'])}")
    if not document["files"]:
        _say("nothing is kept")
    if document["dry_run"]:
        _say("dry run: nothing was written")


def _values(values: Mapping[str, int] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (values or {}).items()) or "nothing"


def print_verify(document: Object) -> None:
    """Print ``verify``'s object: every difference, and how many values are as they should be."""
    differing = [
        (mount, knob) for mount in document["mounts"] for knob in mount["knobs"] if knob["differs"]
    ]
    if differing:
        _table(
            ("mount", "knob", "expected", "actual", "changed by", "expected from"),
            (
                (
                    mount["path"],
                    knob["name"],
                    str(knob["expected"]),
                    str(knob["actual"]),
                    _changed_by(knob),
                    _origin(knob),
                )
                for mount, knob in differing
            ),
            right="expected actual",
        )
    count = 0
    for mount in document["mounts"]:
        for knob in mount["knobs"]:
            if why := knob["refused_reason"] or knob["absent_reason"]:
                _say(f"{mount['path']}: {knob['name']} is not set: {why}")
            else:
                count += not knob["differs"]
    _say(f"{count} as kept, {len(differing)} different")
    for one in document["sources"]:
        if one["older"]:
            _say(f"note: {one['summary']}")


def _changed_by(knob: Object) -> str:
    """Say who set a value last; ``why`` is the command of ours that wrote it."""
    if knob["set_by"] == "fusetune":
        return f"fusetune ({knob['last_write']['why']})"
    if knob["last_write"] and knob["last_write"]["value"] != knob["actual"]:
        return "somebody else"
    return {"stock": "nobody", "other": "somebody else"}.get(knob["set_by"], "cannot be told")


_WHEN = ("before", "after")


def print_changes(document: Object) -> None:
    """Print the object of ``set`` or ``reset``."""
    if not document["changes"]:
        _say("nothing to change")
        return
    _table(
        ("file", "before", "after"),
        (
            (c["file"], *("none" if c[when] is None else str(c[when]) for when in _WHEN))
            for c in document["changes"]
        ),
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


def print_bench_suite(document: Object) -> None:
    """Print the object of ``bench --suite``: a table a work, published beside measured."""
    for work in document["works"]:
        _say(work["title"])
        _say(work["stands_for"])
        shown = [row for row in work["rows"] if not row["absent_reason"]]
        _table(
            ("ratio of", "published", "here"),
            (
                (
                    row["label"],
                    f"{row['published_ratio']:.2f}",
                    f"{row['ratio']:.2f} [{row['ci95'][0]:.2f}, {row['ci95'][1]:.2f}]",
                )
                for row in shown
            ),
        )
        for reason in dict.fromkeys(row["absent_reason"] for row in work["rows"]):
            if reason:
                rows = [row["label"] for row in work["rows"] if row["absent_reason"] == reason]
                _say(f"{'; '.join(rows)}: {reason}")
        _say("")


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
    bound = document["max_dirty_percent"]
    _say(
        f"tuned mounts together may keep {document['dirty_percent']} % of the host's dirty limit"
        + ("" if bound is None else f", at most {bound} by configuration")
    )
    if document["mounts_elsewhere"]:
        _say(
            f"{document['mounts_elsewhere']} FUSE mounts are in other mount namespaces "
            "(containers) and are left alone"
        )
    _say()
    for finding in document["findings"]:
        _say(f"! {finding['what']}")
        _say(f"  remedy: {finding['remedy']}")
    if not document["findings"]:
        _say("nothing found that limits FUSE here")


def print_module(document: Object) -> None:
    """Print ``module``'s object: what was run, then the state of each module."""
    for command in document["commands"]:
        _say(" ".join(command))
    if document["dry_run"]:
        _say("dry run: nothing was run" if document["commands"] else "nothing to do")
        return
    boot = {True: ", Secure Boot", False: "", None: ""}[document["secure_boot"]]
    signed = ", takes signed modules alone" if document["signatures_enforced"] else ""
    _say(f"kernel {document['kernel']}{boot}{signed}")
    for module in document["modules"]:
        _print_module(module, document["kernel"])
    for command in document["enrol"]:
        _say(f"to have its signature accepted: {command}")
    if document["enrol"]:
        _say("then restart, and confirm the key at boot")


def _print_module(module: Object, running: str) -> None:
    now, other = module["loaded"], module["stock"]
    state = "not loaded"
    if now:
        state = f"{now['version']}, loaded"
        if module["as_installed"] is False:
            state += "; another one is installed: 'fusetune module unload', then 'load', takes it"
    _say(f"{module['name']}: {state}")
    stock = other["loaded"]
    how = ("built in" if stock["built_in"] else "loaded") if stock else "not loaded"
    _say(f"  {'in place of' if other['replaced'] else 'beside'} {other['name']} ({how})")
    if module["age"]:
        _say(f"  {module['age']['summary']}")
    for name, points in ((module["name"], module["mounts"]), (other["name"], other["mounts"])):
        if points:
            _say(f"  mounted by {name}: {', '.join(points)}")
    if not module["sources"]:
        _say("  its source is not in /usr/src")
    for one in module["kernels"]:
        mark = "*" if one["kernel"] == running else " "
        what = f"{one['state']} {one['version'] or ''}".rstrip()
        if one["source"]:
            what += f", made from {one['source']['package_version'] or one['source']['version']}"
        if one["source_reason"]:
            what += f", {one['source_reason']}"
        _say(f"{mark} {one['kernel']}: {what}" + (f": {one['reason']}" if one["reason"] else ""))
        if one["log_file"]:
            _say(f"    see {one['log_file']}")


_USES = {
    "tuned": "the tuned libfuse3",
    "stock": "the distribution's libfuse3",
    "libfuse2": "libfuse 2, and cannot use the tuned libfuse3",
    "none": "no libfuse, and cannot use the tuned one",
    "unknown": "its memory map could not be read in time",
}


def print_lib_status(document: Object) -> None:
    """Print ``lib status``'s object."""
    directories = document["folders"]
    _say(
        f"the tuned libfuse3 is in {', '.join(directories)}"
        if directories
        else "no tuned libfuse3 here"
    )
    for one in document["sources"]:
        _say(one["summary"])
    _say()
    _table(
        ("pid", "program", "uses"),
        (
            (str(server["pid"]), server["program"], _USES[server["uses"]])
            for server in document["servers"]
        ),
        right="pid",
    )


def print_lib_change(document: Object) -> None:
    """Print the object of ``lib enable`` and ``lib disable``."""
    file, after = document["file"], document["after"]
    if document["before"] == after:
        _say(f"{file} is as wanted")
        return
    would = "would be " if document["dry_run"] else ""
    _say(f"{file} {would}{'removed' if after is None else 'written'}")
    for line in (after or "").splitlines():
        _say(f"  {line}")
    _say(f"then: {document['remedy']}")


def print_report(document: Object) -> None:
    """Print ``report``'s object: the host, what is not stock on each mount, and findings."""
    host = document["host"]
    modules = ", ".join(
        f"{one['name']} ({'built in' if one['built_in'] else one['version'] or 'module'})"
        for one in host["modules"]
    )
    _say(
        f"kernel {host['kernel']} on {host['machine']}, {host['cores']} cores, "
        f"{host['memory_bytes'] / (1 << 30):.1f} GiB"
    )
    _say(f"FUSE modules: {modules or 'none loaded'}")
    _say(f"libfuse: {', '.join(host['libfuse_versions']) or 'none installed'}")
    for one in host["sources"]:
        _say(one["summary"])
    _say()
    for mount in document["mounts"]:
        _print_surveyed(mount)
    _say(
        f"{len(document['mounts'])} mounts, {document['differences']} values not as kept; tuned "
        f"mounts together may keep {document['dirty_percent']} % of the host's dirty limit"
    )
    for finding in document["findings"]:
        _say(f"! {finding['what']}")
        _say(f"  remedy: {finding['remedy']}")
    for problem in document["problems"]:
        _say(f"! {problem}")


def _print_surveyed(mount: Object) -> None:
    _say(
        f"{mount['path']} ({mount['fstype']} of {mount['source']}, bdi {mount['bdi']}, "
        f"uid {mount['owner_uid']})"
    )
    if mount["left_alone_reason"]:
        _say(f"  left alone: {mount['left_alone_reason']}")
    if mount["waiting"]:
        _say(f"  {mount['waiting']} requests wait for its server")
    saved = mount["saved"]
    if saved and saved["gain_ratio"] is not None:
        interval = "" if saved["ci95"] is None else " [{:.2f}, {:.2f}]".format(*saved["ci95"])
        _say(f"  last auto: {saved['gain_ratio']:.2f}{interval} times the speed before")
    rows = [
        (
            "  " + knob["name"],
            knob["absent_reason"] or _value(knob["value"]),
            _value(knob["stock"]),
            "-" if knob["expected"] is None else f"{knob['expected']} ({_origin(knob)})",
            _value(knob["set_by"]),
            knob["refused_reason"] or ("DIFFERS" if knob["differs"] else ""),
        )
        for knob in mount["knobs"]
    ]
    _table(("  knob", "value", "stock", "kept", "set by", ""), rows, right="value stock")
    _say()


#: How the object of each schema is printed.
PRINTERS: Mapping[str, Callable[..., None]] = {
    "fusetune.list/1": print_list,
    "fusetune.show/1": print_show,
    "fusetune.set/1": print_changes,
    "fusetune.reset/1": print_changes,
    "fusetune.apply/1": print_changes,
    "fusetune.save/1": print_kept,
    "fusetune.forget/1": print_kept,
    "fusetune.verify/1": print_verify,
    "fusetune.auto/1": print_auto,
    "fusetune.auto-preview/1": print_preview,
    "fusetune.bench/1": print_bench,
    "fusetune.bench-suite/1": print_bench_suite,
    "fusetune.doctor/1": print_doctor,
    "fusetune.lib-status/1": print_lib_status,
    "fusetune.lib-change/1": print_lib_change,
    "fusetune.report/1": print_report,
    "fusetune.module/1": print_module,
}
