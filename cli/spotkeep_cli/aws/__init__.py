"""AWS behind a deployment: the connection, the launcher, logs, objects and queues."""
