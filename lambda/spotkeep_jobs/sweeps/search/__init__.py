"""Which trials of a sweep begin or go on next, computed from the trials so far alone. A module for each algorithm."""
