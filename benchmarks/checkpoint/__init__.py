"""The cost of a checkpoint to a training, beside other libraries and beside the limits of the machine itself.

Run with ``make bench-checkpoint``. The figure that counts is the extra training time. It says how much longer the
training takes because a checkpoint was saved, whatever the call itself took.
"""
