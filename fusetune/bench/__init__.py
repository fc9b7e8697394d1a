# SPDX-License-Identifier: GPL-2.0-or-later
"""Measuring a mount with fio, in a directory that nobody can lead elsewhere."""
