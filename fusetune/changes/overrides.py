# SPDX-License-Identifier: GPL-2.0-or-later
"""Values that the administrator set after fusetune; noted for the lifetime of the mount."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from fusetune.changes.journal import key_of
from fusetune.changes.state import values_now
from fusetune.errors import FusetuneError, as_root, reason
from fusetune.files import remove
from fusetune.host import Host
from fusetune.mounts.mount import Mount


def overrides_path(host: Host, mount: Mount) -> Path:
    return host.run_dir / f"{key_of(mount)}.left"


def read_overrides(path: Path) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        values, times = dict(fields["values"]), dict(fields.get("times", {}))
        if not all(type(number) is int for number in (*values.values(), *times.values())):
            raise TypeError("a value must be a number")
        return {"instance": fields["instance"], "values": values, "times": times}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {
            "instance": -1,
            "values": {},
            "times": {},
        }  # torn by a crash: at worst, a message is repeated


def overrides(host: Host, mount: Mount) -> dict[str, int]:
    """Return the noted values of the administrator, by knob."""
    return _noted(host, mount, "values")


def set_again(host: Host, mount: Mount) -> dict[str, int]:
    """Return, by knob, how often `apply` found it changed by others."""
    return _noted(host, mount, "times")


def _noted(host: Host, mount: Mount, what: str) -> dict[str, int]:
    """Return a part of the note by knob, empty if the note is of another mount with this bdi."""
    about = read_overrides(overrides_path(host, mount))
    found: dict[str, int] = about[what] if about["instance"] == mount.instance else {}
    return found


def note_overrides(
    host: Host,
    mount: Mount,
    values: Mapping[str, int],
    times: Mapping[str, int] | None = None,
) -> None:
    """Note ``values``, by knob, as the administrator's; without any the note is removed.

    ``times``: see `set_again`, None for no change. Raises FusetuneError.
    """
    path = overrides_path(host, mount)
    times = set_again(host, mount) if times is None else times
    if values or times:
        about = {"instance": mount.instance, "values": dict(values), "times": dict(times)}
        note = json.dumps(about)
        host.make_dir(path.parent)
        try:
            path.write_text(note, encoding="ascii")
        except OSError as error:
            raise FusetuneError(
                f"cannot write {path}: {reason(error)}{as_root(error)}; the values set by others "
                "may be replaced"
            ) from error
    else:
        remove(path)


def note_present(
    host: Host,
    mount: Mount,
    knobs: Collection[str],
    times: Mapping[str, int] | None = None,
) -> None:
    """Note the present values of ``knobs``, by name, in addition to those noted before.

    ``times``: as in `note_overrides`.
    """
    present = {name: value for name, value in values_now(host, mount).items() if name in knobs}
    note_overrides(host, mount, overrides(host, mount) | present, times)
