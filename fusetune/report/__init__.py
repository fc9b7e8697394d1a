# SPDX-License-Identifier: GPL-2.0-or-later
"""Output for users: one data model, its JSON object, and its renderings."""
