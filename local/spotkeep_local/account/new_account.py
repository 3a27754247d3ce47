"""What IAM holds in a new local AWS: who deploys and who trains, and the service-linked roles.

It is an account in which fleets, spot instances and FIS were used before.
"""

from __future__ import annotations

import json
from typing import Any

from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_local.access.issued_credentials import ADMINISTRATOR, PEOPLE

_ADMINISTRATOR_ACCESS = "arn:aws:iam::aws:policy/AdministratorAccess"


def make_people(iam: Any) -> None:
    """Make the users that are not there yet. The administrator may do everything; a developer waits for a policy.

    Args:
        iam: A boto3 client of the local AWS.
    """
    for name in PEOPLE:
        try:
            iam.create_user(UserName=name)
        except iam.exceptions.EntityAlreadyExistsException:
            continue
        if name == ADMINISTRATOR:
            iam.attach_user_policy(UserName=name, PolicyArn=_ADMINISTRATOR_ACCESS)


def make_service_linked_roles(iam: Any) -> None:
    """Make the service-linked roles that are not there yet.

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
