"""What a job with a deadline will cost and when it will be done."""
