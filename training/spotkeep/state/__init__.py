"""What is saved: the state of a training as a tree of arrays and values, and back into the objects it came from."""
