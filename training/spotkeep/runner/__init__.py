"""`spotkeep run`: the process that starts a training command inside a container or on an instance.

It lays out the environment, unpacks the source, passes signals on, takes care of orphans as PID 1 must, and leaves a
failure file that says why a job failed.
"""
