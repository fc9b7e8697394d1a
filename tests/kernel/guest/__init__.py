# SPDX-License-Identifier: GPL-2.0-or-later
"""The checks that run in a virtual machine, never on a host.

Each is a function ``check_*`` of a module that __main__.py names.
"""
