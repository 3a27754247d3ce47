"""The job file: what a user asks for, and how its values are read."""
