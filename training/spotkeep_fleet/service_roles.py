"""Service-linked roles: what AWS's own services run with in an account. Without them the first use of each fails.

The console makes them along the way, the API does not: its caller needs a permission that none of our roles has.

Sources: "EC2 Fleet prerequisites" and "Service-linked role for Spot Instance requests" (Amazon EC2 user guide);
"Use service-linked roles for AWS Fault Injection Service" (AWS FIS user guide)
"""

from __future__ import annotations

FLEET_SERVICE_ROLES = {
    "ec2fleet.amazonaws.com": "AWSServiceRoleForEC2Fleet",
    "spot.amazonaws.com": "AWSServiceRoleForEC2Spot",
}
"""What fleets of spot instances need: names of roles, by the service."""

DRILL_SERVICE_ROLES = {"fis.amazonaws.com": "AWSServiceRoleForFIS"}
"""What a drill needs besides."""
