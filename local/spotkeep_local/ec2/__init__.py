"""EC2's fleets, instances, volumes and snapshots in the local AWS. The network and launch templates are ministack's.

`service` receives a request, `query_protocol` reads and checks it, and `fleets`, `instances`, `volumes`, `snapshots`,
`tags` and `spot_prices` carry it out on the resources in `cloud` (`records`). One thread, `background`, does what
happens without a request: it boots instances, attaches volumes, interrupts what the `market` has no room for, and lets
fleets replace instances. `allocation` chooses the pool. `events` writes what EventBridge gets, and `control` is the
control plane: interruptions, capacity, prices. `spotkeep_local.hosts` makes what an instance runs on.

Why ministack's own answers are not enough:

- instances, fleets: its instances run nothing and its fleets do not replace them. Here an instance is a host;
- volumes, snapshots: it attaches across zones, holds no data, and gives a volume from a snapshot the wrong size;
- tags: it knows only resources of its own;
- instance types: it describes every type with the same processor and without NVMe volumes, which a launch checks;
- spot prices, DeleteLaunchTemplateVersions, GetConsoleOutput, DescribeFleetHistory: it has none.
"""
