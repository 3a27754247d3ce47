"""Checkpoints for people: where they are, what is in them, what changed, and how to take them elsewhere."""
