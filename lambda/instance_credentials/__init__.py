"""The credentials of a run: a function that gives each instance those of its own run, and of no other."""
