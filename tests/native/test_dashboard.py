# SPDX-License-Identifier: GPL-2.0-or-later
"""The dashboard beside Grafana's own schema, of which its SDK has made Python classes.

Reading a dashboard into them drops what the schema does not have, and keeps values of other types.
"""

import enum
import json
import typing
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from tests.monitoring import DASHBOARD
from tests.native.mirror import CHECKOUT

SDK = next((CHECKOUT / "build" / "venv").glob("lib/*/site-packages/grafana_foundation_sdk"), None)
pytestmark = pytest.mark.skipif(not SDK, reason="missing: Grafana's SDK in build/venv (make lint)")

_Place = tuple[str | int, ...]


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The SDK's module of dashboards; it knows the panels and the queries of Grafana's plugins."""
    assert SDK
    monkeypatch.syspath_prepend(str(SDK.parent))
    import_module("grafana_foundation_sdk.cog.plugins").register_default_plugins()
    return import_module("grafana_foundation_sdk.models.dashboard")


@pytest.fixture
def dashboard() -> dict[str, Any]:
    """The dashboard as JSON has it."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def places(found: Any, at: _Place = ()) -> Iterator[_Place]:
    """Yield the place of everything in objects and lists."""
    for key, one in found.items() if isinstance(found, dict) else enumerate(found):
        yield (*at, key)
        if isinstance(one, (dict, list)):
            yield from places(one, (*at, key))


def unknown(sdk: Any, dashboard: dict[str, Any]) -> list[_Place]:
    """Return what the schema does not have."""
    encoder = import_module("grafana_foundation_sdk.cog.encoder").JSONEncoder()
    known = {*places(json.loads(encoder.encode(sdk.Dashboard.from_json(dashboard))))}
    return [place for place in places(dashboard) if place not in known]


def fits(one: Any, hint: Any) -> bool:
    """Whether a value, with all that is in it, is what the classes say."""
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Union:
        return any(fits(one, part) for part in parts)
    if kind in (list, dict):
        inner = one.values() if isinstance(one, dict) else one
        return isinstance(one, kind) and all(fits(each, parts[-1]) for each in inner)
    if hint is object or isinstance(hint, typing.TypeVar):
        return well_formed(one)
    if isinstance(one, dict) and hasattr(hint, "from_json"):
        one = hint.from_json(one)
    if kind is typing.Literal or issubclass(hint, enum.Enum):
        return one in (parts or list(hint))
    if hint in (str, bool, int, float, type(None)):
        return type(one) is hint or (hint is float and type(one) is int)
    return isinstance(one, hint) and well_formed(one)


def well_formed(one: Any) -> bool:
    """Whether the attributes of an object of the SDK's are of their types."""
    if not hasattr(one, "from_json"):
        return True
    hints = typing.get_type_hints(type(one))
    return all(fits(each, hints[name]) for name, each in vars(one).items() if name in hints)


def test_grafana_knows_all_of_it(sdk: Any, dashboard: dict[str, Any]) -> None:
    assert len({*places(dashboard)}) > 500
    assert unknown(sdk, dashboard) == []
    assert well_formed(sdk.Dashboard.from_json(dashboard))


def holder(dashboard: Any, place: _Place) -> Any:
    """Return what holds the last key of a place."""
    for key in place[:-1]:
        dashboard = dashboard[key]
    return dashboard


@pytest.mark.parametrize(
    "place",
    [
        ("title",),
        ("panels", 0, "gridPos"),
        ("panels", 0, "targets", 0, "expr"),
        ("panels", 0, "options", "colorMode"),
        ("panels", 0, "fieldConfig", "defaults", "unit"),
        ("templating", "list", 1, "includeAll"),
    ],
)
def test_what_is_misspelt_is_found(sdk: Any, dashboard: dict[str, Any], place: _Place) -> None:
    one, key = holder(dashboard, place), place[-1]
    one[f"{key}s"] = one.pop(key)
    assert (*place[:-1], f"{key}s") in unknown(sdk, dashboard)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("schemaVersion",), "36"),
        (("graphTooltip",), 7),
        (("panels", 0, "gridPos", "h"), "8"),
        (("templating", "list", 0, "type"), "metrics"),
        (("templating", "list", 1, "refresh"), "on load"),
        (("tags",), ["fuse", 1]),
    ],
)
def test_a_value_of_another_type_is_found(
    sdk: Any, dashboard: dict[str, Any], place: _Place, value: object
) -> None:
    holder(dashboard, place)[place[-1]] = value
    assert not well_formed(sdk.Dashboard.from_json(dashboard))
