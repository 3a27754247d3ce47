"""Where it is saved: the format of checkpoints, and how they get onto a disk, off it and out of each other's way."""
