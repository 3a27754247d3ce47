"""The rest of an AWS account, with its people, prices, quotas and service-linked roles.

ministack has no price list and no Service Quotas, and gives service-linked roles other names than AWS.
"""
