"""Lightning's own state of each rank, made for another number of ranks.

Lightning's `DistributedSampler` gives rank r of n the samples r, r + n, r + 2n, ... of one common order. So the batches
that n ranks have done are a beginning of that order. Another number of ranks goes on behind them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from spotkeep.loops.places_of_ranks import DEALT, Division, SavedPlace
from spotkeep.state.rank_states import state_of_rank

from .callback_states import all_alike, state_of_ranks
from .lightning_measured import logged_of_ranks, metrics_of_ranks

_logger = logging.getLogger("spotkeep")

_SHOWN = 5
_LIBRARY = ("lightning", "pytorch_lightning")


def replicas_of(trainer: Any) -> int:
    """Give the number of ranks, or of groups of ranks, with data of their own."""
    kwargs = getattr(trainer.strategy, "distributed_sampler_kwargs", None)
    return 1 if kwargs is None else int(kwargs["num_replicas"])


def state_for_rank(trainer: Any, states: Sequence[dict[str, Any]], *, rank: int, world_size: int) -> dict[str, Any]:
    """Give the state of a rank, from those that another number of ranks has saved.

    Args:
        trainer: The Trainer.
        states: The state of each rank.
        rank: The number of this rank.
        world_size: The number of ranks now.

    Raises:
        ValueError: A part differs from rank to rank, and there is no rule for it.
    """
    first = states[0]
    checkpoints = [state["checkpoint"] for state in states]
    checkpoint = {
        name: _part(trainer, name, [one[name] for one in checkpoints], rank=rank, world_size=world_size)
        for name in checkpoints[0]
    }
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    batches = _batches(trainer, first, ended=progress["is_last_batch"], world_size=world_size)
    progress["current"].update(dict.fromkeys(progress["current"], batches))
    share = (rank, world_size)
    return {
        **first,
        "checkpoint": checkpoint,
        "batches": batches,
        "epoch_random": state_of_rank([state["epoch_random"] for state in states], rank=rank),
        "metrics": metrics_of_ranks(trainer, [state["metrics"] for state in states], share=share),
        "logged": logged_of_ranks([state["logged"] for state in states], share=share),
        "orders": [
            {**order, "digest": None, "ranks_changed": True, "place": _place_in(order, first) if rank == 0 else None}
            for order in first["orders"]
        ],
    }


def _place_in(order: Mapping[str, Any], saved: Mapping[str, Any]) -> SavedPlace | None:
    """Give the place of the ranks that saved it in the pass of a loader. None at its beginning."""
    if order["digest"] is None or order["batch_size"] is None:
        return None
    division = Division(DEALT, order["batch_size"], int(saved["replicas"]))
    return SavedPlace((order["position"],), None, division, (order["digest"],))


def _batches(trainer: Any, saved: Mapping[str, Any], *, ended: bool, world_size: int) -> int:
    """Give the batches of the epoch that each rank has behind it.

    Raises:
        ValueError: No step of these ranks ends there.
    """
    done, replicas = int(saved["batches"]) * int(saved["replicas"]), replicas_of(trainer)
    if ended:
        return -(-done // replicas)  # at least as many as the epoch has
    a_step = replicas * int(trainer.accumulate_grad_batches)
    if done % a_step:
        raise ValueError(
            f"{done} batches of epoch {saved['epoch']} are done, and steps of {a_step} on {world_size} ranks do not "
            "end there, so samples would come twice. Start as many ranks as saved it, or let a step have as many "
            "batches of all ranks, by accumulate_grad_batches (`spotkeep help exact-data`)"
        )
    return done // replicas


def _part(trainer: Any, name: str, parts: Sequence[Any], *, rank: int, world_size: int) -> Any:
    if name == "callbacks":
        return _callbacks(trainer, parts, rank=rank, world_size=world_size)
    if all_alike(parts):
        return parts[0]
    if name == "state_dict":
        differ = [key for key in parts[0] if not all_alike([part[key] for part in parts])]
        if rank == 0:
            _logger.warning(
                "each of %d ranks had its own values in %s; with %d all begin with those of rank 0",
                *(len(parts), ", ".join(differ[:_SHOWN]), world_size),
            )
        return parts[0]
    raise ValueError(
        f"{name} in Lightning's checkpoint has another state on each of the {len(parts)} ranks that saved it; start "
        f"with {len(parts)} ranks"
    )


def _callbacks(trainer: Any, states: Sequence[Mapping[str, Any]], *, rank: int, world_size: int) -> dict[str, Any]:
    """Give the states of the callbacks. Of Lightning's own it is rank 0's, as in Lightning's own checkpoints."""
    known = {callback.state_key: callback for callback in trainer.callbacks}
    taken = dict(states[0])
    for key in taken:
        callback = known.get(key)
        if callback is not None and type(callback).__module__.partition(".")[0] not in _LIBRARY:
            taken[key] = state_of_ranks(callback, [state[key] for state in states], rank=rank, world_size=world_size)
    return taken
