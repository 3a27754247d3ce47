"""Sweeps, measured: what a search spends to reach an objective, with and without interruptions."""
