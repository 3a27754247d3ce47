"""Runs on EC2 spot fleets. These modules launch an attempt, follow its instances and compute its cost.

An attempt of a run is one EC2 Fleet of type `maintain` with one instance, or with the nodes that train together. EC2
replaces each instance until the fleet is deleted. Nodes may have one fleet after the other, until enough of them come
to one place. The instances and these functions exchange state through the fleet record (`spotkeep_fleet`). `jobs`
offers the interface of SageMaker's training jobs, so that controller and bill know one kind of job.

`launch` (pure) builds the request. `facts` holds EC2's answers. `history` (pure) combines both into the story of an
attempt. `places` (pure) decides where nodes are looked for. `ec2_api` and `fleet_table` alone call boto3.
"""
