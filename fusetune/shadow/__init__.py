# SPDX-License-Identifier: GPL-2.0-or-later
"""Second instances of a mount's file system to try options on, invisible outside."""
