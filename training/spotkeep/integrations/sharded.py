"""Models and optimizers with tensors that are divided among the ranks, for fully sharded and tensor-parallel training.

Each rank saves its part of every tensor and restores it. No rank gathers anything. A restore needs the same number of
ranks and the same division, and refuses any other. torch's `get_state_dict` and `set_state_dict` name the optimizer's
state by its parameters. They also create it where an optimizer has none yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable

from spotkeep.errors import UsageError

try:
    import torch
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.tensor import DTensor
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.sharded needs torch 2.6 or newer ({error})") from error


class ShardedState:
    """A model and its optimizers as the parts that this rank holds. It goes into `per_rank` of a `Checkpointer`.

    ```python
    shards = ShardedState(model, optimizer)
    with Checkpointer({"schedule": schedule}, per_rank={"shards": shards, "random": RandomStates()}) as checkpointer:
    ```

    Args:
        model: A module with parameters that are DTensors, all or some, by `fully_shard` or `parallelize_module`.
        optimizers: Its optimizer, or several.
    """

    def __init__(
        self, model: torch.nn.Module, optimizers: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] = ()
    ) -> None:
        self._model = model
        self._optimizers = (optimizers,) if isinstance(optimizers, torch.optim.Optimizer) else tuple(optimizers)

    def state_dict(self) -> dict[str, Any]:
        """Give the parts on this rank, and the division of each tensor.

        Raises:
            UsageError: A tensor is divided in the way of torch's older `FullyShardedDataParallel`.
        """
        layout: dict[str, Any] = {}

        def part(tensor: Any, path: str) -> Any:
            if not isinstance(tensor, DTensor):
                _refuse_older_shards(tensor, path)
                return tensor
            layout[path] = _division(tensor)
            return tensor.to_local()

        parts = _mapped(self._state(), part, "")
        return {**parts, "layout": layout}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take the state that `state_dict` gave on this rank.

        Raises:
            ValueError: A tensor is divided in another way than the saved one.
        """
        for optimizer in self._optimizers:
            # Without gradients torch makes the state of an optimizer that has none, to be filled.
            optimizer.zero_grad(set_to_none=True)
        live: dict[str, DTensor] = {}

        def remember(tensor: Any, path: str) -> Any:
            if isinstance(tensor, DTensor):
                live[path] = tensor
            return tensor

        _mapped(self._state(), remember, "")
        layout = saved["layout"]
        changed = sorted(
            path
            for path in {*layout, *live}
            if path not in layout or path not in live or layout[path] != _division(live[path])
        )
        if changed:
            raise ValueError(f"another division among the ranks than when it was saved: {', '.join(changed[:5])}")

        def whole(part: Any, path: str) -> Any:
            if path not in live:
                return part
            tensor = live[path]
            return DTensor.from_local(
                part.to(tensor.device),
                tensor.device_mesh,
                tensor.placements,
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )

        wholes = _mapped({name: part for name, part in saved.items() if name != "layout"}, whole, "")
        set_state_dict(
            self._model,
            self._optimizers,
            model_state_dict=wholes["model"],
            optim_state_dict=wholes["optimizers"],
        )

    def _state(self) -> dict[str, Any]:
        model, optimizers = get_state_dict(self._model, self._optimizers)
        return {"model": model, "optimizers": optimizers}


def _mapped(value: Any, change: Callable[[Any, str], Any], path: str) -> Any:
    """Give a nested structure with every leaf changed."""
    if isinstance(value, dict):
        return {key: _mapped(item, change, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(item, change, f"{path}.{index}") for index, item in enumerate(value))
    return change(value, path)


def _division(tensor: DTensor) -> dict[str, Any]:
    """Describe the division of a tensor. Two runs have equal ones if their ranks hold equal parts."""
    mesh = tensor.device_mesh
    return {
        "shape": list(tensor.shape),
        "placements": [str(placement) for placement in tensor.placements],
        "mesh": mesh.mesh.tolist(),
    }


def _refuse_older_shards(value: Any, path: str) -> None:
    if type(value).__name__ == "ShardedTensor":
        raise UsageError(
            f"{path} is a ShardedTensor, which torch has left behind: divide the model with "
            "torch.distributed.fsdp.fully_shard instead of FullyShardedDataParallel, or save whole tensors"
        )
