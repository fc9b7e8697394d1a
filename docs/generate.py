# SPDX-License-Identifier: GPL-2.0-or-later
"""Write the tables that are data in the code into the manual, README and docs (``make docs``).

A place for a table begins with the line ``make docs: TABLE [COMMAND...]`` and ends with ``make
docs: end``, both in comments of the file. ``--check`` writes nothing and names stale files. A new
table is a function in ``TABLES``.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from fusetune.bench.workloads import DEFAULT, WORKLOADS
from fusetune.cli import COMMANDS, cli
from fusetune.errors import ExitCode
from fusetune.knobs import LIVE, REMOUNT, SYSTEM, Knob
from fusetune.libfuse.options import OPTIONS
from fusetune.report.doctor import FINDINGS
from fusetune.report.prometheus import METRICS

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((*ROOT.glob("man/*.[1-8]"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.md")))
_PLACE = re.compile(
    r"^((?:\.\\\"|<!--) make docs: (?!end)([\w-]+)(.*?)(?: -->)?\n)(.*?)"
    r"^((?:\.\\\"|<!--) make docs: end)",
    re.MULTILINE | re.DOTALL,
)
_SYNOPSIS = re.compile(r'^\.\\" make docs: synopsis (.*)$', re.MULTILINE)
_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")
_NAMES = {"fio", *COMMANDS}
_TOKEN = re.compile(r"\.\.\.|[A-Za-z]+|\S")


@dataclass(frozen=True)
class Row:
    """One entry: its name, mdoc(7)'s words for that, its sentences in the manual, its cells."""

    name: str
    tag: str
    text: str
    cells: Sequence[str] = ()


@dataclass(frozen=True)
class Table:
    """Rows, and the headings of their cells, the name's included."""

    headings: Sequence[str]
    rows: Sequence[Row]

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [self.headings, ["---"] * len(self.headings)]
        for row in self.rows:
            cells = [f"`{row.name}`", *(row.cells or [row.text])]
            lines.append([cell.replace("|", "\\|") for cell in cells])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def mdoc(self) -> str:
        """Return the table as a list of the manual."""
        rows = "".join(f".It {row.tag}\n{_wrapped(row.text)}" for row in self.rows)
        return f".Bl -tag -width Ds\n{rows}.El\n"


def _sentence(text: str) -> str:
    """Return ``text`` with a full stop, and a capital unless it begins with a name."""
    first = re.split(r"[ ,:;]", text)[0]
    if first.isalpha() and first not in _NAMES:
        text = text[:1].upper() + text[1:]
    return text if text.endswith(".") else f"{text}."


def _wrapped(text: str) -> str:
    """Return text for the manual: lines of 78 characters at most, a new one for each sentence."""
    lines: list[str] = []
    for sentence in re.split(r"(?<=[.)])(?<=\.) (?=[A-Z0-9'])", text):
        escaped = sentence.replace("\\", "\\e")
        lines += textwrap.wrap(escaped, 78, break_long_words=False, break_on_hyphens=False)
    return "".join(f"\\&{line}\n" if line[0] in ".'" else f"{line}\n" for line in lines)


# What commands take


def _commands(names: Iterable[str]) -> Iterator[tuple[str, click.Command]]:
    """Yield commands of these names, those of a group one by one."""
    for name in names:
        command = cli.get_command(click.Context(cli), name)
        if command is None:
            raise KeyError(name)
        if isinstance(command, click.Group):
            yield from ((f"{name} {sub}", one) for sub, one in command.commands.items())
        else:
            yield name, command


def _value(param: click.Parameter) -> str:
    """Return what stands for the value of an option or argument; empty for a flag."""
    if getattr(param, "is_flag", False):
        return ""
    if param.metavar:
        return re.sub(r"^\[(\w+)\]$", r"\1", param.metavar)
    if isinstance(param.type, click.Choice):
        return "|".join(param.type.choices)
    if isinstance(param, click.Argument):
        return (param.name or "").upper()
    if isinstance(param.type, click.Path):
        return "FILE"
    return "N" if param.type.name == "integer" else param.type.name.upper()


