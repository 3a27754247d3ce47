"""The work of one rank in a trial, which saves a training or restores it in two ways.

The other way is torch's own, DCP (`torch.distributed.checkpoint`).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import logging
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tests.spotkeep.ranks.resharding.pool import Answer, Job
from tests.spotkeep.ranks.resharding.verdict import SAVED_VERSION, STEPS

MEETING_SECONDS = 120

_IMPORTED = (
    "fsspec.core",
    "spotkeep.checkpointer",
    "spotkeep.integrations.sharded",
    "spotkeep.ranks.shared_directory",
    "tests.spotkeep.ranks.resharding.models",
    "torch.distributed._tools",
    "torch.distributed.checkpoint.state_dict",
)


def import_all() -> None:
    """Import what a rank takes, once, before the ranks are forked. No thread is started by it."""
    for module in _IMPORTED:
        importlib.import_module(module)
    import torch

    # It warns of two collectives in the place of one.
    logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    layer = torch.nn.Linear(1, 1)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1)).sum().backward()
    optimizer.step()


def do_in_world(job: Job, *, rank: int, ranks: int, meeting: str) -> Answer:
    """Meet the other ranks, do a job with them, and part again."""
    import torch.distributed as dist

    try:
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(meeting, ranks),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=MEETING_SECONDS),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = {"save": save, "restore": restore, "go on": go_on}[job["do"]](job)
        dist.barrier()
        dist.destroy_process_group()
        _forget_world()
    except BaseException:  # noqa: BLE001 - it is the answer, and the process ends
        return {"failed": traceback.format_exc()}
    return answer


def _forget_world() -> None:
    """Begin as a new process does.

    torch remembers meshes, whose process groups are gone, and a later mesh may be equal to one of them. The library
    remembers the trainings of a process.
    """
    from torch.distributed.tensor import debug

    from spotkeep.training_folder import TRAININGS_HERE

    TRAININGS_HERE.forget()
    debug._clear_python_sharding_prop_cache()
    debug._clear_fast_path_sharding_prop_cache()
    gc.collect()


def save(job: Job) -> Answer:
    """Train some steps, and save in both ways."""
    import torch
    import torch.distributed.checkpoint as dcp

    from spotkeep import Checkpointer, RandomStates
    from tests.spotkeep.ranks.resharding.models import KINDS, Versioned

    Versioned._version = SAVED_VERSION
    training = KINDS[job["kind"]].saved(job["seed"])
    torch.manual_seed(_rank())
    with (
        counted_bytes() as counted,
        Checkpointer(training.state, job["ours"], every_steps=2, per_rank={"random": RandomStates()}) as checkpointer,
    ):
        for step in checkpointer.steps(STEPS):
            training.train(step + 1)
    dcp.save(_reference_state(training), checkpoint_id=job["theirs"])
    return {"whole": whole_digests(training), "written": counted.written, "random": _digest(torch.get_rng_state())}


def restore(job: Job) -> Answer:
    """Restore in both ways, compare, train one more step with both, and compare again."""
    import torch
    import torch.distributed as dist

    from spotkeep import Checkpointer, RandomStates
    from tests.spotkeep.ranks.resharding.models import KINDS, Versioned, loaded_versions

    # The code has changed since.
    Versioned._version = SAVED_VERSION + 1
    kind = KINDS[job["kind"]]
    make = kind.restored or kind.saved
    ours, theirs = make(job["seed"] + 1), (kind.reference or make)(job["seed"] + 2)
    load_reference(theirs, job["theirs"])
    torch.manual_seed(1000 + _rank())
    with (
        counted_bytes() as counted,
        Checkpointer(ours.state, job["ours"], every_steps=2, per_rank={"random": RandomStates()}) as checkpointer,
    ):
        random, read, step = _digest(torch.get_rng_state()), counted.read, checkpointer.step
        differing = differences(described(ours), described(theirs))
        whole = whole_digests(ours)
        for training in (ours, theirs):
            training.train(step + 1)
        after = differences(described(ours), described(theirs))
    dist.barrier()
    return {
        "step": step,
        "differing": differing,
        "differing after a step": after,
        "whole": whole,
        "random": random,
        "versions": loaded_versions(ours),
        "versions by DCP": loaded_versions(theirs),
        "read": read,
        "held": held_bytes(ours),
    }


def go_on(job: Job) -> Answer:
    """Restore, train two more steps, and save."""
    from spotkeep import Checkpointer
    from tests.spotkeep.ranks.resharding.models import odd_forms

    training = odd_forms(job["seed"])
    with Checkpointer(training.state, job["ours"], every_steps=1) as checkpointer:
        began, found = checkpointer.step, whole_digests(training)
        for step in checkpointer.steps(began + 2):
            training.train(step + 1)
    return {"began": began, "found": found, "left": whole_digests(training)}


def _rank() -> int:
    import torch.distributed as dist

    return dist.get_rank()


def _reference_state(training: Any) -> dict[str, Any]:
    """Give the state in torch's own form, for DCP."""
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    if training.model is None:
        return dict(training.tensors)
    # Flat, because the list of groups is another one on each rank of a pipeline.
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    model, optimizer = get_state_dict(training.model, training.optimizer, options=options)
    return {"model": model, "optimizer": optimizer}


