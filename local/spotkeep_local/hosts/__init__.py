"""What stands for an instance or for a training job's machine on this machine, and for volumes.

Every host is the program `boot`, started by `program`: it ends with the server and all that it started with it. A job's
is a process group (`process_group`), and an instance's where the machine does not allow more (`directory_host`, with
directories for volumes). Where it does, which `isolation` finds out once, an instance has network, mounts and processes
of its own, and volumes that are loop devices (`namespace_host`, `loop_devices`). Both of an instance's hosts answer
metadata (`metadata_service`, from the tree in `metadata`) and both are a `Host` to what starts, watches and ends them.
The bytes of volumes and snapshots lie in `images`.
"""
