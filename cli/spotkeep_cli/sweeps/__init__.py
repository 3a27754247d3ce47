"""Sweeps on the command line: lists, pages, pictures, and the best trial."""
