"""The credentials of a run. A function gives each instance the credentials of its own run, and of no other."""
