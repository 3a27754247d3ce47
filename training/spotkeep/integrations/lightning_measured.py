"""Values that Lightning measures in an epoch, in metrics and by `self.log`, and that no checkpoint of its own holds."""

from __future__ import annotations

from typing import Any

import torch
from torchmetrics import Metric


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


def _set_metric(metric: Any, state: dict[str, Any], *, updates: int, device: Any) -> None:
    for name, value in state.items():
        setattr(metric, name, [one.to(device) for one in value] if isinstance(value, list) else value.to(device))
    metric._update_count, metric._computed = updates, None
