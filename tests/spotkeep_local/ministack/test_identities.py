"""The local account has the service-linked roles that `doctor --account` asks for, and a deleted one is missing."""

from __future__ import annotations

import json
from typing import Any

from spotkeep_cli.account.check import read_service_roles
from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES


def test_they_are_there_from_the_start_and_what_is_deleted_is_missing(local_aws: Any) -> None:
    iam = local_aws.session().client("iam")
    roles = FLEET_SERVICE_ROLES | DRILL_SERVICE_ROLES
    assert [role.exists for role in read_service_roles(iam, roles)] == [True, True, True]
    deleted = iam.get_role(RoleName="AWSServiceRoleForFIS")["Role"]
    iam.delete_role(RoleName=deleted["RoleName"])
    assert [role.exists for role in read_service_roles(iam, roles)] == [True, True, False]
    iam.create_role(
        RoleName=deleted["RoleName"],
        Path=deleted["Path"],
        AssumeRolePolicyDocument=json.dumps(deleted["AssumeRolePolicyDocument"]),
    )
    assert all(role.exists for role in read_service_roles(iam, roles))
    path = iam.get_role(RoleName="AWSServiceRoleForEC2Spot")["Role"]["Path"]
    assert path == "/aws-service-role/spot.amazonaws.com/"
