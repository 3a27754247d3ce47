"""What is in the account beside the runs: orphans, quotas, service-linked roles."""
