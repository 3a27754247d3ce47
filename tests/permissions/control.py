"""Starts a local AWS with the withholding judge, and is the client of that judge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from spotkeep_local import lifecycle
from spotkeep_local.control_connection import ControlConnection
from tests.permissions.proof import PROOFS
from tests.permissions.withheld import MISSED, WITHHELD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_local.options import ServerOptions
    from tests.permissions.proof import Proofs
    from tests.permissions.withheld import MissedGrant, WithheldGrant

_JUDGE: Final = "tests.permissions.judge:WithholdingJudge"
_ROOT: Final = Path(__file__).parents[2]


def start(state_dir: Path, *, port: int | None = None, options: ServerOptions) -> LocalAws:
    """Start a local AWS from which grants can be taken away.

    Args:
        state_dir: The directory of its state.
        port: The port on which it listens. Default: any.
        options: Its settings.

    Raises:
        StartError: The server did not come up.
    """
    # A package of SageMaker's SDK installs another `tests`, which the server would find first.
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    with patch.dict(os.environ, PYTHONPATH=path):
        return lifecycle.start(state_dir, port, options, judge=_JUDGE)


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


def missed(local: LocalAws) -> list[MissedGrant]:
    """Return the withheld grants that calls were denied for, in their order.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    return MISSED.validate_python(ControlConnection(local).call("Missed", {})["missed"])
