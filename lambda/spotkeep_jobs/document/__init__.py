"""The job file of a user, and the reading of its values. Pure."""
