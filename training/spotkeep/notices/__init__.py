"""Sources of an interruption notice, which are signals, a file and the instance metadata."""
