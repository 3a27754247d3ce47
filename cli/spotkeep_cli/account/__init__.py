"""The account's resources beside the runs, such as orphans, quotas and service-linked roles."""