def _mdoc_words(value: str) -> str:
    """Return mdoc(7)'s macros for a value: what is in capitals stands for something else."""
    words: list[str] = []
    for word in _TOKEN.findall(value):
        if word == "...":
            words.append(word)
        elif word.isalpha():
            words.append(f"{'Ar' if word.isupper() else 'Cm'} {word}")
        else:
            words.append(f"Ns {word} Ns")
    return " ".join(words)


def _flags(option: click.Option) -> str:
    return " , ".join(f"Fl {name[1:]}" for name in sorted(option.opts, key=len))


def _options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def _arguments(command: click.Command) -> list[click.Argument]:
    return [param for param in command.params if isinstance(param, click.Argument)]


def _synopsis(names: Sequence[str]) -> str:
    lines = []
    for name, command in _commands(names):
        lines.append(f".Nm fusetune Cm {name}")
        for option in _options(command):
            flag = f"Fl {sorted(option.opts, key=len)[0][1:]}"
            lines.append(f".Op {flag} {_mdoc_words(_value(option))}".rstrip())
        for one in _arguments(command):
            value = _value(one).removeprefix("[--] ")
            if value != _value(one):
                lines.append(".Op Fl -")
            lines.append(f".{'' if one.required else 'Op '}{_mdoc_words(value)}")
    return "".join(f"{line}\n" for line in lines)


def _help(option: click.Option) -> str:
    """Return an option's help in sentences, its default last."""
    text = option.help or ""
    default = match[1] if (match := _DEFAULT.search(text)) else None
    if isinstance(option.show_default, str):
        default = option.show_default
    elif option.show_default:
        default = str(option.default)
    text = _sentence(_DEFAULT.sub("", text))
    return f"{text} Default: {default}." if default else text


def _options_of(commands: Sequence[tuple[str, click.Command]]) -> Table:
    """Return the options of commands; of one that not all of them have, whose it is."""
    found: dict[tuple[str, str], list[str]] = {}
    tags: dict[tuple[str, str], str] = {}
    for name, command in commands:
        for option in _options(command):
            shown = ", ".join(sorted(option.opts, key=len))
            key = f"{shown} {_value(option)}".strip(), _help(option)
            found.setdefault(key, []).append(name)
            tags[key] = f"{_flags(option)} {_mdoc_words(_value(option))}".strip()
    rows = []
    for key, having in found.items():
        whose = f"({', '.join(having)}) " if len(having) < len(commands) else ""
        rows.append(Row(key[0], tags[key], whose + key[1]))
    return Table(("option", "meaning"), rows)


def _usage(names: Sequence[str]) -> str:
    """Return a section of Markdown for each command."""
    parts = []
    for name, command in _commands(names or COMMANDS):
        values = [(_value(one), one.required) for one in _arguments(command)]
        shown = " ".join(value if required else f"[{value}]" for value, required in values)
        text = _sentence((command.help or "").partition("\n")[0])
        usage = f"    fusetune {name} [OPTION...] {shown}".rstrip()
        table = _options_of([(name, command)]).markdown()
        parts.append(f"### {name}\n\n{text}\n\n{usage}\n\n{table}")
    return "\n".join(parts)


def commands() -> Table:
    """Return every command, with the page of the manual that is about it."""
    pages: dict[str, str] = {}
    for path in FILES:
        for names in _SYNOPSIS.findall(path.read_text(encoding="utf-8")):
            pages |= dict.fromkeys(names.split(), path.stem)
    return Table(
        ("command", "what it does"),
        [
            Row(f"fusetune {name}", f"Cm {name}", f"{text} See {pages[name]}(8).", (text,))
            for name, text in COMMANDS.items()
        ],
    )


# Tables of data


def _range(knob: Knob) -> str:
    top = "" if knob.high is None else f" to {knob.high}"
    step = f", multiples of {knob.step}" if knob.step > 1 else ""
    return f"{knob.low}{top}{step}" if top else f"{knob.low} or more{step}"


def _stock(knob: Knob) -> str:
    if knob.stock is not None:
        return str(knob.stock)
    return "what INIT negotiated" if knob.init_line else "depends on memory"


