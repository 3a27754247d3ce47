"""The saved state of a training as a tree of arrays and values, and its way back into the script's objects."""
