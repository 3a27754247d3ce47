"""The controller, one Lambda function that keeps the record and the capacity of every run in line with AWS."""
