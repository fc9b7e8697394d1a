# SPDX-License-Identifier: GPL-2.0-or-later
"""Call the command fusetune on the managed host and read its JSON."""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

#: Exit statuses of fusetune that are not failures: done, a difference, nothing better.
FINE = (0, 3, 4)


def fusetune(
    module: AnsibleModule, *words: str, fine: tuple[int, ...] = FINE, **done: object
) -> dict[str, Any]:
    """Return the object that ``fusetune WORDS --json`` prints, with its ``status``.

    Any other exit status ends the module with the line that fusetune prints, and with the results
    ``done`` of what was changed before.
    """
    status, out, said = run(module, *words, "--json")
    if status not in fine:
        module.fail_json(msg=said.strip() or "fusetune failed", status=status, **done)
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        module.fail_json(msg=said.strip() or f"'fusetune {' '.join(words)}' printed no JSON")
    found["status"] = status
    return found


def run(module: AnsibleModule, *words: str) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error of ``fusetune WORDS``."""
    program = module.get_bin_path("fusetune", required=True)
    status, out, said = module.run_command([program, *words])
    return status, out, said
