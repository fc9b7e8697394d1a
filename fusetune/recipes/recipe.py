# SPDX-License-Identifier: GPL-2.0-or-later
"""What a recipe says. The annotations are the format: the reader, its JSON Schema, docs/recipes.md.

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
#: What a server may be built on; the first two are seen in its memory map.
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
    """How a server is known, and how it takes options."""

    fstype: Annotated[
        Sequence[Name],
        "File system types as in mountinfo; * and ? as in file name patterns.",
        Rule(minItems=1),
    ]
    library: Annotated[Sequence[Library], "What the server is built on.", Rule(minItems=1)]
    options: Annotated[
        str,
        "How the command line gives options: mount: -o a,b=c; long: --a=c; single: -a=c.",
        Rule(enum=["mount", "long", "single"]),
    ]
    second: Annotated[
        str,
        "Whether a second instance beside the live one is safe.",
        Rule(enum=["yes", "read-only", "no"]),
    ]
    second_because: Annotated[Sentence, "Why."]
    source: Annotated[Sentence, "Where these facts come from."]
    program: Annotated[Sequence[Name], "File names of the executable that serves."] = ()
    package: Annotated[Name | None, "Debian's binary package."] = None
    subcommands: Annotated[
        Sequence[Name], "Words of the command line that its options come after, such as mount."
    ] = ()
    file: Annotated[Sentence | None, "Its configuration file."] = None
    file_format: Annotated[
        str | None,
        "How that file is written, if it is one in /etc that can be edited: space: KEY VALUE, as "
        "davfs2.conf(5); shell: KEY=VALUE; ini: KEY = VALUE in sections.",
        Rule(enum=list(FORMATS)),
    ] = None
    file_sections: Annotated[
        Sequence[Sentence],
        "The sections of that file that the server reads besides its general part. The last one "
        "ranks highest and gets the changes; {point} stands for the mount point.",
    ] = ()
    file_above: Annotated[
        Sequence[Sentence],
        "Further files in the same format that rank above it, as file name patterns; what they set "
        "is not changed.",
    ] = ()
    file_other: Annotated[
        Sequence[Name],
        "Words of the command line, mount options and variables that name another file in its "
        "place.",
    ] = ()
    file_check: Annotated[
        Sequence[Sentence],
        "Words of a command that prints the value of {key} as the server reads it from {file}, "
        "without a mount.",
    ] = ()
    secrets: Annotated[
        Sequence[Name], "Options whose value is a secret, besides those of the usual names."
    ] = ()
    second_with: Annotated[
        Sequence[Sentence],
        "Options that a second instance gets, as on the command line, such as -o ro or --a=b; "
        '{private} stands for a directory of its own. With second = "read-only" they mount it so.',
    ] = ()
    second_own: Annotated[
        Sequence[Sentence],
        "The same, only where the live instance has the option: what it names is its own.",
    ] = ()
    second_not_with: Annotated[
        Sequence[Sentence], "Options of the live instance with which a second one is not safe."
    ] = ()
    fuse: Annotated[bool, "false: the kernel serves this mount, not FUSE."] = True
    fuse_because: Annotated[Sentence | None, "What that means, with fuse = false."] = None


@dataclass(frozen=True)
class Option:
    """An option that bears on speed.

    It takes exactly one of ``flag``, ``values`` and ``range``.
    """

    name: Annotated[Name, "Its name."]
    about: Annotated[Sentence, "What it does."]
    class_: Annotated[
        str,
        "safe: nothing that a program can see changes; conditional: right where the condition "
        "holds; unsafe: data can be lost or rot, so it is never proposed.",
        Rule(enum=["safe", "conditional", "unsafe"]),
    ]
    proof: Annotated[
        str,
        "tried: a test finds the option in the program; read: the source was only read.",
        Rule(enum=["tried", "read"]),
    ]
    source: Annotated[Sentence, "Where these facts come from."]
    flag: Annotated[bool, "true: it takes no value; its values are true and false."] = False
    values: Annotated[Sequence[Sentence], "The values that it takes."] = ()
    range: Annotated[
        Sequence[int],
        "The least and the greatest number that it takes; one number: no greatest.",
        Rule(minItems=1, maxItems=2),
    ] = ()
    unit: Annotated[str | None, "Unit of the numbers.", Rule(enum=list(_UNITS))] = None
    default: Annotated[
        Sentence | None, "Its value if it is not given; left out where that depends."
    ] = None
    propose: Annotated[Sentence | None, "The value to propose; left out: it is only named."] = None
    workloads: Annotated[
        Sequence[Workload], "The workloads of fusetune that gain; left out: all."
    ] = ()
    slows: Annotated[Sequence[Workload], "The workloads of fusetune that it slows down."] = ()
    command: Annotated[
        str | None,
        "Its spelling on the command line where it is another, with {value} for the value, such "
        'as "-o a={value}", "--a={value}s", "-n {value}" or "-s"; empty: the command line cannot '
        "say it.",
    ] = None
    also: Annotated[
        Sequence[Sentence], "Further spellings, which are understood and never written."
    ] = ()
    fstab: Annotated[
        str | None,
        "Its spelling in fstab where that is not NAME={value}; empty: fstab cannot say it.",
    ] = None
    environment: Annotated[Name | None, "The environment variable that sets it."] = None
    file: Annotated[Sentence | None, "Its key in the configuration file."] = None
    since: Annotated[Version | None, "The first version of the server that has it."] = None
    until: Annotated[Version | None, "The last version of the server that has it."] = None
    kernel: Annotated[Version | None, "The least version of the kernel."] = None
    library: Annotated[Sequence[Library], "Only servers on one of these libraries have it."] = ()
    root: Annotated[bool, "true: only a server that runs as root can use it."] = False
    needs: Annotated[
        Sequence[Setting],
        "Options of this recipe that are proposed together with it, as NAME=VALUE|VALUE: the "
        "first value is proposed, the others will do.",
    ] = ()
    excludes: Annotated[
        Sequence[Setting], "Options of this recipe, or values of them, that it does not go with."
    ] = ()
    condition: Annotated[
        Sentence | None, "When it is right, in one sentence that is true or not."
    ] = None
    otherwise: Annotated[Sentence | None, "What happens where the condition does not hold."] = None

    @property
    def usual(self) -> str | None:
        """Its value if it is not given, None if that is not known."""
        return self.default or ("false" if self.flag else None)


@dataclass(frozen=True)
class Bad:
    """An option that hurts, or does nothing, where it is set."""

    option: Annotated[Name, "Its name."]
    kind: Annotated[str, "Whether it hurts or does nothing.", Rule(enum=["harmful", "useless"])]
    because: Annotated[Sentence, "Why."]
    instead: Annotated[Sentence, "What to do."]
    source: Annotated[Sentence, "Where these facts come from."]
    command: Annotated[
        str | None,
        "Its spelling on the command line, as of an option; empty: only the configuration file can "
        "say it.",
    ] = None
    value: Annotated[Sentence | None, "Only this value is meant."] = None
    below: Annotated[int | None, "Only smaller numbers are meant."] = None
    above: Annotated[int | None, "Only greater numbers are meant."] = None
    to: Annotated[Sentence | None, "The value to propose; left out: the option is left out."] = None
    file: Annotated[Sentence | None, "Its key in the configuration file."] = None
    workloads: Annotated[Sequence[Workload], "The workloads that suffer; left out: all."] = ()
    class_: Annotated[
        str, "Whether the change is always right.", Rule(enum=["safe", "conditional"])
    ] = "safe"
    condition: Annotated[Sentence | None, "When the change is right."] = None
    otherwise: Annotated[Sentence | None, "What happens where that does not hold."] = None


@dataclass(frozen=True)
class ByModule:
    """A mount option of the module fusetuned that is of use to this server.

    It is proposed only on a host with the module, for servers that run as root.
    """

    option: Annotated[str, "Its name in fusetuned(4).", Rule(enum=list(MODULE_OPTIONS))]
    source: Annotated[Sentence, "Where it is said that the server lacks this."]
    about: Annotated[Sentence | None, "What it brings here; left out: as fusetuned(4) has it."] = (
        None
    )
    propose: Annotated[
        str | None,
        "The value to propose, of an option that takes one.",
        Rule(pattern="^[0-9]+$"),
    ] = None
    own: Annotated[
        Sequence[Name],
        "Options of this recipe that do the same. The module's is proposed only where the server "
        "has none of them: it is too old, or built on another library.",
    ] = ()
    workloads: Annotated[
        Sequence[Workload], "The workloads of fusetune that gain; left out: all."
    ] = ()
    slows: Annotated[Sequence[Workload], "The workloads of fusetune that it slows down."] = ()
    library: Annotated[Sequence[Library], "Only servers on one of these libraries lack it."] = ()
    excludes: Annotated[
        Sequence[Setting], "Options of this recipe, or values of them, that it does not go with."
    ] = ()
    class_: Annotated[
        str | None,
        "As of an option; left out: as fusetuned(4) has it, with its condition.",
        Rule(enum=["safe", "conditional", "unsafe"]),
    ] = None
    condition: Annotated[Sentence | None, "When it is right here; with class."] = None
    otherwise: Annotated[Sentence | None, "What happens where that does not hold."] = None


@dataclass(frozen=True)
class Recipe:
    """What fusetune knows about one kind of FUSE server."""

    schema: Annotated[str, "Name and version of this format.", Rule(enum=[SCHEMA])]
    name: Annotated[str, "The file's name without .toml.", Rule(pattern="^[a-z0-9][a-z0-9_.-]*$")]
    about: Annotated[Sentence, "What the server does."]
    server: Annotated[ServerFacts, "How the server is known, and how it takes options."]
    option: Annotated[
        Sequence[Option], "The options that bear on speed, in the order of proposal."
    ] = ()
    bad: Annotated[Sequence[Bad], "Options that hurt or do nothing."] = ()
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
