"""The control plane's operations about permissions: what was judged so far, and what is to be taken away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.identities import read_stored
from spotkeep_local.iam.policy import PolicyKind
from spotkeep_local.iam.proof import PROOFS, prove
from spotkeep_local.iam.report import REPORTS, report_of
from spotkeep_local.iam.uses import JUDGING_TIME
from spotkeep_local.iam.withheld import MISSED, WITHHELD
from spotkeep_local.ministack import identities

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.policy import PolicyDocument
    from spotkeep_local.iam.uses import Uses
    from spotkeep_local.iam.withheld import Withheld
    from spotkeep_local.ministack.identities import StoredIdentity
    from spotkeep_local.service_base.aws_service import Operation


def permission_operations(uses: Uses, withheld: Withheld) -> dict[str, Operation]:
    """Return the operations by name.

    Args:
        uses: What was judged.
        withheld: What is taken away from what is deployed.
    """

    def read_identities() -> dict[str, tuple[list[PolicyDocument], list[str]]]:
        return {name: _read(identity) for name, identity in identities.stored_identities().items()}

    def permissions(_request: dict[str, Any]) -> Mapping[str, Any]:
        read = read_identities()
        reports = report_of(
            uses.counted(),
            policies={name: policies for name, (policies, _problems) in read.items()},
            problems={name: problems for name, (_policies, problems) in read.items()},
        )
        return {"identities": REPORTS.dump_python(list(reports), mode="json")}

    def proofs(_request: dict[str, Any]) -> Mapping[str, Any]:
        policies = {name: policies for name, (policies, _problems) in read_identities().items()}
        document: Mapping[str, Any] = PROOFS.dump_python(prove(policies, uses.granted()), mode="json")
        return document

    def withhold(request: dict[str, Any]) -> Mapping[str, Any]:
        withheld.withhold(WITHHELD.validate_python(request.get("grants")))
        return {}

    def missed(_request: dict[str, Any]) -> Mapping[str, Any]:
        return {"missed": MISSED.dump_python(list(withheld.missed()), mode="json")}

    def judging_time(_request: dict[str, Any]) -> Mapping[str, Any]:
        document: Mapping[str, Any] = JUDGING_TIME.dump_python(uses.judging_time(), mode="json")
        return document

    return {
        "JudgingTime": judging_time,
        "Missed": missed,
        "Permissions": permissions,
        "Proofs": proofs,
        "Withhold": withhold,
    }


def _read(identity: StoredIdentity) -> tuple[list[PolicyDocument], list[str]]:
    policies, problems = [], []
    for name, document in identity.documents.items():
        try:
            policies.append(read_stored(document, name=name, kind=PolicyKind.IDENTITY))
        except IamPolicyError as error:
            problems.append(str(error))
    return policies, problems
