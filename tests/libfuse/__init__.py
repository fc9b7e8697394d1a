# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the tuned libfuse3: built from three Debian suites, run on this host's kernel."""
