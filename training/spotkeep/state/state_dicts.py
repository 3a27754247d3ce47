"""The state of a torch module beside the items of its `state_dict`, and the casts of an optimizer's own loader.

A `state_dict` carries the version of each module in its `_metadata`, by which a loader converts old items. No
`state_dict` holds the parameters that require gradients, or the modules in evaluation mode. An optimizer's loader casts
its state to the types of the parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable

from spotkeep.loaded import loaded

from .arrays import is_torch_tensor, same_form

_OVERRIDABLE = (
    *("state_dict", "_save_to_state_dict", "get_extra_state"),
    *("load_state_dict", "_load_from_state_dict", "set_extra_state"),
)

WRAPPED_AS = {"DistributedDataParallel": "module", "DataParallel": "module", "OptimizedModule": "_orig_mod"}
"""The attribute with the module itself, in wrappers of torch whose own `state_dict` has it in every name."""

_COMPILED = "OptimizedModule"
_INNER = f"{WRAPPED_AS[_COMPILED]}."


class StateDict(OrderedDict):  # type: ignore[type-arg]
    """The items of a `state_dict`, and the facts that belong to them.

    Attributes:
        frozen: The parameters that do not require gradients. None where that is not known.
        evaluating: The modules that are in evaluation mode, the module itself as an empty name. None where that is not
            known.
    """

    frozen: tuple[str, ...] | None = None
    evaluating: tuple[str, ...] | None = None
    _metadata: Any = None  # Where torch's loader looks for it.


def is_module(value: Any) -> bool:
    """Say whether this is a torch module."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_optimizer(value: Any) -> bool:
    """Say whether this is a torch optimizer."""
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.optim.Optimizer)


def without_wrapper(module: Any) -> Any:
    """Give the module inside of torch's wrappers. Any other object is given as it is.

    A checkpoint has its names, so the next script may wrap it in another way (`fully_shard`) or in none.
    """
    while _is_of_torch(module) and (attribute := WRAPPED_AS.get(type(module).__name__)) is not None:
        module = getattr(module, attribute)
    return module


def module_state(module: Any) -> Any:
    """Give the `state_dict` of a module, with the facts that belong to it. A wrapper around it is not in the names."""
    module = without_wrapper(module)
    items = module.state_dict()
    if not isinstance(items, dict):
        return items
    state = StateDict(items)
    state._metadata = getattr(items, "_metadata", None)
    compiled = _compiled_inside(module)
    if compiled:
        state = _renamed(state, lambda name: _without(compiled, name))
    state.frozen, state.evaluating = _flags(module, compiled)
    return state


def load_into(module: Any, saved: Any) -> None:
    """Let a module, or another object, load a state that `module_state` or its own `state_dict` has given.

    Raises:
        RuntimeError: If its own loader refuses.
    """
    module = without_wrapper(module)
    compiled = _compiled_inside(module) if is_module(module) else []
    module.load_state_dict(_renamed(saved, lambda name: _within(compiled, name)) if compiled else saved)


def _renamed(state: Any, new_name: Callable[[str], str]) -> StateDict:
    renamed = StateDict({new_name(name): value for name, value in state.items()})
    # The version of a compiled module is that of what it compiles, which comes after the wrapper.
    versions = getattr(state, "_metadata", None) or {}
    renamed._metadata = OrderedDict((new_name(f"{name}.")[:-1], value) for name, value in versions.items())
    return renamed


def _compiled_inside(module: Any) -> list[str]:
    """Find modules inside a module that `torch.compile` wraps, which shows in the names of its `state_dict`.

    A checkpoint leaves that out of the names, so a training without `torch.compile` goes on from it. A module that
    names its state in its own way keeps its names.

    Returns:
        Their names with the wrappers around them and a dot behind, the outer ones first.
    """
    if loaded("torch._dynamo.eval_frame") is None:
        return []
    found = [
        f"{name}."
        for name, part in module.named_modules(remove_duplicate=False)
        if type(part).__name__ == _COMPILED and _is_of_torch(part)
        # Nothing else is in the wrapper, so that no other entry can have the name.
        if part._modules.keys() == {WRAPPED_AS[_COMPILED]} and not part._parameters and not part._buffers
    ]
    return [] if found and loads_in_its_own_way(module) else found


