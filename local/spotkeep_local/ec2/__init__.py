"""EC2's fleets, instances, volumes and snapshots in the local AWS. The network and launch templates are ministack's.

`service` receives a request, and `query_protocol` reads and checks it. `fleets`, `instances`, `volumes`, `snapshots`,
`tags` and `spot_prices` carry it out on the resources in `cloud` (`records`). One thread, `background`, does all work
that no request asks for. It boots instances, attaches volumes, interrupts instances that the `market` has no room for,
and lets fleets replace instances. `allocation` chooses the pool. `events` writes EventBridge's events. `control` is the
control plane for interruptions, capacity and prices. `spotkeep_local.hosts` makes the hosts of instances.

ministack's own answers are not enough for these reasons.

- Its instances run nothing and its fleets do not replace them. Here an instance is a host.

- It attaches volumes across zones, holds no data, and gives a volume from a snapshot the wrong size.

- It tags only resources of its own.

- It describes every instance type with the same processor and without NVMe volumes, which a launch checks.

- It has no spot prices, DeleteLaunchTemplateVersions, GetConsoleOutput or DescribeFleetHistory.
"""
