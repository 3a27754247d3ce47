"""EC2's fleets, instances, volumes and snapshots in the local AWS. The network and launch templates are ministack's.

`service` receives a request, reads it and checks it. `fleets`, `instances`, `launch`, `volumes`, `tags` and `catalog`
carry it out on the resources in `cloud` (`records`). One thread, `service.Background`, does all work that no request
asks for. It boots instances, attaches volumes, interrupts instances that the `market` has no room for, and lets fleets
replace instances. `surroundings` are the other services that EC2 needs. `spotkeep_local.hosts` makes the hosts of
instances.

ministack's own answers are not enough for these reasons.

- Its instances run nothing and its fleets do not replace them. Here an instance is a host.

- It attaches volumes across zones, holds no data, and gives a volume from a snapshot the wrong size.

- It tags only resources of its own.

- It describes every instance type with the same processor and without NVMe volumes, which a launch checks.

- It has no spot prices, DeleteLaunchTemplateVersions, GetConsoleOutput or DescribeFleetHistory.
"""
