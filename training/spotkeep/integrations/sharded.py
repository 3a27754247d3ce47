"""Models in parts, for fully sharded, tensor-parallel and pipeline-parallel training of torch.

`ShardedState` names the state of optimizers by parameter, and it unites the stages of a pipeline. So a checkpoint
depends neither on the number of ranks nor on the division of the model among them.
"""

from __future__ import annotations

import contextlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

from spotkeep.errors import UsageError
from spotkeep.state.divided import DividedArray, divided_of, new_like
from spotkeep.state.encoding import Json, encoded_pairs
from spotkeep.state.state_dicts import WRAPPED_AS, StateDict, put_back_optimizer
from spotkeep.state.united import MISSING, UnitedState, absent_array, outline_of, united

try:
    import torch
    from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
    from torch.distributed.fsdp import (
        FullyShardedDataParallel,
        ShardedOptimStateDictConfig,
        ShardedStateDictConfig,
        StateDictType,
    )
    from torch.distributed.tensor import DTensor  # noqa: F401 - parts are found where this is imported
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.sharded needs torch 2.6 or newer ({error})") from error

_Modules = Union[torch.nn.Module, Sequence[torch.nn.Module]]
_Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]

_WRAPPED_AS = {
    **WRAPPED_AS,
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
}
"""The attribute with the module itself, in wrappers that no name of a parameter shows."""

_OLDER_PARTS = "`_get_pg_default_device`|Multiple backends are registered with this ProcessGroup"
"""The beginnings of what torch says when its older `FullyShardedDataParallel` asks for the device of a group."""

_SHOWN = 5


class ShardedState(UnitedState):
    """A model and its optimizers, of which each rank may hold a part. It goes into the `state` of a `Checkpointer`.

    ```python
    with Checkpointer({"shards": ShardedState(model, optimizer), "schedule": schedule}) as checkpointer:
    ```

    A training of any number of ranks takes it back, in any division. A model divided by `fully_shard` or
    `parallelize_module` may be in the state as it is. This object is for an optimizer of several pipeline stages, for
    torch's older `FullyShardedDataParallel`, and for tensor parallelism in each of several replicas.

    Args:
        model: A module, or several, for example the pipeline stages of this rank. Their parameters have different
            names. A name that two ranks have is one parameter.
        optimizers: Its optimizer, or several, in the same order on all ranks.
    """

    def __init__(self, model: _Modules, optimizers: _Optimizers = ()) -> None:
        self._models = (model,) if isinstance(model, torch.nn.Module) else tuple(model)
        self._optimizers = (optimizers,) if isinstance(optimizers, torch.optim.Optimizer) else tuple(optimizers)
        self._outlines: Sequence[Json] = ()
        self._rank = 0

    def state_dict(self) -> dict[str, Any]:
        """Give the state of the whole model, with the memory of this rank's part.

        Raises:
            UsageError: A tensor is spread in a way that has no boxes, or an optimizer has parameters of other models.
        """
        return self._joined(self._local())

    def outline(self) -> Json:
        """Describe the part of this rank, as JSON."""
        return _outline(self._local(), {name for name, _ in _parameters(self._models)})

    def unite(self, outlines: Sequence[Json], *, rank: int) -> None:
        """Take the outlines of all ranks.

        Args:
            outlines: The outlines, in the order of the ranks.
            rank: The number of this rank.
        """
        self._outlines, self._rank = tuple(outlines), rank

    def state_to_fill(self, document: Json) -> dict[str, Any]:
        """Give the state with memory for all that a saved state has, also for an optimizer without any state yet.

        Args:
            document: The saved state.

        Raises:
            UsageError: The saved state of an optimizer is divided, and lies otherwise than its parameter.
        """
        local = self._local()
        state = self._joined(local)
        for live, saved in zip(state["optimizers"], _saved_optimizers(document)):
            for name, entries in saved.items():
                memory = live["state"].get(name, {})
                for key, node in entries.items():
                    if key not in memory:
                        memory[key] = _memory_for(node, local["model"].get(name, MISSING), f"the {key} of {name}")
                if memory:
                    live["state"][name] = memory
        return state

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Take a state of `state_dict`, of any number of ranks.

        Raises:
            ValueError: The groups of an optimizer are others than the saved ones.
            RuntimeError: The model has other parameters.
        """
        older = self._older()
        with _quiet(older):
            for module in self._models:
                _load_model(module, saved["model"])
            if len(saved["optimizers"]) != len(self._optimizers):
                raise ValueError(
                    f"{len(saved['optimizers'])} optimizers were saved, and there are {len(self._optimizers)}"
                )
            for optimizer, kept in zip(self._optimizers, saved["optimizers"]):
                if older is None:
                    _load_optimizer(optimizer, kept, _names_of(self._models))
                else:
                    _load_older_optimizer(older, optimizer, kept)

    def _older(self) -> torch.nn.Module | None:
        """Give the model that is divided by torch's older `FullyShardedDataParallel`, if it is."""
        older = [model for model in self._models if FullyShardedDataParallel.fsdp_modules(model)]
        if older and len(self._models) > 1:
            raise UsageError(
                "a FullyShardedDataParallel is one of several models of a ShardedState: divide all of them with "
                "torch.distributed.fsdp.fully_shard instead"
            )
        return older[0] if older else None

    def _local(self) -> dict[str, Any]:
        """Give the part of this rank."""
        older = self._older()
        names = {} if older is not None else _names_of(self._models)
        with _quiet(older):
            return {
                "model": _model_state(self._models),
                "optimizers": [
                    _optimizer_state(optimizer, names) if older is None else _older_optimizer_state(older, optimizer)
                    for optimizer in self._optimizers
                ],
            }

    def _joined(self, local: dict[str, Any]) -> dict[str, Any]:
        """Give the state of all ranks, from the part of this one and the outlines of all."""
        outlines, rank = self._outlines, self._rank
        if not outlines:
            outlines, rank = [_outline(local, {name for name, _ in _parameters(self._models)})], 0
        bodies = [dict(outline[1]) for outline in outlines]
        model = StateDict(united(local["model"], [body["model"] for body in bodies]))
        _join_facts(model, [dict(body["facts"][1]) for body in bodies])
        optimizers = []
        for index, live in enumerate(local["optimizers"]):
            each = [dict(body["optimizers"][1][index][1]) for body in bodies]
            state = united(live["state"], [one["state"] for one in each])
            groups = _joined_groups(live["param_groups"], [one["groups"] for one in each], rank=rank)
            optimizers.append({"state": state, "param_groups": groups})
        return {"model": model, "optimizers": optimizers}


