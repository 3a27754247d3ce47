"""AWS Batch's queues for SageMaker training jobs.

They have service environments, job queues, shares, service jobs and preemption.

Compute environments, job definitions and container jobs are not here, because the local AWS runs no containers.
"""
