"""Measures of a user's waits, such as synth, the launcher's start, a whole rehearsal and the size of uploads.

Run with ``make bench``. Machines differ and drift. So every time with a target is a ratio or a difference of two times,
measured in turn in one run. Tests never time anything.
"""
