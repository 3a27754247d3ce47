"""A job file from a request, a description or a script that others wrote."""
