# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Kubernetes with one node, in namespaces of this host."""
