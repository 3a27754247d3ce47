"""The second tier, with checkpoints in S3, for machines without uploads by the platform."""
