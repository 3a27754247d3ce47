"""The deletion of the stack: what its runs still have running is ended before the functions that could end it."""
