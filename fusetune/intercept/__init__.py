# SPDX-License-Identifier: GPL-2.0-or-later
"""The module fusetuned for servers that do not support it: their mounts are intercepted."""