def _without(compiled: list[str], name: str) -> str:
    """Give a name without the wrappers of compiled modules."""
    for path in reversed(compiled):
        if name.startswith(f"{path}{_INNER}"):
            name = path + name[len(path) + len(_INNER) :]
    return name


def _within(compiled: list[str], name: str) -> str:
    """Give a name with the wrappers of compiled modules, the opposite of `_without`."""
    for path in compiled:
        if name.startswith(path) and not name.startswith(f"{path}{_INNER}"):
            name = f"{path}{_INNER}{name[len(path) :]}"
    return name


def put_back_module(module: Any, saved: Any) -> None:
    """Restore a module's values, types, orders in memory, frozen parameters and modes.

    Raises:
        RuntimeError: If its own loader refuses.
    """
    wrapper, module = module, without_wrapper(module)
    if not isinstance(saved, StateDict):
        module.load_state_dict(saved)
        return
    load_into(module, saved if loads_in_its_own_way(module) else _without_copies(module, saved))
    for part in _parts(module):
        name = part.name.rstrip(".")
        if saved.evaluating is not None:
            training = name not in saved.evaluating
            if part.module.training is not training:
                # Not by `train()`, which changes all that is inside, and which modules override.
                part.module.training = training
                if part.module is module:
                    wrapper.training = training
        for key, tensor in [*part.module._parameters.items(), *part.module._buffers.items()]:
            if tensor is None:
                continue
            full_name = part.name + key
            kept: Any = saved.get(full_name)
            if is_torch_tensor(kept) and kept.shape == tensor.shape and not same_form(kept, tensor):
                # As `Module.to` does it.
                tensor.data = kept.detach().to(tensor.device)
            if saved.frozen is not None and key in part.module._parameters:
                requires_grad = full_name not in saved.frozen
                if tensor.requires_grad is not requires_grad:
                    tensor.requires_grad_(requires_grad)


def _without_copies(module: Any, saved: StateDict) -> StateDict:
    """Give tensors that were read into the module's own memory as the very tensors. torch does not copy those."""
    given = StateDict(saved)
    given._metadata = saved._metadata
    for name, tensor in module_tensors(module):
        kept: Any = given.get(name)
        alike = is_torch_tensor(kept) and kept.shape == tensor.shape and same_form(kept, tensor)
        if alike and tensor.is_cpu and kept.data_ptr() == tensor.data_ptr():
            given[name] = tensor
    return given


