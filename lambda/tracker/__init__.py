"""The tracker: a function that takes SageMaker's events as hints and brings the record up to date."""
