"""Attempts as SageMaker training jobs: the request of one job, its image, and the seam to the API."""
