"""The starts of a run, the time that each of their parts took, and advice about it."""
