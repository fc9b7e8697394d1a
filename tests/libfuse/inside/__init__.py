# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that ../test_suites.py runs in the tree of a suite, with its libfuse3 and servers.

/out has the built files: the library, libfuse's examples, and mirrorfs.
"""
