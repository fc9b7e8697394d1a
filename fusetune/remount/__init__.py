# SPDX-License-Identifier: GPL-2.0-or-later
"""A mount's new options: written into its files, undone, and a switch to a new mount."""
