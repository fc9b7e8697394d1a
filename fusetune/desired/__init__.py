# SPDX-License-Identifier: GPL-2.0-or-later
"""The desired values of each mount, from configuration and saved results."""
