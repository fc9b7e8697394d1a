# SPDX-License-Identifier: GPL-2.0-or-later
"""What users see: one data model, the JSON object, and its renderings."""
