# SPDX-License-Identifier: GPL-2.0-or-later
"""Our kernel modules: what is installed and loaded, and how that is changed."""
