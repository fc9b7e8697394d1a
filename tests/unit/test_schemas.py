# SPDX-License-Identifier: GPL-2.0-or-later
"""Each object that fusetune prints matches its schema, and the schemas describe all of it."""

import json
from typing import Any

import jsonschema
import pytest

from fusetune.knobs import LIVE
from tests import schemas
from tests.unit.sample_documents import NAMES, SERVED, all_documents, named, odd_paths


@odd_paths
def test_objects_are_as_their_schemas_say(path: str) -> None:
    seen = set()
    for document in all_documents(named(path)):
        again = json.loads(document.as_json())
        assert again == schemas.check(document)
        seen.add(again["schema"])
    assert seen == {f"fusetune.{command}/1" for command in NAMES}


def test_there_is_a_schema_for_every_object() -> None:
    files = {file.stem for file in schemas.DIRECTORY.glob("*.json")}
    assert files == {*NAMES, "recipe"}  # which is read, and printed by no command


@pytest.mark.parametrize("command", NAMES)
def test_a_schema_is_one_and_says_what_it_is(command: str) -> None:
    document = schemas.schema(command)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$id"] == f"urn:fusetune:schema:{command}:1"
    assert document["properties"]["schema"]["const"] == f"fusetune.{command}/1"


def fields(node: Any) -> Any:
    """Every schema of a field or an item, however deep."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "properties":
                yield from value.values()
            if key in ("items", "additionalProperties") and isinstance(value, dict):
                yield value
            yield from fields(value)
    elif isinstance(node, list):
        for value in node:
            yield from fields(value)


def described(field: dict[str, Any], document: dict[str, Any]) -> str | None:
    """The description of a field, or of the shape that it refers to."""
    shape = document["$defs"].get(field.get("$ref", "").rpartition("/")[2], {})
    text: str | None = field.get("description") or shape.get("description")
    return text


@pytest.mark.parametrize("command", NAMES)
def test_every_field_is_described_and_bounded(command: str) -> None:
    document = schemas.schema(command)
    for field in fields(document):
        kinds = field.get("type", [])
        if "number" in kinds or "integer" in kinds:
            assert "minimum" in field or "exclusiveMinimum" in field
        if "object" in kinds:
            assert "additionalProperties" in field
        if "array" in kinds:
            assert "items" in field
        assert described(field, document) or kinds == "number", field


@pytest.mark.parametrize("command", ["list", "auto"])
def test_the_schemas_name_every_live_knob(command: str) -> None:
    document = schemas.schema(command)
    knobs = document["$defs"]["KnobValues"]["properties"]
    assert set(knobs) == {knob.name for knob in LIVE}
    for knob in LIVE:
        # The kernel accepts 0 as max_background, but fusetune does not set it.
        low = 0 if knob.name == "max_background" else knob.low
        assert knobs[knob.name]["minimum"] == low
        # max_background shows as UINT_MAX once the connection is aborted.
        top = 0xFFFFFFFF if knob.name == "max_background" else knob.high
        assert knobs[knob.name].get("maximum") == top


@pytest.mark.slow
def test_schemas_are_strict() -> None:
    """In every object, each field that is missing, added, or of another type is detected."""
    for document in all_documents(SERVED):
        for change in (_without_one, _with_one_more, _with_another_type):
            for spoiled in change(document.as_object()):
                with pytest.raises((jsonschema.ValidationError, KeyError, AttributeError)):
                    schemas.validate(spoiled)


def _without_one(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [{key: document[key] for key in document if key != left} for left in document]


def _with_one_more(document: dict[str, Any]) -> list[dict[str, Any]]:
    spoiled = [document | {"more": 1}]
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            spoiled.append(document | {key: [value[0] | {"more": 1}]})
    return spoiled


def _with_another_type(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document | {key: object()} for key in document]
