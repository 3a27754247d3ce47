"""The server process: how it runs, where its files lie, and how another process finds it."""
