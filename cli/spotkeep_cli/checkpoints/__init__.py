"""Checkpoints for people.

The package finds them, shows their content and their changes, and exports them.
"""