def load_reference(training: Any, place: str) -> None:
    """Restore with DCP."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_state_dict

    state = _reference_state(training)
    dcp.load(state, checkpoint_id=place)
    if training.model is not None:
        set_state_dict(
            training.model,
            training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=StateDictOptions(flatten_optimizer_state_dict=True),
        )


def described(training: Any) -> dict[str, str]:
    """Describe all that this rank holds, each by its form and a digest of its bytes."""
    from tests.spotkeep.ranks.resharding.models import parts_of

    return {name: _description(value) for name, value in parts_of(training)}


def _description(value: Any) -> str:
    import torch
    from torch.distributed.tensor import DTensor

    from tests.spotkeep.ranks.resharding.models import local_part

    if not isinstance(value, torch.Tensor):
        return repr(value)
    local = local_part(value)
    division = ""
    if isinstance(value, DTensor):
        division = f" of {tuple(value.shape)} by {value.placements} on {value.device_mesh.mesh.tolist()}"
    form = f"{local.dtype} {tuple(local.shape)} {local.stride()}{division} requires_grad={value.requires_grad}"
    return f"{form} {_digest(local)}"


def _digest(tensor: Any) -> str:
    import torch

    raw = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy() if tensor.numel() else b""
    return hashlib.sha256(raw).hexdigest()[:16]


def differences(ours: dict[str, str], theirs: dict[str, str]) -> list[str]:
    """Name what differs."""
    return [
        f"{name}: {ours.get(name, 'missing')} instead of {theirs.get(name, 'nothing')}"
        for name in dict.fromkeys((*ours, *theirs))
        if ours.get(name) != theirs.get(name)
    ]


def whole_digests(training: Any) -> dict[str, str]:
    """Give a digest of each tensor as a whole, from all ranks, by torch's own gathering."""
    import torch
    import torch.distributed as dist
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
    from torch.distributed.tensor import DTensor

    if training.model is None:
        flat = {
            name: value.full_tensor() if isinstance(value, DTensor) else value
            for name, value in training.tensors.items()
        }
    else:
        options = StateDictOptions(full_state_dict=True, flatten_optimizer_state_dict=True)
        model, optimizer = get_state_dict(training.model, training.optimizer, options=options)
        flat = {**model, **optimizer}
    own = {
        name: f"{value.dtype} {tuple(value.shape)} {_digest(value)}" if isinstance(value, torch.Tensor) else repr(value)
        for name, value in flat.items()
    }
    all_ranks: list[dict[str, str]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(all_ranks, own)
    found: dict[str, str] = {}
    for rank, digests in enumerate(all_ranks):
        for name, digest in digests.items():
            if found.setdefault(name, digest) != digest:
                raise AssertionError(f"rank {rank} has {digest} for {name}, and another has {found[name]}")
    return found


def held_bytes(training: Any) -> int:
    """Count the bytes of the tensors that this rank holds."""
    import torch

    from tests.spotkeep.ranks.resharding.models import local_part, parts_of

    tensors = [local_part(value) for _, value in parts_of(training) if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@dataclass
class CountedBytes:
    """The bytes of files that this process has read and written through the library."""

    read: int = 0
    written: int = 0


@contextlib.contextmanager
def counted_bytes() -> Iterator[CountedBytes]:
    """Count the bytes at the seam between the library and the disk."""
    from spotkeep.disk.storage import LocalStorage, ReadableFile

    counted = CountedBytes()
    read_into, write_some = ReadableFile.read_into, LocalStorage.write_some

    def count_read(self: Any, target: memoryview, *others: Any, **options: Any) -> int:
        got = read_into(self, target, *others, **options)
        counted.read += got
        return got

    def count_written(self: Any, *others: Any) -> int:
        written = write_some(self, *others)
        counted.written += written
        return written

    ReadableFile.read_into, LocalStorage.write_some = count_read, count_written  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        ReadableFile.read_into, LocalStorage.write_some = read_into, write_some  # type: ignore[method-assign]
