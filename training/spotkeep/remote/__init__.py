"""The second tier, with checkpoints in S3, for machines whose platform does not upload them."""
