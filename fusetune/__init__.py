# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure, choose, apply and undo the tuning of FUSE mounts."""

__version__ = "0.1.0"
