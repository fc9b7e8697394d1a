# SPDX-License-Identifier: GPL-2.0-or-later
"""``auto``: which values to try, which to measure next, and which are proven to be better."""
