# SPDX-License-Identifier: GPL-2.0-or-later
"""What is in inside/ runs in a suite's tree only, where test_suites.py starts it."""

from pathlib import Path

collect_ignore = [] if Path("/out/new").exists() else ["inside"]
