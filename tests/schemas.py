# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON Schemas of every command's object, and the check against them."""

import json
from pathlib import Path
from typing import Any

import jsonschema

from fusetune.report.documents.base import Document

DIRECTORY = Path(__file__).resolve().parents[1] / "docs" / "schemas"


def schema(command: str) -> dict[str, Any]:
    """The schema of a command's object, such as ``"list"`` or ``"auto-preview"``."""
    document: dict[str, Any] = json.loads(
        (DIRECTORY / f"{command}.json").read_text(encoding="utf-8")
    )
    return document


def check(document: Document) -> dict[str, Any]:
    """Return ``document`` as a JSON object; raise ValidationError if its schema is violated."""
    return validate(document.as_object())


def validate(document: dict[str, Any]) -> dict[str, Any]:
    """Return ``document`` if it matches the schema that it names, else raise ValidationError."""
    name, _, version = document["schema"].partition("/")
    assert version == "1"
    jsonschema.Draft202012Validator(schema(name.removeprefix("fusetune."))).validate(document)
    return document
