# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that the administrator set after fusetune did; noted as long as the mount lives."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusetune.changes.journal import key_of
from fusetune.host import Host
from fusetune.mounts.mount import Mount


def overrides_path(host: Host, mount: Mount) -> Path:
    return host.run_dir / f"{key_of(mount)}.left"


def read_overrides(path: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        return {"instance": fields["instance"], "values": dict(fields["values"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {
            "instance": -1,
            "values": {},
        }  # torn by a crash: the message is repeated once, no more


def overrides(host: Host, mount: Mount) -> dict[str, int]:
    """Return the noted values of the administrator, by knob."""
    about = read_overrides(overrides_path(host, mount))
    values: dict[str, int] = about["values"] if about["instance"] == mount.instance else {}
    return values


def note_overrides(host: Host, mount: Mount, values: Mapping[str, int]) -> None:
    """Note ``values``, by knob, as the administrator's; an empty mapping removes the note."""
    path = overrides_path(host, mount)
    if values:
        note = json.dumps({"instance": mount.instance, "values": dict(values)})
        host.make_dir(path.parent)
        path.write_text(note, encoding="ascii")
    else:
        path.unlink(missing_ok=True)
