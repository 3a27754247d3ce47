"""A training in a container: the docker of the AMI runs the job's image, with the rights of the user that trains.

The agent is root and drives docker by its command line. The container has the folders of the job at their paths on the
instance, the network of the instance, and none of root's capabilities: what the instance closes to the user that
trains (`training.metadata_door`) is closed in there, too.
"""
