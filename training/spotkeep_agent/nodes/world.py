"""A world, the reasons to end it, and the times of a run's nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spotkeep_fleet.record import NODES_LEASE_SECONDS

from .connections import SILENT_SECONDS
from .decisions import REJOIN_SECONDS, SETTLE_SECONDS, STALL_SECONDS

_LOOK_SECONDS = 5.0
_SHORTEST_STALL_SECONDS = 30.0
_SHORTEST_SILENCE_SECONDS, _SHORTEST_LEASE_SECONDS, _SHORTEST_LOOK_SECONDS = 5.0, 6.0, 0.5


@dataclass(frozen=True)
class World:
    """The nodes that train together.

    Attributes:
        fence: The fencing token of the lease of this world.
        hosts: The addresses of the nodes, in the order of their ranks. The first one is the leader.
        place: The place of this node among them, from 0.
        step: The step of the checkpoint that they go on from. None to begin.
    """

    fence: int
    hosts: tuple[str, ...]
    place: int
    step: int | None


@dataclass(frozen=True)
class Ending:
    """A reason to end the training of this node.

    Attributes:
        why: The reason, for people.
        saves: True where all nodes save together before. False where a node is lost, for which the others would wait,
            and where nothing is to be saved.
    """

    why: str
    saves: bool = False


@dataclass(frozen=True)
class NodesTimes:
    """The times of a run's nodes, in seconds.

    Attributes:
        lease: The time for which the lease of a living node stays unchanged at most.
        silent: A node from which nothing comes for longer is gone.
        settle: The time without an arrival before a world with more nodes than the one before.
        first: The time without an arrival before a first world with fewer nodes than there may be.
        rejoin: The longest wait for nodes of the world before that have no connection.
        look: The time between two looks for a leader.
        stall: A node that brings no more of a checkpoint for longer is gone.
    """

    lease: float = NODES_LEASE_SECONDS
    silent: float = SILENT_SECONDS
    settle: float = SETTLE_SECONDS
    first: float = SETTLE_SECONDS
    rejoin: float = REJOIN_SECONDS
    look: float = _LOOK_SECONDS
    stall: float = STALL_SECONDS

    @classmethod
    def scaled(cls, factor: float, *, first: float | None = None) -> NodesTimes:
        """Return the times where time passes faster by a factor. A busy machine is silent for some seconds, too.

        Args:
            factor: The factor.
            first: The time before a first world, which no factor changes. None for that of AWS.
        """
        whole = cls()
        if factor == 1.0:
            return whole if first is None else replace(whole, first=first)
        return cls(
            lease=max(whole.lease / factor, _SHORTEST_LEASE_SECONDS),
            silent=max(whole.silent / factor, _SHORTEST_SILENCE_SECONDS),
            settle=whole.settle / factor,
            first=whole.first / factor if first is None else first,
            rejoin=max(whole.rejoin / factor, _SHORTEST_SILENCE_SECONDS),
            look=max(whole.look / factor, _SHORTEST_LOOK_SECONDS),
            stall=max(whole.stall / factor, _SHORTEST_STALL_SECONDS),
        )
