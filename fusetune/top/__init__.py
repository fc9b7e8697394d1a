# SPDX-License-Identifier: GPL-2.0-or-later
"""``top``: mounts observed interval by interval, on a screen, in lines or in JSON."""
