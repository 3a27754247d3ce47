"""Placeholder docstring: the owner of this package writes it."""
