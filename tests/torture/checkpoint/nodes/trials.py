"""The trials of nodes, and their judge. Each ruins a world of two to four nodes, and lets one to three others go on.

These rules hold in each trial. A world restores at least the newest step that a leader reported under its lease. All
that it restores is of one step, and each of its steps is of a world that had the lease. The history has each step once.
No rank hangs. A notice that leaves enough time costs at most one step. The last world trains to its end, and S3 has
that.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.torture.checkpoint.interposition import EXCHANGE, applies
from tests.torture.checkpoint.nodes.worlds import RANKS_OF_A_NODE, RankWorld
from tests.torture.checkpoint.ranks.trials import RankJudge, last_words
from tests.torture.checkpoint.ranks.world import KILLED, RankEnd
from tests.torture.checkpoint.trials import TrialFindings

STEPS = 3
"""Steps that each world adds."""
_EXIT_INTERRUPTED = 75

RANK_LOST, NODE_LOST = "a rank is lost", "a node is lost"
COPIES_LOST, HANGS = "a node is lost in its copies", "a node hangs and wakes up"
SPLIT, LATE_NOTICE = "the network splits", "a late notice"
_UNDER_TORCHRUN = "under torchrun"
GROUPS = (RANK_LOST, NODE_LOST, COPIES_LOST, HANGS, SPLIT, LATE_NOTICE, _UNDER_TORCHRUN)
_SHARES = {RANK_LOST: 0.2, NODE_LOST: 0.24, COPIES_LOST: 0.22, HANGS: 0.12, SPLIT: 0.12, LATE_NOTICE: 0.1}
_AT_CALLS = (RANK_LOST, NODE_LOST, HANGS)


@dataclass(frozen=True, kw_only=True)
class NodeTrial:
    """One trial.

    Attributes:
        ruin: The first of `GROUPS` that says what happens.
        kind: A kind of fault of `interposition.KINDS` that strikes a rank. Empty for none.
        nodes: The nodes of the first world.
        rank: The rank that is struck, or a rank of the node that is.
        call: The number of the call of the rank, or the operation of its node's copies.
        name: The name of the call.
        then: The numbers of nodes of the worlds after it.
        seed: Of what is left to chance.
        by_torchrun: True where torchrun starts the ranks of the first world.
    """

    ruin: str
    kind: str
    nodes: int
    rank: int
    call: int
    name: str
    then: tuple[int, ...]
    seed: int
    by_torchrun: bool = False

    @property
    def group(self) -> str:
        """The row of the table that counts it."""
        return _UNDER_TORCHRUN if self.by_torchrun else self.ruin

    def __str__(self) -> str:
        torchrun = f" {_UNDER_TORCHRUN}" if self.by_torchrun else ""
        return (
            f"{self.ruin} at {self.kind or 'operation'} {self.call} ({self.name}) of rank {self.rank}, "
            f"{self.nodes} nodes{torchrun}, restored by {' and '.join(map(str, self.then))} nodes"
        )


def plan(*, seed: int, trials: int, by_torchrun: int, calls: Sequence[Sequence[str]]) -> list[NodeTrial]:
    """Draw the trials. The same seed and the same calls give the same trials.

    Args:
        seed: The seed.
        trials: How many.
        by_torchrun: How many of them torchrun starts.
        calls: The names of the calls of each rank of two nodes in an undisturbed world. Then those of the operations by
            the copies of the leader's node, and of the other one.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    *of_ranks, of_leader, of_other = calls
    ruins = list(_SHARES)
    drawn = [ruins[number] for number in range(min(trials, len(ruins)))]
    drawn += chance.choices(ruins, list(_SHARES.values()), k=trials - len(drawn))
    made = []
    for number, ruin in enumerate(drawn):
        nodes = chance.randint(2, 4)
        rank = chance.randrange(nodes * RANKS_OF_A_NODE)
        if ruin in _AT_CALLS:
            kind, call, name = _strike(ruin, of_ranks[_like(rank)], chance)
        else:
            names = of_leader if rank < RANKS_OF_A_NODE else of_other
            kind, call = "", chance.randrange(len(names))
            name = names[call]
        then = tuple(chance.randint(1, 4) for _ in range(chance.randint(1, 3)))
        made.append(
            NodeTrial(
                ruin=ruin,
                kind=kind,
                nodes=nodes,
                rank=rank,
                call=call,
                name=name,
                then=then,
                seed=chance.randrange(2**32),
                by_torchrun=number >= trials - by_torchrun,
            )
        )
    # A run that is stopped has then done some of each kind.
    chance.shuffle(made)
    return made


