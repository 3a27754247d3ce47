"""The reconciler: a function that looks every few minutes at all that is in flight, because events can be lost."""
