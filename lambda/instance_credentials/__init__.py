"""The credentials of a run: a function that gives each instance those of its own run, and of no other."""

import gc

# What a cold start makes stays: to look for garbage in it, after each 700 new objects, takes a tenth of the start.
gc.set_threshold(50_000)
