"""`spotkeep run`, the process that starts a training command inside a container or on an instance.

The runner prepares the environment, unpacks the source and passes signals on. As PID 1 it also reaps orphaned
processes. When the job fails, it writes a failure file with the reason.
"""
