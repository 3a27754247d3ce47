"""The controller: one function that keeps every run's record and its capacity in line with what AWS says."""

import gc

# What a cold start makes stays: to look for garbage in it, after each 700 new objects, takes a tenth of the start.
gc.set_threshold(50_000)
