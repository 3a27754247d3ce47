"""Measures what a user waits for: synth, the launcher's start, a whole rehearsal, the size of what is uploaded.

Run with ``make bench``. Machines differ and drift, so every time that has a target is a ratio or a difference of two
things measured in turn in one run. Tests never time anything.
"""
