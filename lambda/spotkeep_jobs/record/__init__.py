"""The record of runs, attempts, pools and notifications, and the DynamoDB table that holds it."""
