"""The webhook: a function that takes notices from their topic to one address of the team's, signed."""
