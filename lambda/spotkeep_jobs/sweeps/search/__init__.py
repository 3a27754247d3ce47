"""Which trials of a sweep begin or go on next, computed from the trials so far alone; a module for each algorithm."""
