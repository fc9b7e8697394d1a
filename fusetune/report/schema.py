# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON Schema of a document, made from its class. Every field is required."""

from fusetune.report.documents.base import Document
from fusetune.schema import Schema, object_schema


def schema_of(document: type[Document]) -> Schema:
    """Return the JSON Schema of a document."""
    shapes: dict[str, Schema] = {}
    name = f"fusetune.{document.SCHEMA}/1"
    body = object_schema(document, shapes)
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
