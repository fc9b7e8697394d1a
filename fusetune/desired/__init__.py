# SPDX-License-Identifier: GPL-2.0-or-later
"""What each mount should have, from configuration and saved results."""
