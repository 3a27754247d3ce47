"""The second tier: checkpoints in S3, for places where nothing uploads them for us."""
