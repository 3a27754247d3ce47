"""What a checkpoint costs a training, beside other libraries and beside what the machine itself can do.

Run with ``make bench-checkpoint``. The figure that counts is the extra training time: how much longer the training
takes because a checkpoint was saved, whatever the call itself took.
"""
