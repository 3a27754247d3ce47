"""A training in a container. The docker of the AMI runs the job's image, with the rights of the user that trains.

The agent is root and drives docker by its command line. The container has the folders of the job at their paths on the
instance, the network of the instance, and none of root's capabilities. The rule that closes the metadata service to the
user that trains (`training.metadata_door`) holds in there, too.
"""
