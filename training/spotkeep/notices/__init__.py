"""What announces an interruption: signals, a file, an instance's metadata."""
