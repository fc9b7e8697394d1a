# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing knobs safely: policy, journal, lock, write, undo."""
