"""The control plane's part about permissions: what was judged so far, of every role and user in the account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local import ministack_seams
from spotkeep_local.iam.identities import read_stored
from spotkeep_local.iam.policy import PolicyKind
from spotkeep_local.iam.report import CONTROL_TARGET, REPORTS, report_of
from spotkeep_local.service_base.aws_service import control_service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.policy import Policy
    from spotkeep_local.iam.uses import Uses
    from spotkeep_local.ministack_seams import StoredIdentity
    from spotkeep_local.service_base.aws_service import AwsService


def permissions_control(uses: Uses) -> AwsService:
    """Make the service.

    Args:
        uses: What was judged.
    """

    def permissions(_request: dict[str, Any]) -> Mapping[str, Any]:
        identities = ministack_seams.stored_identities()
        counted = uses.counted()
        reports = report_of(
            counted,
            examples={use: uses.example(use) for use in counted},
            policies={name: _policies(identity) for name, identity in identities.items()},
        )
        return {"identities": REPORTS.dump_python(list(reports), mode="json")}

    return control_service(CONTROL_TARGET, {"Permissions": permissions})


def _policies(identity: StoredIdentity) -> list[Policy]:
    return [read_stored(document, name=name, kind=PolicyKind.IDENTITY) for name, document in identity.documents.items()]
