# SPDX-License-Identifier: GPL-2.0-or-later
"""The tuned libfuse3: its options, its users, and how it becomes the one in use."""
