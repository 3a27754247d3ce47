"""The webhook. A function posts notifications from their topic to one address of the team's, with a signature."""
