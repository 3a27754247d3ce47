"""Sweeps: many trials of one job, each a run with parameters of its own."""
