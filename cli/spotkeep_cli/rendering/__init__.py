"""Turns plain values into text, tables and timelines for readers. Nothing here calls AWS."""
