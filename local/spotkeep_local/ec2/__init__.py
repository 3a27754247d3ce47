"""EC2's fleets, instances, volumes and snapshots inside the local AWS; the network stays ministack's.

A request comes in at `service`, is read and checked by `query_protocol`, and carried out by `fleets`, `instances`,
`volumes`, `snapshots`, `tags` or `spot_prices` on what `cloud` holds (`records`). What happens by itself is led by one
thread, the `controller`: what is due boots, attaches, is taken away by the `market`, is replaced by its fleet, which
chooses by `allocation`. `events` says what is told to EventBridge, `control` is what AWS lets nobody decide. What an
instance really is, `spotkeep_local.hosts` says.
"""
