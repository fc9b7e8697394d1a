# SPDX-License-Identifier: GPL-2.0-or-later
"""Options that need a new mount: recipes of servers, how a mount was made, and advice."""
