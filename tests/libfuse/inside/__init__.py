# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that run in the tree of a suite, on its libfuse3 and servers; ../test_suites.py does that.

/out is what was built: the library, libfuse's examples, and mirrorfs.
"""
