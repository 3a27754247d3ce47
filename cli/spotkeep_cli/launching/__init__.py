"""Takes a job file to a launch.

The steps are read, prepare, judge, show and send.
"""
