# SPDX-License-Identifier: GPL-2.0-or-later
"""A page in Markdown on each kind of server, from its recipe."""

import html
from collections.abc import Iterator, Sequence

from docs.markup import sentence
from fusetune.kmod.options import OPTIONS as MODULE_OPTIONS
from fusetune.recipes.load import SHIPPED
from fusetune.recipes.recipe import Bad, ByModule, Option, Recipe

_SERVERS = {file.stem for file in SHIPPED.glob("*.toml")}
_CLASSES = {
    "safe": "Safe: no program can see a difference.",
    "conditional": "Right only if {}; otherwise {}.",
    "unsafe": "Unsafe unless {}; otherwise {}.",
}
_PROOFS = {"tried": "Tried on this server", "read": "Not tried here; read in"}
_SECOND = {
    "yes": "can measure these options on a second instance of the server",
    "read-only": "can measure these options on a second instance that only reads",
    "no": "cannot measure these options",
}


def server_page(recipe: Recipe) -> str:
    """Return the page: how the server is recognised, and each option that affects speed."""
    return "\n".join(_parts(recipe))


def _parts(recipe: Recipe) -> Iterator[str]:
    server = recipe.server
    yield f"# {recipe.name}\n"
    yield f"{_plain(recipe.about)}\n"
    known = ", ".join(f"`{word}`" for word in dict.fromkeys([*server.fstype, *server.program]))
    package = f" Debian has it in the package `{server.package}`." if server.package else ""
    yield f"fusetune recognises it by its type or program: {known}.{package}\n"
    if server.fuse_because:
        yield f"{_plain(server.fuse_because)}\n"
    yield "    # fusetune advise /mnt/x\n    # fusetune auto /mnt/x --try-options\n"
    why = _escaped(server.second_because)
    yield f"`auto --try-options` {_SECOND[server.second]}: {why}.\n"
    yield from _section("Options that make it faster", [_option(one) for one in recipe.option])
    yield from _section("Options that hurt or have no effect", [_bad(one) for one in recipe.bad])
    yield from _section("By the module fusetuned", [_by_module(one) for one in recipe.module])
    yield f"Facts about the server are from {_escaped(server.source)}.\n"


def _section(title: str, entries: Sequence[str]) -> Iterator[str]:
    if entries:
        yield f"## {title}\n"
        yield from entries


def _option(one: Option) -> str:
    """Return the paragraphs on an option; one that is only named has no value."""
    shown = one.name if one.propose in (None, "true") else f"{one.name}={one.propose}"
    text = [_plain(one.about), _verdict(one.class_, one.condition, one.otherwise)]
    if one.workloads:
        text.append(f"It affects {_names(one.workloads)}.")
    if one.slows:
        text.append(f"It slows down {_names(one.slows)}.")
    bounds = [
        f"{word} version {version}"
        for word, version in (("From", one.since), ("up to", one.until))
        if version
    ]
    if bounds:
        text.append(_plain(" ".join(bounds)))
    if one.kernel:
        text.append(f"It needs Linux {one.kernel}.")
    source = _escaped(one.source)
    text.append(f"{_PROOFS[one.proof]}{'; see' if one.proof == 'tried' else ''} {source}.")
    return f"### `{shown}`\n\n{' '.join(text)}\n"


def _bad(one: Bad) -> str:
    shown = one.option if one.value is None else f"{one.option}={one.value}"
    limits = [
        f" {word} {number}"
        for word, number in (("below", one.below), ("above", one.above))
        if number is not None
    ]
    kind = "Harmful" if one.kind == "harmful" else "Useless"
    instead = f"Instead: {_escaped(one.instead)}."
    return (
        f"### `{shown}`{' or'.join(limits)}\n\n{kind}: {_escaped(one.because)}. {instead} See "
        f"{_escaped(one.source)}.\n"
    )


def _by_module(one: ByModule) -> str:
    """Return the paragraphs on an option of the module, as the recipe or fusetuned(4) has it."""
    general = MODULE_OPTIONS[one.option]
    shown = one.option if one.propose is None else f"{one.option}={one.propose}"
    condition, otherwise = one.condition or general.condition, one.otherwise or general.otherwise
    verdict = _verdict(one.class_ or general.class_, condition, otherwise)
    source = _escaped(one.source)
    return f"### `{shown}`\n\n{_plain(one.about or general.about)} {verdict} See {source}.\n"


def _verdict(class_: str, condition: str | None, otherwise: str | None) -> str:
    return _CLASSES[class_].format(_escaped(condition or ""), _escaped(otherwise or ""))


def _names(words: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _plain(text: str) -> str:
    """Return a sentence; a server's name at its beginning stays as it is."""
    if text.partition(" ")[0] in _SERVERS:
        return _escaped(f"{text.removesuffix('.')}.")
    return _escaped(sentence(text))


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)
