"""Sweeps on the command line, as lists, pages, pictures, and the best trial."""
