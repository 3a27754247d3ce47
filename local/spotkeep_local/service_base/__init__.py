"""The foundation of every service of ours, with AWS's protocols, botocore's models, saved state and events."""
