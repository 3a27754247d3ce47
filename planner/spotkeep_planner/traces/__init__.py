"""Capacity traces: the form, its reader, and adapters for the public forms, some of which mean the opposite by 1."""
