"""AWS Batch's queues for SageMaker training jobs: service environments, job queues, shares, service jobs, preemption.

Compute environments, job definitions and container jobs are not here: the local AWS runs no containers.
"""
