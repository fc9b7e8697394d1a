# SPDX-License-Identifier: GPL-2.0-or-later
"""TOML files that administrators edit: the line of each key, errors that name it, and tables."""
