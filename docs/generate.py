# SPDX-License-Identifier: GPL-2.0-or-later
"""Write what is data in the code into the manual, README and docs (``make docs``).

The JSON Schemas in docs/schemas are written whole, from the documents of the commands and from the
format of recipes.
A place for a table begins with the line ``make docs: TABLE [COMMAND...]`` and ends with ``make
docs: end``, both in comments of the file. ``--check`` writes nothing and names stale files. A new
table is a function in ``TABLES``.
"""

import argparse
import ast
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from graphlib import TopologicalSorter
from pathlib import Path

from docs.commands import commands, commands_named, options_of, synopsis, usage
from docs.markup import Row, Table, mdoc_words, sentence
from fusetune.bench.workloads import DEFAULT, SETS, WORKLOADS
from fusetune.errors import ExitCode
from fusetune.kmod.options import OPTIONS as MODULE_OPTIONS
from fusetune.knobs import LIVE, REMOUNT, SYSTEM, Knob
from fusetune.libfuse.options import OPTIONS
from fusetune.recipes.recipe import TABLES as RECIPE_TABLES
from fusetune.recipes.recipe import recipe_schema
from fusetune.report.documents import every_document
from fusetune.report.findings import FINDINGS
from fusetune.report.prometheus import METRICS
from fusetune.report.schema import schema_of
from fusetune.schema import Schema, object_schema

