# SPDX-License-Identifier: GPL-2.0-or-later
"""Unit files of systemd: where they are, what they set, and drop-ins that change them."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fusetune.host import Host
from fusetune.recipes.edit import text_of
from fusetune.text import unit_word

#: Made from fstab by systemd-fstab-generator(8).
GENERATED = "run/systemd/generator"
#: Made by systemd-run(1); removed when the unit stops.
TRANSIENT = "run/systemd/transient"
#: systemd.unit(5), highest precedence first.
_DIRECTORIES = (
    *("etc/systemd/system.control", "run/systemd/system.control", TRANSIENT),
    *("run/systemd/generator.early", "etc/systemd/system", "etc/systemd/system.attached"),
    *("run/systemd/system", "run/systemd/system.attached", "run/systemd/generator"),
    *("usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"),
    "run/systemd/generator.late",
)
_DROP_IN = "60-fusetune-options.conf"
# An escape that stands for another character than the one after the backslash.
_C_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\[^\\\"' ]")
_TOKEN = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')+""", re.DOTALL)


def mount_unit(path: str) -> str:
    """Return the name of the unit for a mount point (systemd-escape(1), --path)."""
    parts = [part for part in path.split("/") if part]
    escaped = "".join(map(_escaped, enumerate("/".join(parts))))
    return f"{escaped or '-'}.mount"


def _escaped(numbered: tuple[int, str]) -> str:
    number, char = numbered
    if char == "/":
        return "-"
    if re.fullmatch(r"[A-Za-z0-9:_]", char) or (char == "." and number):
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def unit_directories(host: Host) -> list[str]:
    """Return the directories of units, highest precedence first."""
    return [host.path(where) for where in _DIRECTORIES]


def unit_files(host: Host, unit: str) -> list[Path]:
    """Return the file of a unit and its drop-ins, in the order in which systemd reads them."""
    stem, dot, kind = unit.rpartition(".")
    names = [unit]
    if "@" in stem:
        names.append(f"{stem.partition('@')[0]}@{dot}{kind}")
    files = [Path(host.path(f"{where}/{name}")) for name in names for where in _DIRECTORIES]
    main = next((file for file in files if file.is_file()), None)
    if main is None:
        return []
    drop_ins: dict[str, Path] = {}
    for name in names:
        for where in _DIRECTORIES:
            for file in Path(host.path(f"{where}/{name}.d")).glob("*.conf"):
                drop_ins.setdefault(file.name, file)
    return [main, *(drop_ins[name] for name in sorted(drop_ins))]


def assignments(text: str, section: str, key: str) -> Iterator[str]:
    """Yield the values of a key in a section of a unit file; continued lines are joined."""
    here, joined = "", ""
    for line in text.split("\n"):
        bare = line.strip()
        if bare.startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        bare, joined = (joined + line).strip(), ""
        if bare.startswith("["):
            here = bare
        name, equals, value = bare.partition("=")
        if here == f"[{section}]" and equals and name.strip() == key:
            yield value.strip()


def value_of(files: list[Path], section: str, key: str) -> list[str]:
    """Return the accumulated values of a key over files; an empty value resets the list."""
    found: list[str] = []
    for file in files:
        for value in assignments(text_of(file) or "", section, key):
            found = [*found, value] if value else []
    return found


def drop_in(host: Host, unit: str) -> Path:
    """Return the path of our drop-in for a unit."""
    return Path(host.path(f"etc/systemd/system/{unit}.d/{_DROP_IN}"))


def later_drop_in(
    host: Host, unit: str, section: str, key: str, ours: str = _DROP_IN
) -> Path | None:
    """Return a drop-in that sets a key and that systemd reads after ours, None without one."""
    for file in unit_files(host, unit)[1:]:
        if file.name > ours and list(assignments(text_of(file) or "", section, key)):
            return file
    return None


def command_words(value: str) -> list[tuple[str, str]]:
    """Return the words of ExecStart=, each with its original text.

    Specifiers and variables are not expanded. Empty if the quoting is invalid, if there are C
    escapes, which would have to be written again as well, or if the second word is argv[0] (``@``).
    """
    if _C_ESCAPE.search(value) or re.match(r"[-:+!|]*@", value):
        return []
    try:
        return [(shlex.split(text)[0], text) for text in _TOKEN.findall(value)]
    except ValueError:
        return []


def command_text(words: list[str], written: Mapping[str, str]) -> str:
    """Return words for ExecStart=; those in ``written`` keep their original text."""
    return " ".join(written.get(word) or unit_word(word) for word in words)


def merged(before: str, section: str, lines: Sequence[str]) -> str:
    """Return the text of a one-section drop-in with assignments replaced.

    The variable name of Environment= is part of its key.
    """
    set_now = {_key(line) for line in lines}
    kept = [one for one in before.splitlines() if not one or _key(one) not in set_now]
    head = [] if f"[{section}]" in kept else [f"[{section}]"]
    return "".join(f"{line}\n" for line in (*kept, *head, *lines))


def _key(line: str) -> str:
    parts = line.split("=", 2)
    return "=".join(parts[:2]) if parts[0] == "Environment" else parts[0]