@dataclass(frozen=True)
class _Part:
    """One module inside another.

    Attributes:
        path: Its name with that of each wrapper, as `named_modules` gives it.
        name: Its name without wrappers.
        module: The module.
    """

    path: str
    name: str
    module: torch.nn.Module


def _parts(model: torch.nn.Module) -> Iterator[_Part]:
    left = [_Part("", "", model)]
    while left:
        part = left.pop()
        yield part
        wrapped_as = _WRAPPED_AS.get(type(part.module).__name__)
        inner = [
            _Part(_inside(part.path, key), part.name if key == wrapped_as else _inside(part.name, key), module)
            for key, module in part.module._modules.items()
            if module is not None
        ]
        left += reversed(inner)


def _inside(outer: str, key: str) -> str:
    return f"{outer}.{key}" if outer else key


def _parameters(models: Sequence[torch.nn.Module]) -> Iterator[tuple[str, torch.nn.Parameter]]:
    for model in models:
        for part in _parts(model):
            for key, parameter in part.module._parameters.items():
                if parameter is not None:
                    yield _inside(part.name, key), parameter


def _names_of(models: Sequence[torch.nn.Module]) -> dict[int, str]:
    """Give the name of each parameter by its identity. One with several names has the first one."""
    names: dict[int, str] = {}
    for name, parameter in _parameters(models):
        names.setdefault(id(parameter), name)
    return names


def _model_state(models: Sequence[torch.nn.Module]) -> StateDict:
    state = StateDict()
    metadata: dict[str, Any] = {}
    frozen: list[str] = []
    evaluating: list[str] = []
    for model in models:
        items: Any = get_model_state_dict(model)
        twice = sorted(state.keys() & items.keys())
        if twice:
            raise UsageError(f"two models of a ShardedState have {', '.join(twice[:_SHOWN])}: give them other names")
        state.update(items)
        versions = getattr(items, "_metadata", None) or {}
        for part in _parts(model):
            if part.path in versions:
                metadata[part.name] = versions[part.path]
            if not part.module.training:
                evaluating.append(part.name)
            frozen += [
                _inside(part.name, key)
                for key, parameter in part.module._parameters.items()
                if parameter is not None and not parameter.requires_grad
            ]
    state._metadata = metadata
    state.frozen, state.evaluating = tuple(frozen), tuple(dict.fromkeys(evaluating))
    return state


