# SPDX-License-Identifier: GPL-2.0-or-later
"""The module fusetuned for servers that know nothing of it: their mounts are intercepted."""
