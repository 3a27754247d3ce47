"""What a CloudWatch dashboard shows of a local AWS: its body, what was recorded, and the values that follow."""
