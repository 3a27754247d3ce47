"""Checkpoints that ranks in threads write together, and their restore by any number of ranks."""

from __future__ import annotations

import itertools

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import Progress
from spotkeep.disk.staged_state import StagedState
from spotkeep.ranks.rank_group import Joinables, RankComparison
from spotkeep.ranks.rank_shares import view_for
from spotkeep.ranks.shared_directory import SharedDirectory
from spotkeep.state.divided import Box
from spotkeep.state.encoding import encode_state


def grid(shape, counts):
    """Boxes that cover an array, one for each place of a grid."""
    axes = []
    for size, count in zip(shape, counts, strict=True):
        cuts = sorted({size * number // count for number in range(count + 1)})
        axes.append([(start, end - start) for start, end in itertools.pairwise(cuts)])
    places = itertools.product(*axes)
    return [Box(tuple(at for at, _ in place), tuple(size for _, size in place)) for place in places]


def save_on(world, path, states, *, own=None, step=1):
    """Save the state of each rank. Gives the bytes that each has written."""

    def act(ranks):
        comparison = RankComparison(ranks, Joinables())
        directory = SharedDirectory(path, ranks=ranks)
        encoded = comparison.encode(lambda: (encode_state(states[ranks.rank]), encode_state(own or {})))
        staged = StagedState()
        images = staged.arrange(encoded.parts)
        staged.copy(images)
        directory.write_images(images, encoded.document, step=step, progress=Progress())
        return sum(part.size for part in encoded.parts)

    found = world(len(states)).run(act)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return found


def restore_on(path, state, *, rank, world_size, step=1):
    """Read a checkpoint into the state of one rank."""
    found = CheckpointDirectory(path).open(
        step,
        live=state,
        view=lambda one: view_for(one, rank=rank, world_size=world_size, per_rank=[]),
    )
    found.fill()
    return found.state
