"""A function for each command, in the module of its subject.

Each parses its options, asks the deployment, and hands plain values to `rendering`.
"""