def put_back_optimizer(optimizer: Any, saved: Any) -> None:
    """Give an optimizer its state back, each tensor in the type and the order in memory that it had.

    Raises:
        ValueError: If its own loader refuses.
    """
    devices = [
        {key: value.device for key, value in group.items() if is_torch_tensor(value)}
        for group in optimizer.param_groups
    ]
    optimizer.load_state_dict(saved)
    for group, known in zip(optimizer.param_groups, devices):
        for key, device in known.items():
            if is_torch_tensor(group.get(key)):
                group[key] = group[key].to(device)
    numbers = [number for group in saved["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    by_number = dict(zip(numbers, parameters))
    for number, kept in saved["state"].items():
        holder = by_number.get(number, number)
        if holder in optimizer.state:
            optimizer.state[holder] = _in_form_of(kept, optimizer.state[holder])


def _in_form_of(saved: Any, live: Any) -> Any:
    """Give the state that an optimizer has loaded, with the saved tensors in the place of those that were cast."""
    if is_torch_tensor(saved) and is_torch_tensor(live):
        return live if same_form(saved, live) else saved.to(live.device)
    if isinstance(saved, dict) and isinstance(live, dict):
        for key, value in saved.items():
            if key in live:
                live[key] = _in_form_of(value, live[key])
        return live
    if type(saved) in (list, tuple) and type(live) is type(saved) and len(live) == len(saved):
        return type(live)(_in_form_of(one, other) for one, other in zip(saved, live))
    return live


@dataclass(frozen=True)
class _Part:
    """One module inside another.

    Attributes:
        name: Its name with a dot behind it. Empty for the outermost.
        module: The module.
    """

    name: str
    module: Any


def module_tensors(module: Any) -> Iterator[tuple[str, Any]]:
    """Give the parameters and buffers of a module that its `state_dict` names, each once."""
    seen: set[int] = set()
    for part in _parts(module):
        left_out = part.module._non_persistent_buffers_set
        for key, tensor in [*part.module._parameters.items(), *part.module._buffers.items()]:
            if tensor is not None and key not in left_out and id(tensor) not in seen:
                seen.add(id(tensor))
                yield part.name + key, tensor


def tensors_beside(module: Any) -> list[tuple[str, Callable[[], Any]]]:
    """Find the tensors of a module that its `state_dict` does not have. Gives names, and functions that read them."""
    found: list[tuple[str, Callable[[], Any]]] = []
    for part in _parts(module):
        holder = part.module
        kept = dict.fromkeys(sorted(holder._non_persistent_buffers_set))
        for name, value in vars(holder).items():
            if not is_torch_tensor(value):
                continue
            # `torch.nn.utils.weight_norm` and `spectral_norm` make a weight from these before each batch.
            if not {f"{name}_g", f"{name}_orig"} & {key for key, _ in holder._parameters.items()}:
                kept[name] = None
        # What a metric of torchmetrics adds up; it is a list before its first batch.
        persistent = vars(holder).get("_persistent", {})
        for name in vars(holder).get("_defaults", ()):
            kept.pop(name, None)
            if not persistent.get(name):
                kept[name] = None
        found += [(part.name + name, partial(getattr, holder, name, None)) for name in kept]
    return found


def numbers_beside(module: Any) -> list[tuple[str, dict[str, Any], str]]:
    """Find the numbers that a module keeps as attributes, such as a dropout's probability or a counter of the user's.

    Returns:
        Of each its name, the attributes of the module that it belongs to, and the attribute.
    """
    return [
        (part.name + name, vars(part.module), name)
        for part in _parts(module)
        # What wraps a module (DDP) has switches of its own, which each step sets.
        if type(part.module).__module__.startswith("torch.nn.modules.") or not _is_of_torch(part.module)
        for name, value in vars(part.module).items()
        # `_num_vals_seen` is the place of torchmetrics' `Running` in its window, which no `persistent(True)` keeps.
        if type(value) in (int, float, bool)
        and name != "training"
        and (not name.startswith("_") or name == "_num_vals_seen")
    ]


def _is_of_torch(module: Any) -> bool:
    return type(module).__module__.partition(".")[0] == "torch"


def loads_in_its_own_way(module: Any) -> bool:
    """Say whether anything but torch's own code gives or takes the state of a module."""
    torch: Any = loaded("torch")
    return any(
        part._state_dict_hooks
        or part._load_state_dict_pre_hooks
        or part._load_state_dict_post_hooks
        or (
            # Observers of quantization take other shapes than they have.
            (not (kind := type(part).__module__).startswith("torch.") or kind.startswith("torch.ao."))
            and any(getattr(type(part), name) is not getattr(torch.nn.Module, name) for name in _OVERRIDABLE)
        )
        for part in without_wrapper(module).modules()
    )


def _parts(module: Any) -> Iterator[_Part]:
    module = without_wrapper(module)
    compiled = _compiled_inside(module)
    left = [("", module)]
    while left:
        name, part = left.pop()
        yield _Part(_without(compiled, name), part)
        left += [(f"{name}{key}.", inner) for key, inner in part._modules.items() if inner is not None]


def _flags(module: Any, compiled: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Give the names of frozen parameters and of modules in evaluation mode. At each save, so it is in a hurry."""
    frozen: list[str] = []
    evaluating: list[str] = []
    left = [("", module)]
    while left:
        name, part = left.pop()
        if not part.training:
            evaluating.append(name[:-1])
        for key, parameter in part._parameters.items():
            if parameter is not None and not parameter.requires_grad:
                frozen.append(name + key)
        for key, inner in part._modules.items():
            if inner is not None:
                left.append((f"{name}{key}.", inner))
    if compiled:
        frozen = [_without(compiled, name) for name in frozen]
        evaluating = [*dict.fromkeys(_without(compiled, f"{name}.")[:-1] for name in evaluating)]
    return tuple(frozen), tuple(evaluating)
