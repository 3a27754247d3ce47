"""The functions that follow runs, put to the test without an account: tortured, fed with bad input, and measured.

What they would meet at AWS is modelled (`tests/models`); the functions themselves are the real ones.
"""
