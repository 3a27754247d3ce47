"""What makes a training with virtual ranks depend on the number of ranks, or on the machine. It is refused by name."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

_ELEMENTWISE = (
    torch.optim.SGD,
    torch.optim.Adam,
    torch.optim.AdamW,
    torch.optim.Adamax,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Adagrad,
    torch.optim.Adadelta,
    torch.optim.ASGD,
    torch.optim.Rprop,
)
_DIVIDED_DTYPES = (torch.float32, torch.float64)
_CPU_FACTS = ("model name", "CPU implementer", "CPU architecture", "CPU variant", "CPU part")
_CPU_FILE = Path("/proc/cpuinfo")

Environment = dict[str, Any]


def environment_of(device: torch.device) -> Environment:
    """Describe what decides the bits of a computation beside its values.

    Args:
        device: The device of the model.
    """
    facts: Environment = {
        "torch": str(torch.__version__),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
    }
    if device.type == "cuda":
        versions = f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"
        return {**facts, "processor": f"{torch.cuda.get_device_name(device)}, {versions}"}
    name = _cpu_name() if device.type == "cpu" else device.type
    return {
        **facts,
        "processor": f"{name}, {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
    }


def problems_of_training(
    count: int, world_size: int, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer]
) -> list[str]:
    """Name what makes the bits of a training depend on the number of ranks, with the remedies.

    Args:
        count: Number of virtual ranks.
        world_size: Number of ranks.
        model: The model, in its wrapper.
        optimizers: Its optimizers.
    """
    problems = [*_of_numbers(count, world_size), *_of_model(model, world_size), *_of_torch(model)]
    divided = any(isinstance(parameter, DTensor) for parameter in model.parameters())
    for optimizer in optimizers:
        problems += _of_optimizer(optimizer, model, divided=divided)
    return problems


def fully_sharded(model: torch.nn.Module) -> list[FSDPModule]:
    """Give the modules that `fully_shard` was called for and that have parameters of their own."""
    found: list[FSDPModule] = []
    inner: set[int] = set()
    for module in reversed([one for one in model.modules() if isinstance(one, FSDPModule)]):
        own = {id(parameter) for parameter in module.parameters()} - inner
        if own:
            found.append(module)
        inner |= own
    return found


def _of_numbers(count: int, world_size: int) -> Iterator[str]:
    if count < 1:
        yield f"the number of virtual ranks is {count!r}; pass a number above zero"
    elif count % world_size:
        fitting = [str(size) for size in range(1, count + 1) if count % size == 0]
        yield (
            f"{count} virtual ranks cannot be shared equally by {world_size} ranks; start one of these numbers of "
            f"ranks: {', '.join(fitting)}"
        )


def _of_model(model: torch.nn.Module, world_size: int) -> Iterator[str]:
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    for name, module in inner.named_modules():
        kind = type(module).__name__
        place = f"{name or 'the model'} is a {kind}"
        if isinstance(module, FullyShardedDataParallel):
            yield f"{place}, which adds gradients in an order of its own; divide the model by fully_shard"
        elif isinstance(module, DistributedDataParallel):
            yield f"{place} inside of the model; wrap the whole model, and pass the wrapper"
        elif isinstance(module, torch.nn.SyncBatchNorm):
            yield f"{place}, which computes with the batches of all ranks; use BatchNorm"
        elif isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.max_norm is not None:
            yield f"{place} with max_norm, which changes weights in a forward pass; leave max_norm out"
        elif _is_compiled(module):
            yield f"{place} of torch.compile, whose kernels may differ from process to process; leave torch.compile out"
    devices = {str(parameter.device) for parameter in inner.parameters()}
    if len(devices) > 1:
        yield f"the model is on {', '.join(sorted(devices))}; keep it on one device a rank"
    if isinstance(model, DistributedDataParallel):
        yield from _of_data_parallel(model, world_size)
    elif any(isinstance(parameter, DTensor) for parameter in model.parameters()):
        yield from _of_division(model, world_size)
    elif world_size > 1:
        yield (
            "the model is neither in DistributedDataParallel nor divided by fully_shard, and there are "
            f"{world_size} ranks; pass the wrapper that the script calls"
        )


def _is_compiled(module: torch.nn.Module) -> bool:
    return (
        type(module).__name__ == "OptimizedModule"
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
    )


def _of_data_parallel(model: DistributedDataParallel, world_size: int) -> Iterator[str]:
    if model.process_group.size() != world_size:
        yield (
            f"DistributedDataParallel has a process group of {model.process_group.size()} of {world_size} ranks; leave "
            "process_group out"
        )
    if model.static_graph:
        yield "DistributedDataParallel has static_graph=True, which needs its own sum of gradients; leave it out"
    for hook, _ in getattr(model, "_comm_hooks", ()):
        yield (
            f"DistributedDataParallel has the communication hook {hook.__name__}, and no gradient passes through it; "
            "leave the hook out"
        )


def _of_division(model: torch.nn.Module, world_size: int) -> Iterator[str]:
    modules = fully_sharded(model)
    if not all(hasattr(module, "set_custom_reduce_scatter") for module in modules):
        yield (
            f"torch {torch.__version__} lets nothing take the place of the reduce-scatter of fully_shard; use a torch "
            "with FSDPModule.set_custom_reduce_scatter"
        )
    by_fully_shard = {id(parameter) for module in modules for parameter in module.parameters()}
    others, meshes, hooked, dtypes = [], [], [], set()
    for name, parameter in model.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            hooked.append(name)
        if not isinstance(parameter, DTensor) or id(parameter) not in by_fully_shard:
            others.append(name)
            continue
        dtypes.add(parameter.dtype)
        if parameter.device_mesh.ndim > 1 or parameter.device_mesh.size() != world_size:
            meshes.append(name)
    if others:
        yield f"{_some(others)} not divided by fully_shard, and other parameters are; call fully_shard for all of them"
    if meshes:
        yield (
            f"{_some(meshes)} divided in a mesh other than one of all ranks (replicas of fully_shard, tensor "
            "parallelism); pass fully_shard a mesh of one dimension with all ranks"
        )
    if hooked:
        yield (
            f"{_some(hooked)} given a hook of its own (register_hook, register_post_accumulate_grad_hook), and "
            "fully_shard calls it with other gradients than one process does, or not at all; leave the hook out"
        )
    if len(dtypes) > 1 or not dtypes <= set(_DIVIDED_DTYPES):
        yield (
            f"the divided parameters are {', '.join(sorted(map(str, dtypes)))}, and torch rounds an element of a "
            "shorter dtype by its place in memory; let all be torch.float32, and compute in another dtype by "
            "MixedPrecisionPolicy(param_dtype=..., reduce_dtype=torch.float32)"
        )


def _of_optimizer(optimizer: torch.optim.Optimizer, model: torch.nn.Module, *, divided: bool) -> Iterator[str]:
    name = type(optimizer).__name__
    if type(optimizer) not in _ELEMENTWISE:
        known = ", ".join(one.__name__ for one in _ELEMENTWISE)
        yield f"the optimizer {name} is not known to compute each element alone; use one of torch's {known}"
    if divided and any(group.get("fused") for group in optimizer.param_groups):
        yield (
            f"the optimizer {name} has fused=True, and its kernel rounds an element by its place in memory, which the "
            "division decides; leave fused out"
        )
    own = {id(parameter) for parameter in model.parameters()}
    others = sum(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"])
    if others:
        yield (
            f"the optimizer {name} has {others} parameters that are not in the model, so nothing adds their gradients; "
            "pass the model with all of them"
        )


def _of_torch(model: torch.nn.Module) -> Iterator[str]:
    if not torch.are_deterministic_algorithms_enabled() or torch.is_deterministic_algorithms_warn_only_enabled():
        yield "torch may choose algorithms with other bits in each run; call torch.use_deterministic_algorithms(True)"
    if torch.backends.cudnn.benchmark and any(parameter.is_cuda for parameter in model.parameters()):
        yield "cuDNN chooses algorithms by their time; set torch.backends.cudnn.benchmark = False"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    if len(names) == 1:
        return f"{shown} is"
    return f"{shown} are" if len(names) <= len(shown.split(", ")) else f"{shown} and {len(names) - 3} more are"


def _cpu_name() -> str:
    try:
        lines = _CPU_FILE.read_text(encoding="utf-8", errors="replace").split("\n\n", 1)[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    known = [facts[name] for name in _CPU_FACTS if name in facts]
    return " ".join(known) or platform.machine()
