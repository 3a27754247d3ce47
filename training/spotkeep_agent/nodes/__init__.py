"""Several instances that train a run together.

Each instance is a node. One of them holds the run's lease, and is the leader. The others connect to it. The leader
forms a world, which is a set of nodes whose ranks train together from one checkpoint. A world ends when a node leaves
or is lost, and the nodes that are there form the next one. They have no volume. S3 is all that they share.
"""
