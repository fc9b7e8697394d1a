# SPDX-License-Identifier: GPL-2.0-or-later
"""What the commands of fusetune take, as click has it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import click

from docs.markup import Row, Table, mdoc_words, sentence
from fusetune.cli import cli, examples
from fusetune.cli import commands as known_commands

_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


def commands_named(names: Iterable[str]) -> Iterator[tuple[str, click.Command]]:
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
        return re.sub(r"^\[([\w|]+(?:\.\.\.)?)\]$", r"\1", param.metavar)
    if isinstance(param.type, click.Choice):
        return "|".join(param.type.choices)
    if isinstance(param, click.Argument):
        return (param.name or "").upper()
    if isinstance(param.type, click.Path):
        return "FILE"
    return "N" if param.type.name == "integer" else param.type.name.upper()


def _flags(option: click.Option) -> str:
    return " , ".join(f"Fl {name[1:]}" for name in sorted(option.opts, key=len))


def _options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option)]


def _arguments(command: click.Command) -> list[click.Argument]:
    return [param for param in command.params if isinstance(param, click.Argument)]


def synopsis(names: Sequence[str]) -> str:
    """Return the lines of the manual that show how commands are used."""
    lines = []
    for name, command in commands_named(names):
        lines.append(f".Nm fusetune Cm {name}")
        for option in _options(command):
            flag = f"Fl {sorted(option.opts, key=len)[0][1:]}"
            lines.append(f".Op {flag} {mdoc_words(_value(option))}".rstrip())
        for one in _arguments(command):
            value = _value(one).removeprefix("[--] ")
            if value != _value(one):
                lines.append(".Op Fl -")
            lines.append(f".{'' if one.required else 'Op '}{mdoc_words(value)}")
    return "".join(f"{line}\n" for line in lines)


def _help(option: click.Option) -> str:
    """Return an option's help in sentences, its default last."""
    text = option.help or ""
    default = match[1] if (match := _DEFAULT.search(text)) else None
    if option.show_default:
        default = str(option.default)
    text = sentence(_DEFAULT.sub("", text))
    return f"{text} Default: {default}." if default else text


def options_of(commands: Sequence[tuple[str, click.Command]]) -> Table:
    """Return the options of commands; of one that not all of them have, whose it is."""
    found: dict[tuple[str, str], list[str]] = {}
    tags: dict[tuple[str, str], str] = {}
    for name, command in commands:
        for option in _options(command):
            shown = ", ".join(sorted(option.opts, key=len))
            key = f"{shown} {_value(option)}".strip(), _help(option)
            found.setdefault(key, []).append(name)
            tags[key] = f"{_flags(option)} {mdoc_words(_value(option))}".strip()
    rows = []
    for key, having in found.items():
        whose = f"({', '.join(having)}) " if len(having) < len(commands) else ""
        rows.append(Row(key[0], tags[key], whose + key[1]))
    return Table(("option", "meaning"), rows)


def usage(names: Sequence[str]) -> str:
    """Return a section of Markdown for each command."""
    parts = []
    for name, command in commands_named(names or known_commands()):
        values = [(_value(one), one.required) for one in _arguments(command)]
        shown = " ".join(value if required else f"[{value}]" for value, required in values)
        text = sentence((command.help or "").partition("\n")[0])
        line = f"    fusetune {name} [OPTION...] {shown}".rstrip()
        table = options_of([(name, command)]).markdown()
        parts.append(f"### {name}\n\n{text}\n\n{line}\n\n{table}{_examples(name)}")
    return "\n".join(parts)


def _examples(name: str) -> str:
    """Return the examples of a command as a block of Markdown after an empty line.

    Commands of a group have none.
    """
    found = examples(name) if " " not in name else ()
    shown = "".join(f"\n    # {what}\n    fusetune {words}" for what, words in found)
    return f"{shown}\n" if found else ""


def commands(pages: Mapping[str, str]) -> Table:
    """Return every command; ``pages``: by command, the page of the manual that is about it."""
    return Table(
        ("command", "what it does"),
        [
            Row(
                f"fusetune {name}",
                f"Cm {name}",
                f"{text} See {pages.get(name, 'fusetune')}(8).",
                (text,),
            )
            for name, text in known_commands().items()
        ],
    )
