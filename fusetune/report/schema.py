# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON Schema of a document, made from its class.

Every field is required and no other is allowed. Each dataclass, and each shape that a function
returns, stands in ``$defs`` once.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from fusetune.report.documents.base import Document

Schema = dict[str, Any]
_SCALARS = {bool: "boolean", int: "integer", float: "number", str: "string", NoneType: "null"}


def schema_of(document: type[Document]) -> Schema:
    """Return the JSON Schema of a document."""
    shapes: dict[str, Schema] = {}
    name = f"fusetune.{document.SCHEMA}/1"
    body = _object(document, shapes)
    first = {"schema": {"description": "Name and version of this format.", "const": name}}
    commands = ", ".join(f"fusetune {command} --json" for command in document.COMMANDS)
    return {
        "$comment": "SPDX-License-Identifier: GPL-2.0-or-later; made by 'make docs'",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fusetune:schema:{document.SCHEMA}:1",
        "title": commands,
        **body,
        "properties": first | body["properties"],
        "required": ["schema", *body["required"]],
        "$defs": dict(sorted(shapes.items())),
    }


def _object(one: type, shapes: dict[str, Schema]) -> Schema:
    hints = get_type_hints(one, include_extras=True)
    properties = {field.name: _field(hints[field.name], shapes) for field in fields(one)}
    return {
        "description": inspect.cleandoc(one.__doc__ or ""),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _field(hint: Any, shapes: dict[str, Schema]) -> Schema:
    """Return the schema of an annotated type; what is annotated later counts more."""
    extras: Sequence[Any] = ()
    if get_origin(hint) is Annotated:
        hint, *extras = get_args(hint)
    found: Schema = {}
    if functions := [extra for extra in extras if callable(extra)]:
        (shape,) = functions
        name = shape.__name__.title().replace("_", "")
        shapes[name] = shape()
        found = {"$ref": f"#/$defs/{name}"}
    else:
        found = _type(hint, shapes)
    for extra in extras:
        if isinstance(extra, str):
            found |= {"description": extra}
        elif isinstance(extra, dict):
            found |= extra
    if None in _members(hint) and "enum" in found:
        found |= {"enum": [*found["enum"], None]}
    return dict(sorted(found.items(), key=lambda item: item[0] != "description"))


def _members(hint: Any) -> list[Any]:
    """Return the types of a union, None for the type of None."""
    union = get_origin(hint) in (Union, UnionType)
    return [None if one is NoneType else one for one in get_args(hint)] if union else []


def _type(hint: Any, shapes: dict[str, Schema]) -> Schema:
    if members := _members(hint):
        (one,) = (member for member in members if member is not None)
        return _nullable(_field(one, shapes))
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in shapes:
            shapes[hint.__name__] = {}  # before those within
            shapes[hint.__name__] = _object(hint, shapes)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    args = get_args(hint)
    if get_origin(hint) is Mapping:
        return {"type": "object", "additionalProperties": _field(args[1], shapes)}
    if get_origin(hint) is Sequence:
        return {"type": "array", "items": _field(args[0], shapes)}
    raise TypeError(f"no JSON Schema for {hint!r}")


def _nullable(schema: Schema) -> Schema:
    if "$ref" in schema:
        other = {key: value for key, value in schema.items() if key != "$ref"}
        return {"anyOf": [{"$ref": schema["$ref"]}, {"type": "null"}], **other}
    return schema | {"type": [schema["type"], "null"]}
