# SPDX-License-Identifier: GPL-2.0-or-later
"""The published papers: their measurements, and jobs that reproduce them."""
