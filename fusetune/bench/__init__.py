# SPDX-License-Identifier: GPL-2.0-or-later
"""Measuring a mount with fio, in a scratch directory that cannot be redirected."""
