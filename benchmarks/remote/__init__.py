"""Measures transfers of checkpoints to and from S3, against other clients."""
