"""The client of the control plane's part about permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.control import ControlConnection
from spotkeep_local.iam.report import REPORTS
from spotkeep_local.iam.uses import JUDGING_TIME

if TYPE_CHECKING:
    from spotkeep_local.iam.report import IdentityReport
    from spotkeep_local.iam.uses import JudgingTime
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
