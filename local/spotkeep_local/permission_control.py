"""The client of the control plane's part about permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.control import ControlConnection
from spotkeep_local.iam.proof import PROOFS
from spotkeep_local.iam.report import REPORTS
from spotkeep_local.iam.uses import JUDGING_TIME
from spotkeep_local.iam.withheld import MISSED, WITHHELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_local.iam.proof import Proofs
    from spotkeep_local.iam.report import IdentityReport
    from spotkeep_local.iam.uses import JudgingTime
    from spotkeep_local.iam.withheld import Missed, WithheldGrant
    from spotkeep_local.lifecycle import LocalAws


def permissions(local: LocalAws) -> list[IdentityReport]:
    """Return what every role and user of a local AWS called since it began, and what it was not used for.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    answer = ControlConnection(local).call("Permissions", {})
    return REPORTS.validate_python(answer["identities"])


def judging_time(local: LocalAws) -> JudgingTime:
    """Return what judging took since a local AWS began.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    return JUDGING_TIME.validate_python(ControlConnection(local).call("JudgingTime", {}))


def proofs(local: LocalAws) -> Proofs:
    """Have everything that was granted since a local AWS began taken away, and return what that showed.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    return PROOFS.validate_python(ControlConnection(local).call("Proofs", {}))


def withhold(local: LocalAws, grants: Iterable[WithheldGrant]) -> None:
    """Take these grants away in place, each until a call is denied for want of it; give back all others.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    document = {"grants": WITHHELD.dump_python(list(grants), mode="json")}
    ControlConnection(local).call("Withhold", document)


def missed(local: LocalAws) -> list[Missed]:
    """Return the withheld grants that calls were denied for, in their order.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    return MISSED.validate_python(ControlConnection(local).call("Missed", {})["missed"])
