"""The Lambda function `launcher`, which takes a job document or an action on a run, and answers with the result."""
