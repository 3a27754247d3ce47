"""Hosts of this machine, which stand for instances and for the machines of training jobs, and for their volumes.

The server starts the program `boot` for every `Host` (`host`). It ends with the server, and so does everything that it
started. A job's host is a process group, with mounts of its own where the machine allows them. An instance's host
(`instance_host`) also has volumes and a metadata service (`metadata`). `host_platform` finds out once how far the
machine lets an instance be confined. It may have network, mounts and processes of its own, and volumes that are loop
devices (`namespaces`). Otherwise it is a process group with directories for volumes. The bytes of volumes and snapshots
are in `images`.
"""
