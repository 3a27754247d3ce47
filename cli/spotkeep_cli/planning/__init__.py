"""The forecast of cost and end of a job with a deadline."""
