"""The control plane's part about Lambda functions, and its client: an invocation dies in the middle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.control_connection import ControlConnection
from spotkeep_local.service_base.aws_service import control_service

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_local.service_base.aws_service import AwsService

CONTROL_TARGET: Final = "SpotkeepLocalFunctions"


def functions_control(end_invocations: Callable[[str], int]) -> AwsService:
    """Make the service.

    Args:
        end_invocations: Kills the processes of the invocations of a function that are under way; returns how many.
    """

    def end(request: dict[str, Any]) -> dict[str, Any]:
        return {"ended": end_invocations(str(request["function"]))}

    return control_service(CONTROL_TARGET, {"EndInvocations": end})


def end_invocations(local: LocalAws, *, function: str) -> int:
    """Kill the process of each invocation of a function that is under way, as when its machine dies.

    Lambda tries an asynchronous invocation again; what an event rule has invoked is not tried again here.

    Args:
        local: The local AWS.
        function: The function's name.

    Returns:
        How many there were.

    Raises:
        ControlError: The local AWS refused, or is not there.
    """
    answer = ControlConnection(local, prefix=CONTROL_TARGET).call("EndInvocations", {"function": function})
    return int(answer["ended"])