def _like(rank: int) -> int:
    """Give the rank of two nodes that does what a rank of four does."""
    return rank if rank < RANKS_OF_A_NODE else RANKS_OF_A_NODE + rank % RANKS_OF_A_NODE


def _strike(ruin: str, names: Sequence[str], chance: random.Random) -> tuple[str, int, str]:
    """Draw a fault at a file operation, or at a message, which are counted apart."""
    at_message = ruin != HANGS and EXCHANGE in names and chance.random() < 1 / 3
    of_kind = [name for name in names if (name == EXCHANGE) == at_message]
    call = chance.randrange(len(of_kind))
    name = of_kind[call]
    kind = "stop" if ruin == HANGS else "kill-message" if at_message else "kill"
    if kind == "kill" and applies("kill-midway", name) and chance.random() < 0.5:
        kind = "kill-midway"
    return kind, call, name


@dataclass(kw_only=True)
class NodeJudge(RankJudge):
    """Judges the worlds of one run, in the order of their fences.

    Attributes:
        worlds_of_steps: The fence of each step that the next world with the lease may restore.
    """

    worlds_of_steps: list[int] = field(default_factory=list)

    def hear(self, words: Sequence[dict[str, Any]]) -> None:
        """Take what was begun. What a rank has on its disk alone may be lost with it."""
        self.begun = max([self.begun, *(word["step"] for word in words if word["what"] == "begun")])

    def see_world(self, world: RankWorld, *, total_steps: int, is_struck: bool) -> None:
        """Judge a world that had the lease when it began.

        Args:
            world: The world, which is over.
            total_steps: The steps of the whole training.
            is_struck: True where it need not come to its end.
        """
        if world.hangs:
            self.note(f"world {world.fence} did not end")
        restored = {word["step"] for end in world.ends() for word in end.words if word["what"] == "restored"}
        for step in restored - {world.step}:
            self.note(f"world {world.fence} restored step {step}, and its leader named {world.step}", corrupt=1)
        self.see_ends(
            world.ends(), fence=world.fence, durable=world.durable, total_steps=total_steps, is_struck=is_struck
        )

    def see_ends(self, ends: Sequence[RankEnd], *, fence: int, durable: int, total_steps: int, is_struck: bool) -> None:
        """Judge the ends of a world's ranks.

        Args:
            ends: The ends.
            fence: The fence of the world.
            durable: The newest step that a leader had reported before.
            total_steps: The steps of the whole training.
            is_struck: True where the world need not come to its end.
        """
        self.durable = durable
        if is_struck:
            self.see_states(ends)
            self.hear([word for end in ends for word in end.words])
            self._see_codes(ends)
        else:
            self.see(ends, total_steps=total_steps)
        self._see_worlds(ends, "restored", fence)
        restored = next((word for end in ends for word in end.words if word["what"] == "restored"), None)
        if restored is not None:
            self.worlds_of_steps = [*restored["worlds"], *([fence] * STEPS)]
            self._see_worlds(ends, "finished", fence)

    def _see_worlds(self, ends: Sequence[RankEnd], what: str, fence: int) -> None:
        for word in (word for end in ends for word in end.words if word["what"] == what):
            if word["worlds"] != self.worlds_of_steps[: word["step"]]:
                self.note(
                    f"world {fence} {what} steps of the worlds {word['worlds']}, and with the lease were "
                    f"{self.worlds_of_steps[: word['step']]}",
                    corrupt=1,
                )

    def _see_codes(self, ends: Sequence[RankEnd]) -> None:
        for rank, end in enumerate(ends):
            self.found += TrialFindings(kills=int(end.exit_code == KILLED))
            if end.exit_code not in (0, 1, _EXIT_INTERRUPTED, KILLED, None):
                self.note(f"rank {rank} ended with {end.exit_code}: {last_words(end)}")

    def see_notice(self, ends: Sequence[RankEnd], *, durable: int) -> None:
        """Judge a world whose copies have arrived in the time of a notice. It loses no step that it had completed."""
        if not {end.exit_code for end in ends} <= {0, _EXIT_INTERRUPTED}:
            return
        self.count(**{"notices in time": 1})
        if durable < self.begun - 1:
            self.note(f"step {durable} is in S3 after a notice in step {self.begun}", lost=self.begun - 1 - durable)
