# SPDX-License-Identifier: GPL-2.0-or-later
"""The format of recipes. Reader, JSON Schema and docs/recipes.md are made from the annotations.

A field with a default may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fusetune.bench.workloads import WORKLOADS
from fusetune.kmod.options import OPTIONS as MODULE_OPTIONS
from fusetune.recipes.config_text import FORMATS
from fusetune.schema import Rule, Schema, object_schema

SCHEMA = "fusetune.recipe/1"
#: Libraries of servers; the first two are recognized in the memory map.
LIBRARIES = ("libfuse2", "libfuse3", "own", "go", "rust", "java", "none")
_UNITS = (
    *("bytes", "KiB", "MiB", "seconds", "milliseconds"),
    *("threads", "requests", "pages", "connections", "entries"),
)

Sentence = Annotated[str, Rule(minLength=1)]
Name = Annotated[str, Rule(pattern=r"^[^\s,=]+$")]
Version = Annotated[str, Rule(pattern=r"^[0-9]+(\.[0-9]+)*$")]
Library = Annotated[str, Rule(enum=list(LIBRARIES))]
Workload = Annotated[str, Rule(enum=list(WORKLOADS))]
Setting = Annotated[str, Rule(pattern=r"^[^\s,=]+(=[^\s,]+)?$")]


@dataclass(frozen=True)
class ServerFacts:
    """How a server is recognized, and its option syntax."""

    fstype: Annotated[
        Sequence[Name],
        "File system types as in mountinfo, which may contain * and ? as wildcards.",
        Rule(minItems=1),
    ]
    library: Annotated[
        Sequence[Library], "The libraries that the server may be built on.", Rule(minItems=1)
    ]
    options: Annotated[
        str,
        "Option syntax of the command line: mount: -o a,b=c; long: --a=c; single: -a=c.",
        Rule(enum=["mount", "long", "single"]),
    ]
    second: Annotated[
        str,
        "Whether a second instance may run in parallel with the live one.",
        Rule(enum=["yes", "read-only", "no"]),
    ]
    second_because: Annotated[Sentence, "Why."]
    source: Annotated[Sentence, "The source of these facts."]
    program: Annotated[Sequence[Name], "File names of the server's executable."] = ()
    package: Annotated[Name | None, "Name of Debian's binary package."] = None
    subcommands: Annotated[
        Sequence[Name], "Subcommands after which options are given, such as mount."
    ] = ()
    file: Annotated[Sentence | None, "Its configuration file."] = None
    file_format: Annotated[
        str | None,
        "Syntax of that file, if it is an editable file in /etc: space: KEY VALUE, as in "
        "davfs2.conf(5); shell: KEY=VALUE; ini: KEY = VALUE in sections.",
        Rule(enum=list(FORMATS)),
    ] = None
    file_sections: Annotated[
        Sequence[Sentence],
        "The sections of that file that the server reads in addition to the part before all "
        "sections. The last one takes precedence and gets the changes; {point} stands for the "
        "mount point.",
    ] = ()
    file_above: Annotated[
        Sequence[Sentence],
        "Further files in the same format that take precedence over it, as file name patterns; "
        "they are not changed.",
    ] = ()
    file_other: Annotated[
        Sequence[Name],
        "Command-line words, mount options and variables that name another file in its place.",
    ] = ()
    file_check: Annotated[
        Sequence[Sentence],
        "A command, as words, that prints the value of {key} as the server reads it from {file}, "
        "without mounting.",
    ] = ()
    secrets: Annotated[
        Sequence[Name], "Options with secret values, in addition to those with the usual names."
    ] = ()
    background: Annotated[
        Sequence[Sentence],
        "Words that the server puts before its options when it starts itself again in the "
        "background, as wildcard patterns. They are left out of command lines.",
    ] = ()
    second_with: Annotated[
        Sequence[Sentence],
        "Options that a second instance gets, as on the command line, such as -o ro or --a=b; "
        '{private} is a directory of its own. With second = "read-only" they make it read-only.',
    ] = ()
    second_own: Annotated[
        Sequence[Sentence],
        "The same, but only if the live instance has the option, which names something private or "
        "changes the host, as --a=false.",
    ] = ()
    second_not_with: Annotated[
        Sequence[Sentence], "Options of the live instance with which a second instance is not safe."
    ] = ()
    second_unset: Annotated[
        Sequence[Name],
        "Environment variables that a second instance does not get, as wildcard patterns. The "
        "server or its supervisor sets them for one process, such as the number of a descriptor.",
    ] = ()
    fuse: Annotated[bool, "false: this mount is served by the kernel instead of FUSE."] = True
    fuse_because: Annotated[Sentence | None, "Why, with fuse = false."] = None


@dataclass(frozen=True)
class Option:
    """An option that affects performance.

    It has exactly one of ``flag``, ``values`` and ``range``.
    """

    name: Annotated[Name, "Its name."]
    about: Annotated[Sentence, "What it does."]
    class_: Annotated[
        str,
        "safe: no program can see a difference; conditional: correct if the condition holds; "
        "unsafe: data can be lost or corrupted, so it is never proposed.",
        Rule(enum=["safe", "conditional", "unsafe"]),
    ]
    proof: Annotated[
        str,
        "tried: a test checks that the program has the option; read: known from the source only.",
        Rule(enum=["tried", "read"]),
    ]
    source: Annotated[Sentence, "The source of these facts."]
    flag: Annotated[bool, "true: it has no argument; its values are true and false."] = False
    values: Annotated[Sequence[Sentence], "The values that it accepts."] = ()
    range: Annotated[
        Sequence[int],
        "The smallest and the largest number that it accepts; a single number: no upper bound.",
        Rule(minItems=1, maxItems=2),
    ] = ()
    unit: Annotated[str | None, "Unit of the numbers.", Rule(enum=list(_UNITS))] = None
    default: Annotated[Sentence | None, "Its default value; omitted if it varies."] = None
    propose: Annotated[Sentence | None, "The value to propose; omitted: it is only mentioned."] = (
        None
    )
    workloads: Annotated[
        Sequence[Workload], "The workloads of fusetune that gain; omitted: all."
    ] = ()
    slows: Annotated[Sequence[Workload], "The workloads of fusetune that it slows down."] = ()
    command: Annotated[
        str | None,
        "Its spelling on the command line if that differs, with {value} for the value, such as "
        '"-o a={value}", "--a={value}s", "-n {value}" or "-s"; empty: it cannot be given on the '
        "command line.",
    ] = None
    also: Annotated[
        Sequence[Sentence], "Further spellings, which are understood but never written."
    ] = ()
    fstab: Annotated[
        str | None,
        "Its spelling in fstab if not NAME={value}; empty: it cannot be given in fstab.",
    ] = None
    environment: Annotated[Name | None, "The environment variable that sets it."] = None
    file: Annotated[Sentence | None, "Its key in the configuration file."] = None
    since: Annotated[Version | None, "The first version of the server that has it."] = None
    until: Annotated[Version | None, "The last version of the server that has it."] = None
    kernel: Annotated[Version | None, "The first version of the kernel that supports it."] = None
    library: Annotated[
        Sequence[Library], "Only servers built on one of these libraries have it."
    ] = ()
    root: Annotated[bool, "true: only a server that runs as root can use it."] = False
    needs: Annotated[
        Sequence[Setting],
        "Options of this recipe that are proposed together with it, as NAME=VALUE|VALUE: the "
        "first value is proposed, the others suffice.",
    ] = ()
    excludes: Annotated[
        Sequence[Setting], "Options of this recipe, or values of them, that conflict with it."
    ] = ()
    condition: Annotated[
        Sentence | None, "When it is correct: a sentence that is either true or false."
    ] = None
    otherwise: Annotated[Sentence | None, "What happens if the condition does not hold."] = None

    @property
    def usual(self) -> str | None:
        """Its default value, None if unknown."""
        return self.default or ("false" if self.flag else None)


@dataclass(frozen=True)
class Bad:
    """An option that is harmful or useless if it is set."""

    option: Annotated[Name, "Its name."]
    kind: Annotated[str, "Whether it is harmful or useless.", Rule(enum=["harmful", "useless"])]
    because: Annotated[Sentence, "Why."]
    instead: Annotated[Sentence, "What to do."]
    source: Annotated[Sentence, "The source of these facts."]
    command: Annotated[
        str | None,
        "Its spelling on the command line, as for an option; empty: only the configuration file "
        "can set it.",
    ] = None
    value: Annotated[Sentence | None, "Only this value is meant."] = None
    below: Annotated[int | None, "Only smaller numbers are meant."] = None
    above: Annotated[int | None, "Only greater numbers are meant."] = None
    to: Annotated[Sentence | None, "The value to propose; omitted: the option is left out."] = None
    file: Annotated[Sentence | None, "Its key in the configuration file."] = None
    workloads: Annotated[Sequence[Workload], "The workloads that suffer; omitted: all."] = ()
    class_: Annotated[
        str, "Whether the change is always correct.", Rule(enum=["safe", "conditional"])
    ] = "safe"
    condition: Annotated[Sentence | None, "When the change is correct."] = None
    otherwise: Annotated[Sentence | None, "What happens if the condition does not hold."] = None


@dataclass(frozen=True)
class ByModule:
    """A mount option of the module fusetuned that is useful for this server.

    It is proposed only on a host with the module, for servers that run as root.
    """

    option: Annotated[str, "Its name in fusetuned(4).", Rule(enum=list(MODULE_OPTIONS))]
    source: Annotated[Sentence, "The source that shows that the server lacks this."]
    about: Annotated[Sentence | None, "What it gains here; omitted: as in fusetuned(4)."] = None
    propose: Annotated[
        str | None,
        "The value to propose, if the option takes one.",
        Rule(pattern="^[0-9]+$"),
    ] = None
    own: Annotated[
        Sequence[Name],
        "Equivalent options of this recipe. The module's is proposed only if the server has none "
        "of them, because it is too old or built on another library.",
    ] = ()
    workloads: Annotated[
        Sequence[Workload], "The workloads of fusetune that gain; omitted: all."
    ] = ()
    slows: Annotated[Sequence[Workload], "The workloads of fusetune that it slows down."] = ()
    library: Annotated[
        Sequence[Library], "Only servers built on one of these libraries lack it."
    ] = ()
    excludes: Annotated[
        Sequence[Setting], "Options of this recipe, or values of them, that conflict with it."
    ] = ()
    class_: Annotated[
        str | None,
        "As for an option; omitted: as in fusetuned(4), with its condition.",
        Rule(enum=["safe", "conditional", "unsafe"]),
    ] = None
    condition: Annotated[Sentence | None, "When it is correct here; needs class."] = None
    otherwise: Annotated[Sentence | None, "What happens if the condition does not hold."] = None


@dataclass(frozen=True)
class Recipe:
    """What fusetune knows about one kind of FUSE server."""

    schema: Annotated[str, "Name and version of this format.", Rule(enum=[SCHEMA])]
    name: Annotated[str, "The file's name without .toml.", Rule(pattern="^[a-z0-9][a-z0-9_.-]*$")]
    about: Annotated[Sentence, "What the server does."]
    server: Annotated[ServerFacts, "How the server is recognized, and its option syntax."]
    option: Annotated[
        Sequence[Option], "The options that affect performance, in the order of proposal."
    ] = ()
    bad: Annotated[Sequence[Bad], "Options that are harmful or useless."] = ()
    module: Annotated[
        Sequence[ByModule], "Options of the module fusetuned, in the order of proposal."
    ] = ()

    def named(self, name: str) -> Option | None:
        """Return the option of that name, None if there is none."""
        return next((one for one in self.option if one.name == name), None)


#: The tables of a recipe, by the heading that begins each.
TABLES = {
    "": Recipe,
    "[server]": ServerFacts,
    "[[option]]": Option,
    "[[bad]]": Bad,
    "[[module]]": ByModule,
}


def recipe_schema() -> Schema:
    """Return the JSON Schema of a recipe."""
    shapes: dict[str, Schema] = {}
    body = object_schema(Recipe, shapes, lenient=True)
    return {
        "$comment": "SPDX-License-Identifier: GPL-2.0-or-later; made by 'make docs'",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:fusetune:schema:recipe:1",
        "title": "fusetune/recipes/*.toml",
        **body,
        "$defs": dict(sorted(shapes.items())),
    }
