"""The function that one-time schedules invoke to look at a warm pool: no event says that one is over."""
