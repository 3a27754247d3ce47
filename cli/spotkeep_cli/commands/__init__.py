"""One file a command. Each says what it takes, asks the deployment, and hands plain values to `rendering`."""
