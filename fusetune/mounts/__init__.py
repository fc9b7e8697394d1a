# SPDX-License-Identifier: GPL-2.0-or-later
"""What is mounted, which control files it has, and which program serves it."""
