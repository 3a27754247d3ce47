"""Runs on EC2 spot fleets: what one attempt asks of EC2, what became of its instances, what it cost.

An attempt of a run is one EC2 Fleet of type `maintain` with one instance, which the fleet replaces until it is deleted.
The instances and these functions know each other by the fleet record (`spotkeep_fleet`). `jobs` gives all of it the
seam of SageMaker's training jobs, so that controller and bill know one kind of job.

`launch` (pure) says what is asked. `facts` what EC2 says; `history` (pure) what both make of an attempt; `ec2_api` and
`fleet_table` alone call boto3.
"""
