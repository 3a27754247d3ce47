"""What stands for an instance or for a training job's machine on this machine, and for volumes.

Every `Host` (`host`) is the program `boot`, started by the server: it ends with the server and all that it started with
it. A job's is a process group, with mounts of its own where the machine allows them. An instance's (`instance_host`)
has besides volumes and a metadata service (`metadata_service`, from the tree in `metadata`). `host_platform` finds out
once how far the machine lets an instance be confined: with network, mounts and processes of its own, and volumes that
are loop devices (`namespaces`, `loop_devices`), or as a process group with directories for volumes (`relocation`). The
bytes of volumes and snapshots lie in `images`.
"""
