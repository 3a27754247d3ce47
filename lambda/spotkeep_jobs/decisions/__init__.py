"""What follows from a request and the facts. Pure: no clock, no client, no file; the time is an argument."""
