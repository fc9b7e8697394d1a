# SPDX-License-Identifier: GPL-2.0-or-later
"""The published papers: what they measured, and jobs that show it here."""
