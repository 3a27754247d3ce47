"""When it is saved: the interval, and the history of interruptions that it is computed from."""
