# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON object of every command: what the text is made from, too.

Field names and units are a contract: docs/schemas holds each object's JSON Schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fusetune.changes.policy import excluded_reason
from fusetune.changes.state import KnobState
from fusetune.knobs import REMOUNT

if TYPE_CHECKING:  # 'list' must not load the search
    from pathlib import Path

    from fusetune.bench.intervals import Interval
    from fusetune.bench.measure import Figure, Measurement
    from fusetune.bench.papers.run import PaperResult
    from fusetune.bench.workloads import Workload
    from fusetune.changes.apply import Change
    from fusetune.desired.drift import Check, Verified
    from fusetune.desired.persist import Remembered
    from fusetune.desired.resolve import Expected
    from fusetune.desired.results import Saved
    from fusetune.desired.sections import Origin
    from fusetune.desired.sysctl import Line
    from fusetune.kmod.state import Loaded, Report, State
    from fusetune.libfuse.switch import FileChange
    from fusetune.libfuse.users import Server
    from fusetune.mounts.mount import Mount
    from fusetune.report.doctor import Diagnosis
    from fusetune.report.inventory import InventoriedMount, Inventory
    from fusetune.source_age import Age, Source
    from fusetune.tuner.auto import Candidates, Outcome


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


def _source(source: Source | None) -> Object | None:
    if source is None:
        return None
    return {
        "version": source.version,
        "package": source.package,
        "package_version": source.package_version,
    }


def _age(age: Age) -> Object:
    return {
        "name": age.name,
        "source": _source(age.source),
        "current": _source(age.current),
        "releases_behind": age.behind,
        "older": age.older,
        "summary": age.summary,
    }


def list_object(mounts: Sequence[tuple[Mount, Mapping[str, int], bool]]) -> Object:
    """Return ``list``'s object for mounts, their live values, and whether they are tuned."""
    return _schema("list") | {
        "mounts": [
            _mount(mount)
            | {
                "also_at": list(mount.also_at),
                "connection": mount.connection,
                "owner_uid": mount.owner_uid,
                "knobs": dict(values),
                "tuned": tuned,
                "excluded_reason": excluded_reason(mount),
            }
            for mount, values, tuned in mounts
        ]
    }


def _saved(saved: Saved | None) -> Object | None:
    if saved is None:
        return None
    return {
        "knobs": saved.values,
        "by": saved.by,
        "time_seconds": saved.time,
        "gain_ratio": saved.gain,
        "ci95": list(saved.ci95) if saved.ci95 else None,
    }


def show_object(
    mount: Mount | None,
    states: Sequence[KnobState],
    saved: Saved | None,
    expected: Mapping[str, Expected],
    init: Mapping[str, str] | None = None,
) -> Object:
    """Return ``show``'s object for a mount, or for the host where ``mount`` is None.

    ``init``: what INIT settled on, as far as it can be told.
    """
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
            | _kept(expected.get(state.knob.name))
            for state in states
        ],
        "needs_remount": [
            {
                "name": knob.name,
                "summary": knob.summary,
                "remedy": knob.remedy_on(mount),
                "risk": knob.risk,
                "source": knob.source,
            }
            for knob in (REMOUNT if mount else ())
        ],
        "init": _init(init or {}),
        "saved": _saved(saved),
    }


def _init(settled: Mapping[str, str]) -> Object | None:
    if not settled:
        return None
    numbers = {name: int(text) for name, text in settled.items() if text.isdigit()}
    return numbers | {"flags": settled.get("flags", "").split()}


def changes_object(command: str, changes: Sequence[Change | Line], dry_run: bool) -> Object:
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


def kept_object(command: str, remembered: Sequence[Remembered], dry_run: bool) -> Object:
    """Return the object of ``save`` and ``forget``: every file, what it keeps before and after."""
    return _schema(command) | {
        "dry_run": dry_run,
        "files": [
            {"file": str(one.file), "before": one.before, "after": one.after} for one in remembered
        ],
    }


def _check(check: Check) -> Object:
    return {
        "name": check.state.knob.name,
        "unit": check.state.knob.unit,
        "expected": check.expected.value,
        "actual": check.state.value,
        "origin": _origin(check.expected.origin),
        "differs": check.differs,
        "refused_reason": check.expected.refused,
        "absent_reason": check.state.absent,
        "set_by": check.state.set_by,
        "last_write": {
            "value": check.last.new,
            "why": check.last.why,
            "time_seconds": check.last.time,
        }
        if check.last
        else None,
    }


def _kept(expected: Expected | None) -> Object:
    return {
        "expected": expected.value if expected else None,
        "origin": _origin(expected.origin) if expected else None,
    }


def _origin(origin: Origin) -> Object:
    return {"file": str(origin.file), "line": origin.line}


def verify_object(verified: Sequence[Verified], ages: Sequence[Age] = ()) -> Object:
    """Return ``verify``'s object; ``ages``: how old our copies of others' code are."""
    return _schema("verify") | {
        "differences": sum(check.differs for one in verified for check in one.checks),
        "problems": [one.problem for one in verified if one.problem],
        "sources": [_age(age) for age in ages],
        "mounts": [
            _mount(one.mount)
            | {
                "left_alone_reason": one.left_alone,
                "knobs": [_check(check) for check in one.checks],
            }
            for one in verified
        ],
    }


