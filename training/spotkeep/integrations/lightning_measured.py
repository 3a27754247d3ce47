"""Values that Lightning measures in an epoch, in metrics and by `self.log`, and that no checkpoint of its own holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_max, dim_zero_min, dim_zero_sum

from .callback_states import all_alike


def metrics(trainer: Any) -> dict[str, Any]:
    """Give the sums of the metrics in the module, which no `state_dict` has."""
    return {
        name: {"updates": part._update_count, "state": part.metric_state}
        for name, part in trainer.lightning_module.named_modules()
        if isinstance(part, Metric)
    }


def logged(trainer: Any) -> list[dict[str, Any]]:
    """Give the values logged in this epoch, which are averaged over it, with the arguments of their logging."""
    entries = []
    for entry in trainer.fit_loop.epoch_loop._results.values():
        meta = entry.meta
        if not meta.on_epoch or entry.has_reset:
            continue
        names = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "add_dataloader_idx", "metric_attribute")
        entries.append(
            {
                "arguments": {name: getattr(meta, name) for name in names},
                "reduce_fx": meta.reduce_fx.__name__,
                "sync_dist": meta.sync.should,
                "rank_zero_only": meta.sync.rank_zero_only,
                "values": entry.metric_state if entry.is_tensor else None,
            }
        )
    return entries


def set_measured(trainer: Any, metrics: dict[str, Any], logged: list[dict[str, Any]]) -> None:
    """Put back the values that `metrics` and `logged` gave."""
    module, device = trainer.lightning_module, trainer.strategy.root_device
    for name, part in module.named_modules():
        if name in metrics:
            _set_metric(part, metrics[name]["state"], updates=metrics[name]["updates"], device=device)
    results = trainer.fit_loop.epoch_loop._results
    for entry in logged:
        arguments = entry["arguments"]
        # It is logged once, so that Lightning makes its own record, which then gets the values.
        results.log(
            value=torch.zeros((), device=device)
            if entry["values"] is not None
            else module.get_submodule(arguments["metric_attribute"]),
            batch_size=1,
            reduce_fx=getattr(torch, entry["reduce_fx"]),
            sync_dist=entry["sync_dist"],
            sync_dist_fn=trainer.strategy.reduce,
            rank_zero_only=entry["rank_zero_only"],
            **arguments,
        )
        if entry["values"] is not None:
            record = results[f"{arguments['fx']}.{arguments['name']}"]
            _set_metric(record, entry["values"], updates=record._update_count, device=device)
    if logged:
        # Else Lightning takes the next batch for the first one of the epoch, and sets what was logged to zero.
        trainer._logger_connector._first_loop_iter = False


def _set_metric(metric: Any, state: dict[str, Any], *, updates: int, device: Any) -> None:
    for name, value in state.items():
        setattr(metric, name, [one.to(device) for one in value] if isinstance(value, list) else value.to(device))
    metric._update_count, metric._computed = updates, None


def metrics_of_ranks(trainer: Any, states: Sequence[Mapping[str, Any]], *, share: tuple[int, int]) -> dict[str, Any]:
    """Give the sums of the metrics for a rank, from those of another number of ranks.

    Metrics bring together what the ranks have when they are computed. So rank 0 gets all sums, and lists are shared.

    Args:
        trainer: The Trainer.
        states: What `metrics` gave on each rank.
        share: The number of this rank, and of the ranks now.

    Raises:
        ValueError: A metric brings its values together in a way of its own.
    """
    reductions = {
        name: part._reductions for name, part in trainer.lightning_module.named_modules() if isinstance(part, Metric)
    }
    return {
        name: {
            "updates": max(state[name]["updates"] for state in states),
            "state": {
                value: _measured(f"{name}.{value}", reduce, [one[name]["state"][value] for one in states], share=share)
                for value, reduce in reductions[name].items()
            },
        }
        for name in states[0]
        if name in reductions
    }


def _measured(path: str, reduce: Any, values: Sequence[Any], *, share: tuple[int, int]) -> Any:
    rank, ranks = share
    if isinstance(values[0], list):
        return [one for value in values for one in value][rank::ranks]
    if reduce in (dim_zero_max, dim_zero_min):
        return reduce(torch.stack(list(values)))
    if reduce is dim_zero_sum:
        return torch.stack(list(values)).sum(dim=0) if rank == 0 else torch.zeros_like(values[0])
    if all_alike(values):
        return values[0]
    raise ValueError(
        f"the metric {path} brings the values of the ranks together in a way of its own; start with {len(values)} ranks"
    )


def logged_of_ranks(entries: Sequence[Sequence[dict[str, Any]]], *, share: tuple[int, int]) -> list[dict[str, Any]]:
    """Give the values logged in this epoch for a rank, from those of another number of ranks.

    Each rank gets an even share of sums and of the rows that they were made from, so that averages over ranks or of one
    rank stay what they are.

    Args:
        entries: What `logged` gave on each rank.
        share: The number of this rank, and of the ranks now.
    """
    return [
        {**of_all[0], "values": _logged_values(of_all[0]["reduce_fx"], [one["values"] for one in of_all], share=share)}
        for of_all in zip(*entries)
    ]


def _logged_values(
    reduce_fx: str, values: Sequence[dict[str, Any] | None], *, share: tuple[int, int]
) -> dict[str, Any] | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None  # a metric has them
    stacked = {name: torch.stack([value[name] for value in known]) for name in known[0]}
    if reduce_fx in ("max", "min"):
        return {name: getattr(value, f"a{reduce_fx}")(dim=0) for name, value in stacked.items()}
    rank, ranks = share
    if "cumulated_batch_size" not in stacked:
        return {name: value.sum(dim=0) / ranks for name, value in stacked.items()}
    rows = stacked["cumulated_batch_size"].sum(dim=0)
    own = rows // ranks + (rank < rows % ranks)
    return {"value": stacked["value"].sum(dim=0) * own / rows.clamp(min=1), "cumulated_batch_size": own}
