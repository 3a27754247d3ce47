"""The deletion of the stack. All running work is ended before the functions that can end it are deleted."""
