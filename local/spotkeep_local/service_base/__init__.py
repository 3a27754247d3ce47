"""What every service of ours is built on: AWS's protocols, botocore's models, saved state, events."""
