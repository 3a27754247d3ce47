"""The content of IAM in a new local AWS. It has an administrator, a developer, and the service-linked roles.

It is an account in which fleets, spot instances and FIS were used before.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_local.ministack import identities
from spotkeep_local.principals import ADMINISTRATOR, PEOPLE

if TYPE_CHECKING:
    from collections.abc import Iterator

_ADMINISTRATOR_ACCESS = "arn:aws:iam::aws:policy/AdministratorAccess"


def missing_from_account() -> Iterator[dict[str, str]]:
    """Yield the calls of IAM that make the missing principals, as operation and form parameters.

    The administrator may do everything. A developer waits for a policy.
    """
    for name in PEOPLE:
        if identities.stored_user(name) is None:
            yield {"Action": "CreateUser", "UserName": name}
            if name == ADMINISTRATOR:
                yield {"Action": "AttachUserPolicy", "UserName": name, "PolicyArn": _ADMINISTRATOR_ACCESS}
    for service, name in {**FLEET_SERVICE_ROLES, **DRILL_SERVICE_ROLES}.items():
        if identities.stored_role(name) is None:
            trusted = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
            yield {
                "Action": "CreateRole",
                "RoleName": name,
                "Path": f"/aws-service-role/{service}/",
                "AssumeRolePolicyDocument": json.dumps({"Version": "2012-10-17", "Statement": [trusted]}),
            }