def _surveyed(one: InventoriedMount) -> Object:
    knobs = []
    for state in one.states:
        expected = one.expected.get(state.knob.name)
        knobs.append(
            {
                "name": state.knob.name,
                "unit": state.knob.unit,
                "stock": state.knob.stock,
                "value": state.value,
                "absent_reason": state.absent,
                "set_by": state.set_by,
                "refused_reason": expected.refused if expected else None,
                "differs": state.knob.name in one.differing,
            }
            | _kept(expected)
        )
    return _mount(one.mount) | {
        "owner_uid": one.mount.owner_uid,
        "waiting": one.waiting,
        "left_alone_reason": one.left_alone,
        "saved": _saved(one.saved),
        "knobs": knobs,
    }


def report_object(survey: Inventory) -> Object:
    """Return ``report``'s object."""
    mounts = [_surveyed(one) for one in survey.mounts]
    diagnosis = doctor_object(survey.diagnosis)
    return _schema("report") | {
        "host": {
            "kernel": survey.kernel,
            "machine": survey.machine,
            "cores": survey.cores,
            "memory_bytes": survey.memory_bytes,
            "modules": [
                {"name": module.name, "built_in": module.built_in, "version": module.version}
                for module in survey.modules
            ],
            "libfuse_versions": survey.libfuse,
            "sources": diagnosis["sources"],
        },
        "mounts": mounts,
        "differences": sum(knob["differs"] for mount in mounts for knob in mount["knobs"]),
        "problems": survey.problems,
        "dirty_percent": diagnosis["dirty_percent"],
        "max_dirty_percent": diagnosis["max_dirty_percent"],
        "mounts_elsewhere": diagnosis["mounts_elsewhere"],
        "findings": diagnosis["findings"],
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


def suite_object(results: Sequence[PaperResult]) -> Object:
    """Return the object of ``bench --suite``: one entry of ``works`` for each work."""
    return _schema("bench-suite") | {
        "works": [
            {
                "name": result.work.name,
                "title": result.work.title,
                "stands_for": result.work.stands_for,
                "rows": [
                    {
                        "label": row.ratio.label,
                        "published_ratio": row.ratio.published,
                        "ratio": row.measured.ratio if row.measured else None,
                        "ci95": [row.measured.low, row.measured.high] if row.measured else None,
                        "absent_reason": row.absent,
                    }
                    for row in result.rows
                ],
                "cost": {
                    "seconds": result.seconds,
                    "bytes_written": result.bytes_written,
                    "evaluations": result.evaluations,
                },
            }
            for result in results
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


def _loaded(module: Loaded | None) -> Object | None:
    if module is None:
        return None
    return {
        "version": module.version,
        "srcversion": module.srcversion,
        "built_in": module.built_in,
    }


def _module(state: State) -> Object:
    return {
        "name": state.kind.name,
        "loaded": _loaded(state.loaded),
        "as_installed": state.as_installed,
        "control_mounted": state.control_mounted,
        "age": _age(state.age) if state.age else None,
        "mounts": list(state.points),
        "sources": list(state.sources),
        "kernels": [
            {
                "kernel": one.kernel,
                "state": one.state,
                "version": one.version,
                "reason": one.reason,
                "log": list(one.log),
                "log_file": one.log_file,
                "source": _source(one.source),
                "source_reason": one.source_reason,
            }
            for one in state.kernels
        ],
        "stock": {
            "name": state.kind.stock,
            "replaced": state.kind.replaces,
            "loaded": _loaded(state.stock),
            "mounts": list(state.stock_points),
        },
    }


def module_object(report: Report, dry_run: bool = False) -> Object:
    """Return the object of ``module status``, ``build``, ``load`` and ``unload``."""
    return _schema("module") | {
        "dry_run": dry_run,
        "commands": [list(command) for command in report.commands],
        "kernel": report.kernel,
        "secure_boot": report.signing.secure_boot,
        "lockdown": report.signing.lockdown,
        "signatures_enforced": report.signing.enforced,
        "enrol": list(report.signing.enrol),
        "modules": [_module(state) for state in report.states],
    }


def lib_status_object(
    directories: Sequence[Path], servers: Sequence[Server], ages: Sequence[Age] = ()
) -> Object:
    """Return ``lib status``'s object; ``ages``: how old the tuned libfuse3 is."""
    return _schema("lib-status") | {
        "folders": [str(directory) for directory in directories],
        "sources": [_age(age) for age in ages],
        "servers": [
            {
                "pid": server.pid,
                "program": server.program,
                "library": server.library,
                "uses": server.uses,
            }
            for server in servers
        ],
    }


def lib_change_object(change: FileChange, dry_run: bool) -> Object:
    """Return the object of ``lib enable`` and ``lib disable``."""
    return _schema("lib-change") | {
        "dry_run": dry_run,
        "file": str(change.path),
        "before": change.before,
        "after": change.after,
        "remedy": change.remedy if change.before != change.after else None,
    }


def doctor_object(diagnosis: Diagnosis) -> Object:
    """Return ``doctor``'s object."""
    return _schema("doctor") | {
        "dirty_percent": diagnosis.dirty_percent,
        "mounts_elsewhere": diagnosis.elsewhere,
        "sources": [_age(age) for age in diagnosis.ages],
        "max_dirty_percent": diagnosis.max_dirty_percent,
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
