"""The format of checkpoints, and the ways in which they are written to a disk, read from it and pruned."""
