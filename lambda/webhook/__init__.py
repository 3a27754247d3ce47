"""The webhook: a function that takes notifications from their topic to one address of the team's, signed."""
