"""The server process, its files, and the record by which another process finds it."""
