"""The function `launcher`: takes a job document (or a word about a run) and answers what became of it."""

import gc

# What a cold start makes stays: to look for garbage in it, after each 700 new objects, takes a tenth of the start.
gc.set_threshold(50_000)
