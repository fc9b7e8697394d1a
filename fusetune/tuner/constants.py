# SPDX-License-Identifier: GPL-2.0-or-later
"""The constants of the search.

How these values were first found is not recorded. `python3 -m tests.bench.constants` measures the
effect of other values on simulated mounts, one constant at a time. "Tried" lists those values;
docs/search.md has the results.
"""

import math

# Of all interim analyses together. With LAST_ERROR at most 5 %, so that the intervals cover at
# least 95 %.
# Tried 0.02, 0.01.
ERROR = 0.03

# Of one analysis at the end of the budget, if its share of ERROR is smaller.
# Tried 0, 0.02.
LAST_ERROR = 0.01

# Two-sided error of the interval whose upper end decides whether a proof is out of reach.
# Tried 0.3, 0.03.
FUTILE = 0.1

# A smaller gain is not worth a change: a decision, not a measured optimum.
# Tried log(1.005), log(1.03).
LEAST_GAIN = math.log(1.01)

# Log ratio below which two settings count as equal while exploring.
# Tried 0.003, 0.015.
INDIFFERENCE = 0.007

# Log loss that a smaller value must not have even if it is slower than expected by SURE.
# Tried 0.007, 0.02.
MOST_LOSS = 0.014

# Standard deviations by which a smaller value may be slower than expected.
# Tried 0, 2.
SURE = 1.0

# Expected log gain below which a candidate is not worth a sample.
# Tried 0.002, 0.008.
PROMISE = 0.004

# Share of the noise that takes the place of PROMISE, if it is smaller, once a setting seems worth
# its proof: a steady host can show smaller gains.
# Tried 0.01, 0.05.
FINE = 0.02

# Number of future samples assumed when a candidate's expected gain is computed.
# Tried 4, 16.
AHEAD = 8

# Standard deviations subtracted from a setting's mean.
# Tried 0, 2.
CAUTION = 1.0

# Standard deviations by which a change must beat the start's value.
# Tried 0.5, 1.
DOUBT = 0.75

# The same for a category: a switch that turns off a protection.
# Tried 0.5, 4.
SWITCH_DOUBT = 2.0

# Probability of being better at which a setting is put to the proof.
# Tried 0.95, 0.7.
EVIDENCE = 0.85

# A dimension whose values are all within this of each other has no effect. It only selects the
# wording of reasons, never a setting, so there is nothing to measure.
NO_EFFECT = 0.03

# Share of the model's correlation that allows for a cliff between two values.
# Tried 0, 1.
ABRUPT = 0.5

# Settings in a block, the incumbent included.
# Tried 6, 10.
BLOCK = 8

# Blocks in which safer values are compared with the incumbent.
# Tried 0, 6.
WALK_BLOCKS = 3

# Standard deviation beyond which those blocks could not distinguish equal from worse.
# Tried 0.01, 0.1.
WALKABLE = 0.03

# Evaluations; the model's cost grows with their cube.
# Tried 40, 80.
MOST_EXPLORED = 160

# Pairs before the first interim analysis.
# Tried 3, 6.
FEWEST_PAIRS = 4

# Pairs after which no gain is expected; bounds a loop.
# Tried 30, 300.
MOST_PAIRS = 100

# Growth of the number of pairs from one interim analysis to the next.
# Tried 1.2, 2.
ANALYSIS_GROWTH = 1.5

# Extra standard errors when the pairs for a proof are estimated.
# Tried 1, 3.
POWER = 2.0

# Share of the budget that exploration leaves for the proof.
# Tried 0.25, 0.6.
MOST_RESERVED = 0.4
