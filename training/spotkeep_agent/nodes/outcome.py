"""The way of a node into a world, and the outcome of that world for its agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from spotkeep.errors import CheckpointError
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep_agent.errors import NodePortError
from spotkeep_agent.volume.protocol import Leaving
from spotkeep_fleet.training_spec import NOT_STARTED

from .controller import NodesController
from .decisions import DONE, FAILED, INTERRUPTED, NodeEnd
from .world import World

REFUSED = "refused"
"""The outcome of a world in which a node that does not lead finds that its input works on no node."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a world for the agent of one node.

    Attributes:
        kind: `done` or `failed` on the leader, which concludes, else `refused`, or `interrupted` before the next world.
        exit_code: The exit code of the runner that counts.
        failure: The reason of a failure.
        never_entered: True where the training failed on this node, and not one of its lines has run.
    """

    kind: str
    exit_code: int
    failure: str = ""
    never_entered: bool = False


def join_world(nodes: NodesController, *, should_leave: Callable[[], str | None]) -> World | Leaving:
    """Wait for the next world of this node. Return it with its checkpoint here, or the reason to leave.

    Args:
        nodes: This node's part in the run.
        should_leave: Asked again and again for the reason to break off, None to go on.

    Raises:
        InputError: The input works on no node.
    """
    try:
        return nodes.begin(should_leave=should_leave)
    except (CheckpointError, NodePortError, OSError) as error:
        why = should_leave()
        return Leaving(str(error), failed=True) if why is None else Leaving(why)


def outcome_of_world(
    nodes: NodesController,
    exit_code: int,
    *,
    is_ended: bool,
    failure: Callable[[], str],
    never_entered: Callable[[], bool],
    seconds_left: Callable[[], float],
) -> Outcome:
    """Return the outcome of a world after the exit of this node's training, with the ends on the other nodes.

    Args:
        nodes: This node's part in the run.
        exit_code: The exit code of its runner.
        is_ended: True where the agent has ended the training.
        failure: Returns the reason why the training failed, from the disk.
        never_entered: Returns True if not one line of the script has run.
        seconds_left: The seconds for which the leader may wait for the other nodes, asked again and again.
    """
    own = NodeEnd(DONE if exit_code == 0 else INTERRUPTED, exit_code)
    if not is_ended and exit_code not in (0, EXIT_INTERRUPTED):
        own = NodeEnd(FAILED, exit_code, failure())
        if not nodes.holds_lease and (own.failure.startswith(NOT_STARTED) or never_entered()):
            return Outcome(REFUSED, exit_code, own.failure)
    found = nodes.ended(own, seconds_left=seconds_left)
    if not nodes.holds_lease or found.kind not in (DONE, FAILED):
        return Outcome(INTERRUPTED, exit_code)
    fails_here = found.kind == FAILED and own.kind == FAILED
    return Outcome(found.kind, found.exit_code, found.failure, never_entered=fails_here and never_entered())
