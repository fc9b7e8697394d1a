# SPDX-License-Identifier: GPL-2.0-or-later
"""The documentation, and what makes its tables."""
