# SPDX-License-Identifier: GPL-2.0-or-later
"""What only a new mount can have: recipes of servers, how a mount was made, what to change."""
