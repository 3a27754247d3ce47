"""What a job says of itself in its log: events, steps trained, how far it is."""
