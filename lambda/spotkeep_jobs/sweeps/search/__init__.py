"""Chooses the trials of a sweep that begin or go on next, from the trials so far alone."""
