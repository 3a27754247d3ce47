"""The spending of searches until they reach an objective, with and without interruptions."""
