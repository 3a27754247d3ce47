"""Training loops that can be left and taken up in the middle of an epoch: batches, shuffles, random numbers."""
