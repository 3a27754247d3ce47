"""Service-linked roles, with which AWS's services work in an account. Without them the first use of each fails.

The console creates them along the way. The API does not, because its caller needs a permission that none of Spotkeep's
roles has.

Sources: "EC2 Fleet prerequisites" and "Service-linked role for Spot Instance requests" (Amazon EC2 user guide). "Use
service-linked roles for AWS Fault Injection Service" (AWS FIS user guide).
"""

from __future__ import annotations

FLEET_SERVICE_ROLES = {
    "ec2fleet.amazonaws.com": "AWSServiceRoleForEC2Fleet",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
}
"""The names of the roles that fleets of spot instances need, by the service."""

DRILL_SERVICE_ROLES = {"fis.amazonaws.com": "AWSServiceRoleForFIS"}
"""The further roles that a drill needs."""
