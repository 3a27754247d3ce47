"""The service-linked roles of an account in which fleets, spot instances and FIS were used before."""

from __future__ import annotations

import json
from typing import Any

from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES


def make_service_linked_roles(iam: Any) -> None:
    """Make those that are not there yet.

    Args:
        iam: A boto3 client of the local AWS.
    """
    for service, name in {**FLEET_SERVICE_ROLES, **DRILL_SERVICE_ROLES}.items():
        trusted = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
        try:
            iam.create_role(
                RoleName=name,
                Path=f"/aws-service-role/{service}/",
                AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trusted]}),
            )
        except iam.exceptions.EntityAlreadyExistsException:
            continue
