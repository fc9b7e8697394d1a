# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON object of every command: what the text is made from, too.

Field names and units are a contract: docs/schemas holds each object's JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusetune.knobs import REMOUNT
from fusetune.policy import excluded_reason
from fusetune.status import KnobState, is_tuned

if TYPE_CHECKING:  # 'list' must not load the search
    from fusetune.apply import Change
    from fusetune.auto import Candidates, Outcome
    from fusetune.doctor import Diagnosis
    from fusetune.measure import Figure, Measurement
    from fusetune.mounts import Mount
    from fusetune.search import Interval
    from fusetune.store import Saved
    from fusetune.workloads import Workload

Object = dict[str, Any]


def _schema(command: str) -> Object:
    return {"schema": f"fusetune.{command}/1"}


def _mount(mount: Mount) -> Object:
    return {
        "path": mount.path,
        "fstype": mount.fstype,
        "source": mount.source,
        "bdi": mount.bdi,
    }


def _interval(interval: Interval) -> Object:
    return {"ratio": interval.ratio, "ci95": [interval.low, interval.high]}


def list_object(mounts: Sequence[tuple[Mount, Mapping[str, int]]]) -> Object:
    """Return ``list``'s object for mounts and their live values."""
    return _schema("list") | {
        "mounts": [
            _mount(mount)
            | {
                "also_at": list(mount.also_at),
                "connection": mount.connection,
                "owner_uid": mount.owner_uid,
                "knobs": dict(values),
                "tuned": is_tuned(dict(values)),
                "excluded_reason": excluded_reason(mount),
            }
            for mount, values in mounts
        ]
    }


def show_object(mount: Mount | None, states: Sequence[KnobState], saved: Saved | None) -> Object:
    """Return ``show``'s object for a mount, or for the host where ``mount`` is None."""
    return _schema("show") | {
        "mount": _mount(mount) if mount else None,
        "knobs": [
            {
                "name": state.knob.name,
                "value": state.value,
                "stock": state.knob.stock,
                "low": state.knob.low,
                "high": state.knob.high,
                "unit": state.knob.unit,
                "scope": str(state.knob.scope),
                "set_by": state.set_by,
                "absent_reason": state.absent,
                "summary": state.knob.summary,
                "risk": state.knob.risk,
                "source": state.knob.source,
            }
            for state in states
        ],
        "needs_remount": [
            {
                "name": knob.name,
                "summary": knob.summary,
                "remedy": knob.remedy,
                "risk": knob.risk,
                "source": knob.source,
            }
            for knob in (REMOUNT if mount else ())
        ],
        "saved": {"knobs": saved.values, "gain_ratio": saved.gain} if saved else None,
    }


def changes_object(command: str, changes: Sequence[Change], dry_run: bool) -> Object:
    """Return the object of ``set`` and ``reset``: every file, its value before and after."""
    return _schema(command) | {
        "dry_run": dry_run,
        "changes": [
            {
                "mount": change.mount.path if change.mount else None,
                "knob": change.knob.name,
                "file": change.file,
                "before": change.old,
                "after": change.new,
            }
            for change in changes
        ],
    }


def auto_object(outcome: Outcome) -> Object:
    """Return ``auto``'s object."""
    choice = outcome.choice
    return _schema("auto") | {
        "mount": _mount(outcome.mount),
        "workloads": [workload.name for workload in outcome.workloads],
        "before": outcome.before,
        "after": outcome.after,
        "gain": _interval(choice.gain),
        "per_workload": [
            {
                "name": workload.name,
                "unit": workload.unit,
                "before": choice.per_workload[workload.name][0],
                "after": choice.per_workload[workload.name][1],
            }
            | _interval(choice.per_workload[workload.name][2])
            for workload in outcome.workloads
            if workload.name in choice.per_workload
        ],
        "trials": [
            {"knobs": trial.setting, "samples": list(trial.samples)} for trial in outcome.trials
        ],
        "cost": {
            "seconds": outcome.seconds,
            "bytes_written": outcome.bytes_written,
            "evaluations": outcome.evaluations,
        },
        "applied": choice.changed,
        "saved": choice.changed,
        "reasons": outcome.reasons,
    }


def _figure(figure: Figure) -> Object:
    return {
        "name": figure.workload.name,
        "unit": figure.workload.unit,
        "figure": figure.mean,
        "ci95": [figure.low, figure.high],
        "samples": list(figure.samples),
    }


def bench_object(series: Sequence[Measurement]) -> Object:
    """Return ``bench``'s object: one entry of ``series`` for each thing measured."""
    return _schema("bench") | {
        "series": [
            {
                "label": measurement.label,
                "mount": _mount(measurement.mount) if measurement.mount else None,
                "absent_reason": measurement.absent,
                "workloads": [_figure(figure) for figure in measurement.figures],
                "cost": {
                    "seconds": measurement.seconds,
                    "bytes_written": measurement.bytes_written,
                    "evaluations": measurement.evaluations,
                },
            }
            for measurement in series
        ]
    }


def preview_object(
    mount: Mount, workloads: Sequence[Workload], candidates: Sequence[Candidates]
) -> Object:
    """Return the object of ``auto --dry-run``: the files it would write, and values to try."""
    return _schema("auto-preview") | {
        "mount": _mount(mount),
        "workloads": [workload.name for workload in workloads],
        "knobs": [
            {"knob": c.knob, "file": c.file, "before": c.now, "candidates": list(c.values)}
            for c in candidates
        ],
    }


def doctor_object(diagnosis: Diagnosis) -> Object:
    """Return ``doctor``'s object."""
    return _schema("doctor") | {
        "features": [
            {
                "name": feature.knob.name,
                "value": feature.value,
                "unit": feature.knob.unit,
                "absent_reason": feature.absent,
            }
            for feature in diagnosis.features
        ],
        "findings": [
            {
                "name": finding.name,
                "mount": finding.mount.path if finding.mount else None,
                "what": finding.what,
                "remedy": finding.remedy,
            }
            for finding in diagnosis.findings
        ],
    }
