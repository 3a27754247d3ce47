"""AWS behind a deployment, with the connection, the launcher, logs, objects and queues."""