def _knobs(known: Iterable[Knob]) -> Table:
    rows = []
    for knob in known:
        text = (
            f"{_sentence(knob.summary)} Unit: {knob.unit}; range: {_range(knob)}; the kernel's "
            f"default: {_stock(knob)}. {_sentence(f'Risk: {knob.risk}')}"
        )
        cells = (knob.unit, _range(knob), _stock(knob), knob.summary, knob.risk)
        rows.append(Row(knob.name, f"Cm {knob.name}", text, cells))
    return Table(("knob", "unit", "range", "kernel's default", "meaning", "risk"), rows)


def remount_knobs() -> Table:
    """Return the properties that only a new mount can have."""
    rows = []
    for knob in REMOUNT:
        sentences = (knob.summary, f"How: {knob.remedy}", f"Risk: {knob.risk}")
        cells = (knob.summary, knob.remedy, knob.risk)
        rows.append(Row(knob.name, f"Cm {knob.name}", " ".join(map(_sentence, sentences)), cells))
    return Table(("property", "meaning", "how", "risk"), rows)


def workloads() -> Table:
    """Return the workloads of auto and bench."""
    rows = []
    for one in WORKLOADS.values():
        text = f"{_sentence(one.measures)}{' The default.' if one.name == DEFAULT else ''}"
        rows.append(Row(one.name, f"Cm {one.name}", text, (text, one.unit)))
    return Table(("workload", "what it measures", "unit"), rows)


def library_options() -> Table:
    """Return the options of the tuned libfuse3."""
    rows = []
    for name, one in OPTIONS.items():
        value = f" Ns = Ns {_mdoc_words(one.value)}" if one.value else ""
        shown = f"{name}={one.value}" if one.value else name
        rows.append(Row(shown, f"Cm {name}{value}", _sentence(one.summary)))
    return Table(("option", "meaning"), rows)


def findings() -> Table:
    """Return the findings of doctor."""
    rows = [Row(name, f"Cm {name}", _sentence(text)) for name, text in FINDINGS.items()]
    return Table(("finding", "meaning"), rows)


def metrics() -> Table:
    """Return the metrics of report."""
    rows = []
    for name, one in METRICS.items():
        labels = f" Labels: {', '.join(one.labels)}." if one.labels else ""
        rows.append(Row(name, f"Li {name}", one.text + labels, (one.text, ", ".join(one.labels))))
    return Table(("metric", "meaning", "labels"), rows)


def exit_codes() -> Table:
    """Return the exit codes."""
    rows = [Row(str(int(code)), str(int(code)), _sentence(code.meaning)) for code in ExitCode]
    return Table(("exit code", "meaning"), rows)


TABLES: dict[str, Callable[[Sequence[str]], Table]] = {
    "commands": lambda _: commands(),
    "options": lambda names: _options_of(list(_commands(names))),
    "mount-knobs": lambda _: _knobs(LIVE),
    "host-knobs": lambda _: _knobs(SYSTEM),
    "remount-knobs": lambda _: remount_knobs(),
    "workloads": lambda _: workloads(),
    "library-options": lambda _: library_options(),
    "findings": lambda _: findings(),
    "metrics": lambda _: metrics(),
    "exit-codes": lambda _: exit_codes(),
}


def filled(text: str, manual: bool) -> str:
    """Return ``text`` with what stands in its places made anew."""

    def made(place: re.Match[str]) -> str:
        begin, name, words, _, end = place.groups()
        if name in ("synopsis", "usage"):
            return begin + {"synopsis": _synopsis, "usage": _usage}[name](words.split()) + end
        table = TABLES[name](words.split())
        return begin + (table.mdoc() if manual else table.markdown()) + end

    return _PLACE.sub(made, text)


def main() -> None:
    """Write, or check, all files."""
    parser = argparse.ArgumentParser(prog="python3 -m docs.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if one is stale")
    check = parser.parse_args().check
    stale = []
    for path in FILES:
        old = path.read_text(encoding="utf-8")
        new = filled(old, manual=path.suffix != ".md")
        if new != old:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        sys.exit(f"run 'make docs': {', '.join(stale)} differ from the tables in the code")


if __name__ == "__main__":
    main()
