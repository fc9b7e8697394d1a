#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Tune one FUSE mount."""

DOCUMENTATION = r"""
---
module: fusetune_mount
short_description: Tune a FUSE mount
version_added: 1.0.0
description:
  - Sets and keeps values of a FUSE mount, measures which are best, imports those that another host
    exported, or restores the values from before.
  - In check mode nothing is measured and nothing is written.
options:
  path:
    description: The mount point, or the mount's bdi.
    type: str
    required: true
  state:
    description:
      - C(present) sets O(knobs) and keeps them for later mounts. It fails if the host's
        configuration has other values for the mount, because these take precedence.
      - C(tuned) measures with C(fusetune auto), unless a result of it is kept already, and sets and
        keeps what is proven better.
      - C(imported) imports O(content), and then sets what is kept for the mount.
      - C(applied) sets what is kept for the mount.
      - C(absent) restores the values from before the first change, and keeps none.
    type: str
    choices: [present, tuned, imported, applied, absent]
    default: applied
  knobs:
    description: Values by knob, for C(present).
    type: dict
    default: {}
  workloads:
    description: What to measure, for C(tuned); by default what C(fusetune auto) does.
    type: list
    elements: str
    default: []
  unguarded:
    description: Read workloads that may get worse, for C(tuned), as C(--no-guard) of fusetune auto.
    type: list
    elements: str
    default: []
  budget:
    description: The time that measuring may take, for C(tuned).
    type: str
    default: 60s
  remeasure:
    description: Measure even if a result is kept, for C(tuned).
    type: bool
    default: false
  content:
    description: The text that C(fusetune export) wrote on another host, for C(imported).
    type: str
  signature:
    description: The text of its signature, if it is signed.
    type: str
author:
  - The fusetune developers (@fusetune)
attributes:
  check_mode:
    description: Says what would change, and changes nothing.
    support: full
  diff_mode:
    description: Shows the values before and after.
    support: full
"""

EXAMPLES = r"""
- name: Measure on the canary
  fusetune.fusetune.fusetune_mount:
    path: /mnt/models
    state: tuned
    workloads: [seq-read]
  register: measured

- name: Import the result on another host
  fusetune.fusetune.fusetune_mount:
    path: /mnt/models
    state: imported
    content: "{{ lookup('ansible.builtin.file', 'models.toml') }}"

- name: Restore everything
  fusetune.fusetune.fusetune_mount:
    path: /mnt/models
    state: absent
"""

RETURN = r"""
result:
  description: What the command printed as JSON.
  returned: if a command ran
  type: dict
export:
  description: What is kept for the mount, as C(fusetune export) writes it.
  returned: for C(tuned), if something is kept
  type: str
kept_before:
  description: What was kept before, as C(fusetune export) writes it; empty for nothing.
  returned: for C(imported)
  type: str
"""

import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.fusetune.fusetune.plugins.module_utils.command import FINE, fusetune, run


def present(module: AnsibleModule, path: str) -> dict[str, object]:
    """Set the knobs that differ, and save what is not kept yet."""
    knobs = module.params["knobs"]
    if not knobs:
        module.fail_json(msg="state=present needs knobs")
    words = ["set", path, *(f"{name}={value}" for name, value in sorted(knobs.items()))]
    planned = fusetune(module, *words, "--dry-run")
    wanted = {change["knob"]: change["after"] for change in planned["changes"]}
    rows = {row["name"]: row for row in fusetune(module, "show", path)["knobs"]}
    values = {name: wanted.get(name, rows[name]["value"]) for name in knobs}
    unkept = not all(is_kept(rows[name], value) for name, value in values.items())
    if not module.check_mode:
        if wanted:
            planned = fusetune(module, *words)
        if unkept:
            keep(module, path)
            check_kept(module, path, values)
    return answer(bool(wanted) or unkept, planned)


def is_kept(row: dict[str, Any], value: object) -> bool:
    """Return whether later mounts get a knob's value."""
    if row["expected"] is not None:
        return bool(row["expected"] == value)
    return bool(value == row["stock"] and is_stock(row))


def is_stock(row: dict[str, Any]) -> bool:
    """Return whether a knob has the kernel's default, and the server asked for no other value."""
    return row["value"] in (None, row["stock"]) and row["set_by"] != "fusetune"


def keep(module: AnsibleModule, path: str) -> None:
    """Save the current values, or forget saved ones if these are the kernel's defaults."""
    rows = fusetune(module, "show", path)["knobs"]
    stock = all(is_stock(row) for row in rows if row["stock"] is not None)
    fusetune(module, "forget" if stock else "save", path)


def check_kept(module: AnsibleModule, path: str, values: dict[str, object]) -> None:
    """End the module unless later mounts get these values, which are set and saved."""
    wrong = [
        "{origin[file]}:{origin[line]} sets {name}={expected}, which takes precedence".format(**row)
        if row["origin"]
        else "the configuration leaves the mount alone"
        for row in fusetune(module, "show", path)["knobs"]
        if row["name"] in values and not is_kept(row, values[row["name"]])
    ]
    if wrong:
        why = "; ".join(dict.fromkeys(wrong))
        module.fail_json(msg=f"set, but not for later mounts: {why}", changed=True)


