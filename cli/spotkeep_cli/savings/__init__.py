"""The savings of spot capacity, and the cost of checkpoints."""
