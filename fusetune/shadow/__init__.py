# SPDX-License-Identifier: GPL-2.0-or-later
"""Second instances of a mount's file system, which nothing outside sees, to try options on."""