def tuned(module: AnsibleModule, path: str) -> dict[str, object]:
    """Measure, unless a result is kept."""
    params = module.params
    saved = fusetune(module, "show", path)["saved"]
    if saved and saved["by"] == "auto" and not params["remeasure"]:
        return {"changed": False, "export": exported(module, path)}
    words = ["auto", path, "--budget", params["budget"]]
    for workload in params["workloads"]:
        words += ["-w", workload]
    for workload in params["unguarded"]:
        words += ["--no-guard", workload]
    if module.check_mode:
        return {"changed": True, "result": fusetune(module, *words, "--dry-run")}
    found = fusetune(module, *words)
    diff = {"before": found["before"], "after": found["after"]}
    export = exported(module, path)
    return {"changed": found["applied"], "diff": diff, "result": found, "export": export}


def exported(module: AnsibleModule, path: str) -> str:
    """Return what is kept for the mount; empty if nothing is."""
    status, text, _said = run(module, "export", path)
    return "" if status else text


def imported(module: AnsibleModule, path: str) -> dict[str, object]:
    """Take an export, then set what is kept."""
    params = module.params
    if not params["content"]:
        module.fail_json(msg="state=imported needs content")
    file = os.path.join(module.tmpdir, "export.toml")
    for name, text in ((file, params["content"]), (file + ".sig", params["signature"])):
        if text:
            with open(name, "w", encoding="utf-8") as stream:
                stream.write(text)
    kept = exported(module, path)
    found = fusetune(module, "import", file, *dry_run(module), fine=(0, 1))
    refused = [
        f"{one['path']}: {one['why']}" for one in found["results"] if one["action"] == "refused"
    ]
    new = {one["path"]: one["knobs"] for one in found["results"] if one["action"] == "imported"}
    # What was imported stays after a failure, so the caller must be able to restore what was kept.
    imports: dict[str, object] = {"changed": bool(new), "kept_before": kept}
    if found["status"]:
        module.fail_json(msg="refused: " + "; ".join(refused), result=found, **imports)
    if new and module.check_mode:
        return {"changed": True, "diff": {"before": {}, "after": new}, "result": found}
    done = applied_after(module, path, imports)
    done["changed"] = bool(new) or done["changed"]
    done["result"] = found
    done["kept_before"] = kept
    return done


def applied(module: AnsibleModule, path: str) -> dict[str, object]:
    """Set what is kept."""
    return applied_after(module, path, {})


def applied_after(
    module: AnsibleModule, path: str, imports: dict[str, object]
) -> dict[str, object]:
    """Set what is kept; ``imports``: the results of an import before."""
    found = fusetune(module, "apply", path, *dry_run(module), **imports)
    return answer(bool(found["changes"]), found)


def absent(module: AnsibleModule, path: str) -> dict[str, object]:
    """Restore the values from before, and keep none. What is not mounted has only kept ones."""
    status, text, why = run(module, "show", path, "--json")
    if status not in FINE:
        status, text, said = run(module, "forget", path, "--json", *dry_run(module))
        if status not in FINE:
            if said == why:
                return {"changed": False}  # nothing is kept either
            module.fail_json(msg=said.strip(), status=status)
        forgotten = json.loads(text)
        return {"changed": bool(forgotten["files"]), "result": forgotten}
    saved = json.loads(text)["saved"]
    found = fusetune(module, "reset", path, *dry_run(module))
    return answer(bool(found["changes"] or saved), found)


def dry_run(module: AnsibleModule) -> list[str]:
    """Return the option with which a command changes nothing, in check mode."""
    return ["--dry-run"] if module.check_mode else []


def answer(changed: bool, found: dict[str, Any]) -> dict[str, object]:
    """Return the module's result for a command that lists its changes."""
    diff = {
        side: {change["knob"]: change[side] for change in found["changes"]}
        for side in ("before", "after")
    }
    return {"changed": changed, "diff": diff, "result": found}


def main() -> None:
    """Do what the state asks for."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "str", "required": True},
            "state": {
                "type": "str",
                "choices": ["present", "tuned", "imported", "applied", "absent"],
                "default": "applied",
            },
            "knobs": {"type": "dict", "default": {}},
            "workloads": {"type": "list", "elements": "str", "default": []},
            "unguarded": {"type": "list", "elements": "str", "default": []},
            "budget": {"type": "str", "default": "60s"},
            "remeasure": {"type": "bool", "default": False},
            "content": {"type": "str"},
            "signature": {"type": "str"},
        },
        supports_check_mode=True,
    )
    states = {
        "present": present,
        "tuned": tuned,
        "imported": imported,
        "applied": applied,
        "absent": absent,
    }
    module.exit_json(**states[module.params["state"]](module, module.params["path"]))


if __name__ == "__main__":
    main()
