"""The functions that follow runs, measured without an account.

The functions are the real ones. `tests/models` has models of the AWS services that they call.
"""
