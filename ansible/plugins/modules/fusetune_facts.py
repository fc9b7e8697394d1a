#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts about the FUSE mounts of a host."""

DOCUMENTATION = r"""
---
module: fusetune_facts
short_description: Facts about the FUSE mounts of a host
version_added: 1.0.0
description:
  - Returns every FUSE mount with its values, and whether they are the ones that are kept for it.
author:
  - The fusetune developers (@fusetune)
attributes:
  check_mode:
    description: Nothing is changed.
    support: full
"""

EXAMPLES = r"""
- name: Look at the FUSE mounts
  fusetune.fusetune.fusetune_facts:

- name: How many values differ from those that are kept?
  ansible.builtin.debug:
    var: ansible_facts.fusetune.differences
"""

RETURN = r"""
ansible_facts:
  description: The facts, below the key C(fusetune).
  returned: always
  type: dict
  contains:
    fusetune:
      description: What fusetune knows of the host.
      type: dict
      contains:
        mounts:
          description: The mounts, as C(fusetune list --json) has them.
          type: list
          elements: dict
        differences:
          description: How many values differ from those that are kept.
          type: int
        verified:
          description: The mounts, as C(fusetune verify --json) has them.
          type: list
          elements: dict
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.fusetune.fusetune.plugins.module_utils.command import fusetune


def main() -> None:
    """Collect the facts."""
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    verified = fusetune(module, "verify", fine=(0, 1, 3))
    facts = {
        "mounts": fusetune(module, "list")["mounts"],
        "differences": verified["differences"],
        "verified": verified["mounts"],
    }
    module.exit_json(changed=False, ansible_facts={"fusetune": facts})


if __name__ == "__main__":
    main()
