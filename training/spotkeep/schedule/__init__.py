"""The times of saves, by an interval and by the history of interruptions that it is computed from."""
