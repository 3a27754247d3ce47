"""What an account of AWS has besides: people, prices, quotas, service-linked roles.

ministack has no price list and no Service Quotas, and gives service-linked roles other names than AWS.
"""
