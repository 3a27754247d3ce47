"""What stands for an instance on this machine, and for its volumes.

`isolation` finds out once what the machine allows. Where it allows everything, `namespace_host` starts `boot` for each
instance: network, mounts and processes of its own, and volumes that are loop devices (`loop_devices`). Elsewhere
`directory_host` runs the user data as a process group, with directories for volumes. Both answer metadata
(`metadata_service`, from the tree in `metadata`) and both are a `Host` to whoever starts, watches and ends them. The
bytes of volumes and snapshots lie in `images`.
"""
