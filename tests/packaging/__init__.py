# SPDX-License-Identifier: GPL-2.0-or-later
"""The packages, built and installed in trees of their Debian suites."""
