"""Training loops that resume in the middle of an epoch, with their batches, shuffles and random numbers."""
