# SPDX-License-Identifier: GPL-2.0-or-later
"""The constants of the search."""

import math

ERROR = 0.03  # of all interim analyses together: the intervals are 95 % ones and better
LEAST_GAIN = math.log(1.01)  # a smaller gain is not worth a change
INDIFFERENCE = 0.007  # log ratio below which two settings count as equal while exploring
PROMISE = 0.004  # expected log gain below which a candidate is not worth a sample
AHEAD = 8  # samples a candidate is imagined to get when its promise is weighed
CAUTION = 1.0  # standard deviations that are held against a setting's mean
DOUBT = 0.5  # standard deviations by which a change must beat the start's value
SWITCH_DOUBT = 2.0  # the same for a category: a switch that turns a protection off
EVIDENCE = 0.85  # probability of being better that a setting needs to be put to the proof
NO_EFFECT = 0.03  # a dimension whose values all lie within this of each other has no effect
BLOCK = 6  # settings in a block, the incumbent included
WALK_BLOCKS = 3  # in which safer values are held against the incumbent
WALKABLE = 0.03  # standard deviation beyond which those blocks would not tell equal from worse
MOST_EXPLORED = 160  # evaluations; the model's cost grows with their cube
FEWEST_PAIRS = 4  # before the first interim analysis
MOST_PAIRS = 100
SPARE_PAIRS = 3  # kept back for hiccups of the host
LOOK_GROWTH = 1.5  # pairs at an interim analysis over pairs at the one before
POWER = 2.0  # standard errors to spare when the pairs for a proof are reckoned
MOST_RESERVED = 0.4  # part of the whole budget that exploration leaves for the proof
