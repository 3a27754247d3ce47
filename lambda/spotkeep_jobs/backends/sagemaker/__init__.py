"""Attempts as SageMaker training jobs, with the request of one job, its image, and the interface to the API."""