def _optimizer_state(optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> dict[str, Any]:
    """Give an optimizer's state by the names of its parameters.

    torch's `get_optimizer_state_dict` would let an optimizer without a state make a step first, and count it.
    """
    given = optimizer.state_dict()
    by_number: dict[Any, str] = {}
    unknown = 0
    for group, packed in zip(optimizer.param_groups, given["param_groups"]):
        for parameter, number in zip(group["params"], packed["params"]):
            name = names.get(id(parameter))
            unknown += name is None
            by_number[number] = name or ""
    if unknown:
        raise UsageError(
            f"an optimizer of a ShardedState has {unknown} parameters that its models do not have: pass all models of "
            "the optimizer, and make the optimizer after the models have been divided"
        )
    return {
        "state": {by_number.get(number, number): dict(kept) for number, kept in given["state"].items()},
        "param_groups": [
            {**packed, "params": [by_number[number] for number in packed["params"]]} for packed in given["param_groups"]
        ],
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], names: Mapping[int, str]) -> None:
    state: dict[int, Any] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for group in optimizer.param_groups:
        own = [names[id(parameter)] for parameter in group["params"]]
        numbers = list(range(number, number + len(own)))
        number += len(own)
        state.update({at: _given(saved["state"][name]) for at, name in zip(numbers, own) if name in saved["state"]})
        settings = _saved_settings(saved["param_groups"], own) if own else _settings(group)
        groups.append({**_given(settings), "params": numbers})
    put_back_optimizer(optimizer, {"state": state, "param_groups": groups})


