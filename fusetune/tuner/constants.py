# SPDX-License-Identifier: GPL-2.0-or-later
"""The constants of the search.

No record says how these values were first found. `python3 -m tests.bench.constants` measures on
simulated mounts what other values do, one constant at a time. "Tried" names those values, and
docs/search.md has what was measured with them.
"""

import math

# Of all interim analyses together; below 5 %, so that the intervals are 95 % ones and better.
# Tried 0.05, 0.01.
ERROR = 0.03

# A smaller gain is not worth a change: a decision, not a measured optimum.
# Tried log(1.005), log(1.03).
LEAST_GAIN = math.log(1.01)

# Log ratio below which two settings count as equal while exploring.
# Tried 0.003, 0.015.
INDIFFERENCE = 0.007

# Expected log gain below which a candidate is not worth a sample.
# Tried 0.002, 0.008.
PROMISE = 0.004

# Samples that a candidate is imagined to get when its promise is weighed.
# Tried 4, 16.
AHEAD = 8

# Standard deviations that are held against a setting's mean.
# Tried 0, 2.
CAUTION = 1.0

# Standard deviations by which a change must beat the start's value.
# Tried 0, 1.
DOUBT = 0.5

# The same for a category: a switch that turns a protection off.
# Tried 0.5, 4.
SWITCH_DOUBT = 2.0

# Probability of being better that a setting needs to be put to the proof.
# Tried 0.95, 0.7.
EVIDENCE = 0.85

# A dimension whose values all lie within this of each other has no effect. It chooses the words of
# the reasons alone, no setting: nothing to measure.
NO_EFFECT = 0.03

# Settings in a block, the incumbent included.
# Tried 4, 9.
BLOCK = 6

# Blocks in which safer values are compared with the incumbent.
# Tried 0, 6.
WALK_BLOCKS = 3

# Standard deviation beyond which those blocks would not tell equal from worse.
# Tried 0.01, 0.1.
WALKABLE = 0.03

# Evaluations; the model's cost grows with their cube.
# Tried 40, 80.
MOST_EXPLORED = 160

# Pairs before the first interim analysis.
# Tried 3, 6.
FEWEST_PAIRS = 4

# Pairs beyond which no gain is hoped for; it bounds a loop.
# Tried 30, 300.
MOST_PAIRS = 100

# Pairs kept back for hiccups of the host.
# Tried 0, 6.
SPARE_PAIRS = 3

# Pairs at an interim analysis over pairs at the one before.
# Tried 1.2, 2.
ANALYSIS_GROWTH = 1.5

# Standard errors to spare when the pairs for a proof are reckoned.
# Tried 1, 3.
POWER = 2.0

# Part of the whole budget that exploration leaves for the proof.
# Tried 0.25, 0.6.
MOST_RESERVED = 0.4
