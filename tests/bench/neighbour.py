# SPDX-License-Identifier: GPL-2.0-or-later
"""A neighbour that uses a whole processor for 1 to 5 s, then rests for 1 to 5 s, and so on.

It is a program of its own, because it must take the processor from the server, not from the bench.
"""

import random
import time

if __name__ == "__main__":
    draw = random.Random()
    while True:
        end = time.monotonic() + draw.uniform(1, 5)
        while time.monotonic() < end:
            pass
        time.sleep(draw.uniform(1, 5))