ROOT = Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "docs" / "schemas"
ALERTS = ROOT / "monitoring" / "alerts.yml"
FILES = sorted((*ROOT.glob("man/*.[1-8]"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.md")))
_PLACE = re.compile(
    r"^((?:\.\\\"|<!--) make docs: (?!end)([\w-]+)(.*?)(?: -->)?\n)(.*?)"
    r"^((?:\.\\\"|<!--) make docs: end)",
    re.MULTILINE | re.DOTALL,
)
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: By class of an option that has a condition.
_VERDICTS = {"conditional": "Right only if", "unsafe": "Unsafe unless"}
_SYNOPSIS = re.compile(r'^\.\\" make docs: synopsis (.*)$', re.MULTILINE)


def _pages() -> dict[str, str]:
    """Return by command the page of the manual that is about it."""
    pages: dict[str, str] = {}
    for path in FILES:
        for names in _SYNOPSIS.findall(path.read_text(encoding="utf-8")):
            pages |= dict.fromkeys(names.split(), path.stem)
    return pages


def _range(knob: Knob) -> str:
    if knob.unit == "switch":
        return "0 or 1"
    low = "a page" if knob.low == _PAGE else knob.low  # whose size is not the same on every host
    top = "or more" if knob.high is None else f"to {knob.high}"
    return f"{low} {top} {knob.unit}{', in whole pages' if knob.step > 1 else ''}"


def _stock(knob: Knob) -> str:
    if knob.stock is not None:
        return str(knob.stock)
    return "what INIT negotiated" if knob.init_line else "depends on memory"


def _default(knob: Knob) -> str:
    if knob.stock is not None:
        return f"{knob.stock} by default"
    return f"the default {'is ' * bool(knob.init_line)}{_stock(knob)}"


def _knobs(known: Iterable[Knob]) -> Table:
    rows = []
    for knob in known:
        sentences = (knob.summary, f"{_range(knob)}; {_default(knob)}", f"Risk: {knob.risk}")
        text = " ".join(map(sentence, sentences))
        cells = (_range(knob), _stock(knob), knob.summary, knob.risk)
        rows.append(Row(knob.name, f"Cm {knob.name}", text, cells))
    return Table(("knob", "values", "kernel's default", "meaning", "risk"), rows)


def remount_knobs() -> Table:
    """Return the properties that only a new mount can have."""
    rows = []
    for knob in REMOUNT:
        sentences = (knob.summary, f"How: {knob.remedy}", f"Risk: {knob.risk}")
        cells = (knob.summary, knob.remedy, knob.risk)
        rows.append(Row(knob.name, f"Cm {knob.name}", " ".join(map(sentence, sentences)), cells))
    return Table(("property", "meaning", "how", "risk"), rows)


def workloads() -> Table:
    """Return the workloads of auto and bench."""
    rows = []
    for one in WORKLOADS.values():
        text = f"{sentence(one.measures)}{' The default.' if one.name == DEFAULT else ''}"
        rows.append(Row(one.name, f"Cm {one.name}", text, (text, one.unit)))
    return Table(("workload", "what it measures", "unit"), rows)


def workload_sets() -> Table:
    """Return the sets of workloads, with their shares."""
    rows = [Row(one.name, f"Cm {one.name}", sentence(one.text)) for one in SETS.values()]
    return Table(("set", "what it stands for, and the share of each workload"), rows)


def library_options() -> Table:
    """Return the options of the tuned libfuse3."""
    rows = []
    for name, one in OPTIONS.items():
        value = f" Ns = Ns {mdoc_words(one.value)}" if one.value else ""
        shown = f"{name}={one.value}" if one.value else name
        rows.append(Row(shown, f"Cm {name}{value}", sentence(one.summary)))
    return Table(("option", "meaning"), rows)


def module_options(overruling: bool) -> Table:
    """Return the mount options of the module, those that overrule the server or the others."""
    rows = []
    for name, one in MODULE_OPTIONS.items():
        if one.overrules is not overruling:
            continue
        value = f" Ns = Ns Ar {one.value}" if one.value else ""
        shown = f"{name}={one.value}" if one.value else name
        parts = [one.about, *([one.more] if one.more else [])]
        if one.condition:
            parts.append(f"{_VERDICTS[one.class_]} {one.condition}; otherwise {one.otherwise}")
        rows.append(Row(shown, f"Cm {name}{value}", " ".join(map(sentence, parts))))
    return Table(("option", "meaning"), rows)


def findings() -> Table:
    """Return the findings of doctor."""
    rows = [Row(name, f"Cm {name}", sentence(text)) for name, text in FINDINGS.items()]
    return Table(("finding", "meaning"), rows)


def metrics() -> Table:
    """Return the metrics of report."""
    rows = []
    for name, one in METRICS.items():
        labels = f" Labels: {', '.join(one.labels)}." if one.labels else ""
        text = f"{one.text} Type: {one.type}.{labels}"
        rows.append(Row(name, f"Li {name}", text, (one.text, one.type, ", ".join(one.labels))))
    return Table(("metric", "meaning", "type", "labels"), rows)


def alerts() -> Table:
    """Return the alert rules for Prometheus."""
    rows = []
    rules = ALERTS.read_text(encoding="utf-8").split("- alert: ")[1:]
    for name, rest in (rule.split("\n", 1) for rule in rules):
        keys = dict(re.findall(r"^ +(for|severity|summary): (.*)$", rest, re.M))
        cells = (keys["summary"], keys["for"], keys["severity"])
        rows.append(Row(name, f"Li {name}", " ".join(cells), cells))
    return Table(("alert", "meaning", "must hold for", "severity"), rows)


def exit_codes() -> Table:
    """Return the exit codes."""
    rows = [Row(str(int(code)), str(int(code)), sentence(code.meaning)) for code in ExitCode]
    return Table(("exit code", "meaning"), rows)


def recipe_keys(heading: str) -> Table:
    """Return the keys of a table of a recipe, by its heading; empty for those above all tables."""
    one = object_schema(RECIPE_TABLES[heading], {}, lenient=True)
    rows = []
    for name, key in one["properties"].items():
        if "$ref" in key or "$ref" in key.get("items", {}):
            continue  # a table of its own
        optional = "" if name in one["required"] else "yes"
        cells = (_kind(key), optional, key["description"])
        rows.append(Row(name, f"Cm {name}", sentence(key["description"]), cells))
    return Table(("key", "value", "may be left out", "meaning"), rows)


def _kind(key: Schema) -> str:
    if "enum" in key:
        return ", ".join(key["enum"])
    if key["type"] == "array":
        return f"list: {_kind(key['items'])}"
    return {"string": "text", "integer": "whole number", "boolean": "true, false"}[key["type"]]


def packages() -> Table:
    """Return the parts of fusetune/, each below those that it imports.

    Raises graphlib.CycleError where two of them import each other.
    """
    base = ROOT / "fusetune"
    holds: dict[str, str] = {}
    uses: dict[str, set[str]] = {}
    for path in sorted(base.rglob("*.py")):
        name, *below = path.relative_to(base).parts
        module = ast.parse(path.read_text(encoding="utf-8"))
        if below in ([], ["__init__.py"]):
            holds[name] = (ast.get_docstring(module) or "").partition("\n")[0]
        for node in ast.walk(module):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fusetune."):
                used = (node.module or "").split(".")[1]
                used = used if (base / used).is_dir() else f"{used}.py"
                uses.setdefault(name, set()).update({used} - {name})
    order = TopologicalSorter({name: sorted(uses.get(name, ())) for name in holds})
    rows = []
    for name in order.static_order():
        if not name.startswith("__"):
            shown = name if name.endswith(".py") else f"{name}/"
            parts = ", ".join(sorted(one.removesuffix(".py") for one in uses.get(name, ())))
            rows.append(Row(shown, "", holds[name], (holds[name], parts)))
    return Table(("part", "what it holds", "imports"), rows)


TABLES: dict[str, Callable[[Sequence[str]], Table]] = {
    "commands": lambda _: commands(_pages()),
    "options": lambda names: options_of(list(commands_named(names))),
    "mount-knobs": lambda _: _knobs(LIVE),
    "host-knobs": lambda _: _knobs(SYSTEM),
    "remount-knobs": lambda _: remount_knobs(),
    "workloads": lambda _: workloads(),
    "workload-sets": lambda _: workload_sets(),
    "library-options": lambda _: library_options(),
    "module-options": lambda words: module_options(bool(words)),
    "findings": lambda _: findings(),
    "metrics": lambda _: metrics(),
    "alerts": lambda _: alerts(),
    "exit-codes": lambda _: exit_codes(),
    "packages": lambda _: packages(),
    "recipe-keys": lambda words: recipe_keys(" ".join(words)),
}


def filled(text: str, manual: bool) -> str:
    """Return ``text`` with what stands in its places made anew."""

    def made(place: re.Match[str]) -> str:
        begin, name, words, _, end = place.groups()
        if name in ("synopsis", "usage"):
            return begin + {"synopsis": synopsis, "usage": usage}[name](words.split()) + end
        table = TABLES[name](words.split())
        return begin + (table.mdoc() if manual else table.markdown()) + end

    return _PLACE.sub(made, text)


def generated() -> dict[Path, str]:
    """Return the text of every file that holds tables, and of every JSON Schema."""
    texts = {
        path: filled(path.read_text(encoding="utf-8"), manual=path.suffix != ".md")
        for path in FILES
    }
    for document in every_document():
        path = SCHEMAS / f"{document.SCHEMA}.json"
        texts[path] = json.dumps(schema_of(document), indent=2) + "\n"
    texts[SCHEMAS / "recipe.json"] = json.dumps(recipe_schema(), indent=2) + "\n"
    return texts


def main() -> None:
    """Write, or check, all files."""
    parser = argparse.ArgumentParser(prog="python3 -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args().check
    texts = generated()
    stale = [
        path
        for path, text in texts.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    gone = [path for path in sorted(SCHEMAS.glob("*.json")) if path not in texts]
    if check and (stale or gone):
        names = ", ".join(str(path.relative_to(ROOT)) for path in (*stale, *gone))
        sys.exit(f"run 'make docs': {names} differ from the tables in the code")
    for path in stale:
        path.write_text(texts[path], encoding="utf-8")
    for path in gone:
        path.unlink()


if __name__ == "__main__":
    main()
