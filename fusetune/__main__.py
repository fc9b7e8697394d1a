# SPDX-License-Identifier: GPL-2.0-or-later
"""Entry point of ``python3 -m fusetune``."""

from fusetune.cli import main

if __name__ == "__main__":
    main()