def _saved_settings(groups: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    """Give the settings of the saved group that has these parameters."""
    holding = [group for group in groups if not set(names).isdisjoint(group["params"])]
    known = {name for group in holding for name in group["params"]}
    missing = [name for name in names if name not in known]
    if missing:
        raise ValueError(f"no saved group of an optimizer has {', '.join(missing[:_SHOWN])}")
    settings = [_settings(group) for group in holding]
    if len({json.dumps(outline_of(each)) for each in settings}) > 1:
        raise ValueError(
            f"{', '.join(names[:_SHOWN])} are in one group of an optimizer, and were in several with other settings"
        )
    return settings[0]


def _settings(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


@contextlib.contextmanager
def _quiet(older: torch.nn.Module | None) -> Iterator[None]:
    """Keep out of the log that torch's older `FullyShardedDataParallel` uses older parts of torch itself.

    A script cannot change that. Other warnings stay, for example those of its own hooks.

    Args:
        older: A model that it divides. None for none, which changes nothing.
    """
    if older is None:
        yield
        return
    with warnings.catch_warnings():
        for kind, message in ((FutureWarning, ""), (UserWarning, _OLDER_PARTS)):
            warnings.filterwarnings("ignore", message, kind, module=r"torch\.distributed\.|spotkeep\.")
        yield


def _as_shards(model: torch.nn.Module) -> Any:
    """Let torch's older `FullyShardedDataParallel` give and take parts."""
    return FullyShardedDataParallel.state_dict_type(
        model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(), ShardedOptimStateDictConfig()
    )


def _older_optimizer_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    with _as_shards(model):
        given = FullyShardedDataParallel.optim_state_dict(model, optimizer)
    return {
        "state": {str(name): dict(kept) for name, kept in given["state"].items()},
        "param_groups": given["param_groups"],
    }


def _load_older_optimizer(model: torch.nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]) -> None:
    given = {"state": _given(saved["state"]), "param_groups": _given(saved["param_groups"])}
    with _as_shards(model):
        loaded = FullyShardedDataParallel.optim_state_dict_to_load(model, optimizer, given)
    optimizer.load_state_dict(loaded)


def _load_model(model: torch.nn.Module, saved: Mapping[str, Any]) -> None:
    """Let a model take its part of a saved state."""
    parts = list(_parts(model))
    own = set(get_model_state_dict(model))
    items: Any = StateDict({name: _given(value) for name, value in saved.items() if name in own})
    versions = getattr(saved, "_metadata", None) or {}
    items._metadata = {part.path: versions[part.name] for part in parts if part.name in versions}
    set_model_state_dict(model, items)
    frozen, evaluating = getattr(saved, "frozen", None), getattr(saved, "evaluating", None)
    for part in parts:
        if evaluating is not None:
            # Not by `train()`, which changes all that is inside.
            part.module.training = part.name not in evaluating
        for key, parameter in part.module._parameters.items():
            if frozen is not None and parameter is not None:
                parameter.requires_grad_(_inside(part.name, key) not in frozen)


def _given(value: Any) -> Any:
    """Give restored values as torch takes them, with the tensors that divided arrays belong to."""
    if isinstance(value, DividedArray):
        return value.source
    if isinstance(value, Mapping):
        return {key: _given(item) for key, item in value.items()}
    return type(value)(map(_given, value)) if type(value) in (list, tuple) else value


def _outline(local: Mapping[str, Any], parameters: set[str]) -> Json:
    model: StateDict = local["model"]
    facts = {
        "metadata": dict(model._metadata),
        "frozen": list(model.frozen or ()),
        "evaluating": list(model.evaluating or ()),
    }
    return [
        "dict",
        [
            [
                "model",
                ["dict", [[name, outline_of(item, one_writer=name not in parameters)] for name, item in model.items()]],
            ],
            ["facts", ["dict", [[name, ["plain", value]] for name, value in facts.items()]]],
            [
                "optimizers",
                [
                    "list",
                    [
                        [
                            "dict",
                            [["state", outline_of(each["state"])], ["groups", _group_outlines(each["param_groups"])]],
                        ]
                        for each in local["optimizers"]
                    ],
                ],
            ],
        ],
    ]


def _group_outlines(groups: Sequence[Mapping[str, Any]]) -> Json:
    return [
        "list",
        [
            [
                "dict",
                [
                    ["names", outline_of(dict.fromkeys(group["params"]))],
                    ["settings", outline_of(_settings(group))],
                ],
            ]
            for group in groups
        ],
    ]


def _join_facts(model: StateDict, outlines: Sequence[Mapping[str, Json]]) -> None:
    """Give a model the versions, frozen parameters and modes that any rank has."""
    facts = [{name: plain[1] for name, plain in each.items()} for each in outlines]
    model._metadata = {name: version for each in facts for name, version in each["metadata"].items()}
    model.frozen = tuple(sorted({name for each in facts for name in each["frozen"]}))
    model.evaluating = tuple(sorted({name for each in facts for name in each["evaluating"]}))


def _joined_groups(live: Sequence[Mapping[str, Any]], outlines: Sequence[Json], *, rank: int) -> list[dict[str, Any]]:
    """Join the groups of an optimizer of all ranks.

    The stages of a pipeline have groups of other parameters, with equal settings as a rule.
    """
    joined: list[_JoinedGroup] = []
    for owner, outline in enumerate(outlines):
        for index, group in enumerate(outline[1]):
            body = dict(group[1])
            names = {name for name, _ in body["names"][1]}
            if names:
                found = next((one for one in joined if one.takes(index, names, body["settings"])), None)
                if found is None:
                    found = _JoinedGroup(index, names, [None] * len(outlines))
                    joined.append(found)
                found.names |= names
                found.settings[owner] = body["settings"]
    groups = []
    for one in joined:
        held = _settings(live[one.index]) if one.settings[rank] is not None else MISSING
        groups.append({**united(held, one.settings), "params": sorted(one.names)})
    return sorted(groups, key=lambda group: group["params"])


@dataclass
class _JoinedGroup:
    """Groups of several ranks with the same settings.

    Attributes:
        index: Their number in the optimizer of each rank.
        names: The parameters.
        settings: The outline of the settings on each rank. None where a rank has no such group.
    """

    index: int
    names: set[str]
    settings: list[Json]

    def takes(self, index: int, names: set[str], settings: Json) -> bool:
        """Say whether a group of another rank is a part of this one."""
        same = names == self.names or any(settings == one for one in self.settings if one is not None)
        return index == self.index and same


def _saved_optimizers(document: Json) -> list[dict[str, dict[str, Json]]]:
    """Give the nodes of each optimizer's state in a document, by parameter and entry.

    Anything that does not look like one is left out. The decoder says what is wrong with it.
    """
    try:
        optimizers = dict(encoded_pairs(document))["optimizers"]
        return [
            {name: dict(encoded_pairs(entries)) for name, entries in encoded_pairs(dict(encoded_pairs(each))["state"])}
            for each in optimizers
        ]
    except (TypeError, ValueError, KeyError, AttributeError):
        return []


def _memory_for(node: Json, parameter: Any, what: str) -> Any:
    """Give memory for an entry of an optimizer's state that is not there yet. None where any memory will do.

    Args:
        node: The saved entry.
        parameter: Its parameter, or `MISSING` where another rank has it.
        what: Names the entry.
    """
    kind, body = next(iter(node.items())) if isinstance(node, dict) else ("", None)
    if kind not in ("tensor", "ndarray") or not isinstance(body, dict):
        return None
    if parameter is MISSING:
        return absent_array({"order": None, **body, "kind": kind})
    array = divided_of(parameter)
    if array is not None and tuple(body["shape"]) == array.shape:
        return new_like(array, dtype=body["dtype"])
    if array is not None and "divided" in body and math.prod(body["shape"]) > 1:
        raise UsageError(
            f"{what} was divided otherwise than its parameter, so its new place is not known: let the optimizer do one "
            "step before the restore, so that it makes its state"
        )
    return None
