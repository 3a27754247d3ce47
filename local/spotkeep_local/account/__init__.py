"""What an account of AWS has besides: prices, quotas, service-linked roles."""
