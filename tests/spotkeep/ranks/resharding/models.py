"""The kinds of trainings whose checkpoints are restored by another number of ranks.

Dimensions are odd on purpose. Hardly any of them can be divided by a number of ranks, and some ranks get nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, WIDTH, HIDDEN, HEADS, POSITIONS = 13, 10, 18, 2, 5
WIDE_ROWS, WIDE_COLUMNS = 16411, 512


@dataclass(kw_only=True)
class Training:
    """One rank's part of a training.

    Attributes:
        state: The objects for the `Checkpointer`.
        model: The model for DCP, None where `state` holds tensors alone.
        optimizer: Its optimizer.
        train: Trains one step, given its number.
        tensors: More tensors of the state, by name.
    """

    state: Mapping[str, Any]
    model: nn.Module | None = None
    optimizer: torch.optim.Optimizer | None = None
    train: Callable[[int], None]
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


class Counters(nn.Module):
    """Buffers of types that a model rarely has. Each forward pass counts in them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
        self.register_buffer("total", torch.randn(7, dtype=torch.float64))
        self.register_buffer("scale", torch.randn(5).to(torch.bfloat16))
        self.register_buffer("mask", torch.rand(11) > 0.5)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Count a batch, and give it unchanged."""
        self.seen += batch.shape[0]
        self.total *= 1.0 + 2**-40
        return batch


class Versioned(nn.Module):
    """A layer whose loader has to know the version of the saved state."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(WIDTH))
        self.loaded_versions: list[int | None] = []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Multiply a batch."""
        return batch * self.gain

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *others: Any) -> None:
        self.loaded_versions.append(local_metadata.get("version"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)


class Attention(nn.Module):
    """Causal attention over a few positions."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Let each position look at those before it."""
        parts = [
            layer(batch).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.queries, self.keys, self.values)
        ]
        found = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.norm = nn.LayerNorm(WIDTH)
        self.wider = nn.Linear(WIDTH, HIDDEN)
        self.narrower = nn.Linear(HIDDEN, WIDTH)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Add what attention and the two layers find."""
        batch = batch + self.attention(self.norm(batch))
        return batch + self.narrower(torch.tanh(self.wider(batch)))


class Transformer(nn.Module):
    """A tiny language model with all that makes a state uneven.

    It has a frozen table, a layer of bfloat16, a batch norm, and buffers of other types.
    """

    def __init__(self, *, batch_norm: bool = True, adapter: torch.dtype = torch.bfloat16, frozen: bool = True) -> None:
        super().__init__()
        self.adapter_type = adapter
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(POSITIONS, WIDTH), requires_grad=not frozen)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.adapter = nn.Linear(WIDTH, WIDTH, dtype=adapter)
        self.versioned = Versioned()
        self.batch_norm = nn.BatchNorm1d(WIDTH) if batch_norm else None
        self.counters = Counters()
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Give the logits of the next tokens."""
        found = self.counters(self.tokens(tokens) + self.positions)
        for block in self.blocks:
            found = block(found)
        found = self.versioned(found + self.adapter(found.to(self.adapter_type)).to(found.dtype))
        if self.batch_norm is not None:
            found = self.batch_norm(found.transpose(1, 2)).transpose(1, 2)
        return self.head(found)


def _transformer(seed: int, **options: Any) -> Transformer:
    torch.manual_seed(seed)
    return Transformer(**options)


def _adamw(model: nn.Module) -> torch.optim.Optimizer:
    """Two groups, as weights without decay have them."""
    decayed = [value for name, value in model.named_parameters() if name.endswith("weight")]
    others = [value for name, value in model.named_parameters() if not name.endswith("weight")]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": 3e-3}]
    return torch.optim.AdamW(groups, lr=1e-2, amsgrad=True)


def _tokens(step: int) -> torch.Tensor:
    """The batch of this rank."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    return torch.randint(VOCABULARY, (3, POSITIONS), generator=generator)


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, *, batch: torch.Tensor | None = None) -> None:
    tokens = _tokens(step) if batch is None else batch
    optimizer.zero_grad()
    logits = model(tokens)
    nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.roll(-1, 1).flatten()).backward()
    optimizer.step()
    # A schedule.
    for group in optimizer.param_groups:
        group["lr"] *= 0.97
    # The averages of a batch norm belong to each rank where no DDP makes them equal.
    for buffer in model.buffers():
        if buffer.is_floating_point() and dist.get_world_size() > 1:
            dist.broadcast(buffer, 0)


def _training(model: nn.Module, optimizer: torch.optim.Optimizer, saved: nn.Module | None = None) -> Training:
    return Training(
        state={"model": model if saved is None else saved, "optimizer": optimizer},
        model=model,
        optimizer=optimizer,
        train=lambda step: _train(model, optimizer, step),
    )


def _shard(model: Transformer, mesh: DeviceMesh) -> None:
    for module in (*model.blocks, model.adapter, model.head, model):
        fully_shard(module, mesh=mesh)


def fsdp(seed: int, *, frozen: bool = True) -> Training:
    """All ranks hold a part of each parameter.

    Args:
        seed: The seed of the parameters.
        frozen: False for a script that freezes a table later in the training.
    """
    model = _transformer(seed, frozen=frozen)
    _shard(model, init_device_mesh("cpu", (dist.get_world_size(),)))
    return _training(model, _adamw(model))


def hybrid(seed: int) -> Training:
    """Groups of ranks hold the whole model each, and divide it inside."""
    model = _transformer(seed)
    rows, columns = {1: (1, 1), 2: (2, 1), 4: (2, 2), 6: (3, 2), 8: (2, 4)}.get(
        dist.get_world_size(), (1, dist.get_world_size())
    )
    _shard(model, init_device_mesh("cpu", (rows, columns), mesh_dim_names=("replicate", "shard")))
    return _training(model, _adamw(model))


def tensor_parallel(seed: int) -> Training:
    """Each layer is divided in the columns of a mesh, and each part of it in the rows."""
    # A batch norm would see other averages in each column.
    model = _transformer(seed, batch_norm=False)
    size = dist.get_world_size()
    columns = {4: 2, 6: 2, 8: 2}.get(size, size if size in (2,) else 1)
    mesh = init_device_mesh("cpu", (size // columns, columns), mesh_dim_names=("data", "tensor"))
    if columns > 1:
        for block in model.blocks:
            plan = {
                "attention.queries": ColwiseParallel(),
                "attention.keys": ColwiseParallel(),
                "attention.values": ColwiseParallel(),
                "attention.out": RowwiseParallel(),
                "wider": ColwiseParallel(),
                "narrower": RowwiseParallel(),
            }
            parallelize_module(block, mesh["tensor"], plan)
    _shard(model, mesh["data"])
    optimizer = _adamw(model)
    row = mesh.get_local_rank("data")

    def train(step: int) -> None:
        # The ranks of a row see the same batch.
        generator = torch.Generator().manual_seed(1000 * step + row)
        _train(model, optimizer, step, batch=torch.randint(VOCABULARY, (3, POSITIONS), generator=generator))

    return Training(state={"model": model, "optimizer": optimizer}, model=model, optimizer=optimizer, train=train)


def older_fsdp(seed: int) -> Training:
    """`FullyShardedDataParallel`, which divides one long row of all parameters of a block."""
    from spotkeep.integrations.sharded import ShardedState

    net = _transformer(seed, adapter=torch.float32)  # All of a row have one type.
    cpu = torch.device("cpu")
    for index, block in enumerate(net.blocks):
        net.blocks[index] = FullyShardedDataParallel(block, device_id=cpu, use_orig_params=True)
    model = FullyShardedDataParallel(net, device_id=cpu, use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    made = _training(model, optimizer)
    return Training(
        state={"shards": ShardedState(model, optimizer)}, model=model, optimizer=optimizer, train=made.train
    )


def data_parallel(seed: int) -> Training:
    """Each rank holds the whole model."""
    model = _transformer(seed)
    parallel = DistributedDataParallel(model)
    optimizer = _adamw(model)
    return Training(
        state={"model": parallel, "optimizer": optimizer},
        model=model,
        optimizer=optimizer,
        train=lambda step: _train(parallel, optimizer, step),
    )


class Stage(nn.Module):
    """The layers of one rank of a pipeline, by their numbers in the whole model."""

    def __init__(self, layers: Mapping[int, nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({str(number): layer for number, layer in layers.items()})

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """Go through the layers of this rank."""
        for layer in self.layers.values():
            batch = layer(batch)
        return batch


class Pipeline(nn.Module):
    """Stages on ranks in a row. The activations go forth and the gradients back, as messages."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        counted = [nn.Sequential(Counters(), Block()) for _ in range(2)]
        middle: list[nn.Module] = [Block(), nn.LayerNorm(WIDTH), counted[0], Block(), Versioned(), counted[1], Block()]
        layers = [nn.Embedding(VOCABULARY, WIDTH), *middle, nn.Linear(WIDTH, VOCABULARY)]
        bounds = [len(layers) * stage // self.size for stage in range(self.size + 1)]
        own = range(bounds[self.rank], bounds[self.rank + 1])
        self.stage = Stage({number: layers[number] for number in own})

    def train_batch(self, tokens: torch.Tensor) -> None:
        """Go forth and back once."""
        received = tokens
        if self.rank:
            received = torch.empty(*tokens.shape, WIDTH)
            dist.recv(received, self.rank - 1)
            received.requires_grad_()
        found = self.stage(received)
        if self.rank == self.size - 1:
            nn.functional.cross_entropy(found.flatten(0, 1), tokens.roll(-1, 1).flatten()).backward()
        else:
            dist.send(found.detach().contiguous(), self.rank + 1)
            gradient = torch.empty_like(found)
            dist.recv(gradient, self.rank + 1)
            found.backward(gradient)
        if self.rank:
            dist.send(received.grad, self.rank - 1)


def pipeline(seed: int) -> Training:
    """Each rank holds some layers of the model."""
    from spotkeep.integrations.sharded import ShardedState

    model = Pipeline(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(step: int) -> None:
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(1000 * step)
        model.train_batch(torch.randint(VOCABULARY, (3, POSITIONS), generator=generator))
        optimizer.step()

    return Training(state={"shards": ShardedState(model, optimizer)}, model=model, optimizer=optimizer, train=train)


def wide(seed: int) -> Training:
    """Tensors of some MiB, of which each rank holds some rows, and one that each rank holds whole."""
    torch.manual_seed(seed)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    tensors: dict[str, torch.Tensor] = {
        name: distribute_tensor(torch.randn(WIDE_ROWS, WIDE_COLUMNS), mesh, [Shard(0)]) for name in ("rows", "momentum")
    }
    tensors["whole"] = torch.randn(WIDE_ROWS // 4, WIDE_COLUMNS)

    def train(step: int) -> None:
        for tensor in tensors.values():
            tensor.mul_(1 + 1 / step)

    return Training(state=tensors, train=train, tensors=tensors)


class OddForms(nn.Module):
    """Tensors of forms that a division rarely meets: shared, empty, complex, of no or of many dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, 6)
        self.head = nn.Linear(6, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        self.picture = nn.Conv2d(3, 5, (2, 3))
        self.by_columns = nn.Linear(840, 3)
        self.single = nn.Parameter(torch.randn(1))
        self.cube = nn.Parameter(torch.randn(7, 3, 2, 2))
        self.register_buffer("number", torch.zeros((), dtype=torch.float64))
        self.register_buffer("nothing", torch.empty(0, 3))
        self.register_buffer("channels_last", torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last))
        self.register_buffer("waves", torch.randn(3, dtype=torch.complex64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Give a loss that each parameter has a part in."""
        self.number += 1.5
        found = self.head(self.tokens(tokens)).sum() + self.picture(torch.ones(1, 3, 4, 4)).sum()
        found = found + self.by_columns(torch.ones(1, 840)).sum()
        return ((found * self.single + self.cube.sum()) ** 2).sum() * 1e-3


def _by_columns(value: nn.Parameter) -> Shard:
    """Divide the last dimension where it can be divided evenly, as `fully_shard` asks for it."""
    return Shard(1 if value.dim() == 2 and value.shape[1] % dist.get_world_size() == 0 else 0)


def odd_forms(seed: int) -> Training:
    """`fully_shard`, by columns where these can be divided."""
    torch.manual_seed(seed)
    model = OddForms()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model.by_columns, mesh=mesh, shard_placement_fn=_by_columns)
    fully_shard(model.picture, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(step: int) -> None:
        optimizer.zero_grad()
        model(_tokens(step)).backward()
        optimizer.step()

    return Training(state={"model": model, "optimizer": optimizer}, model=model, optimizer=optimizer, train=train)


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of a checkpoint's way from some ranks to others.

    Attributes:
        saved: Makes the training that is saved, from a seed.
        restored: Makes the training that takes it. None for the same.
        reference: Makes the training that takes it by DCP. None for that of `restored`.
    """

    saved: Callable[[int], Training]
    restored: Callable[[int], Training] | None = None
    reference: Callable[[int], Training] | None = None


KINDS: Mapping[str, Kind] = {
    # A frozen table comes back frozen, which DCP leaves to the script.
    "fsdp": Kind(saved=fsdp, restored=partial(fsdp, frozen=False), reference=fsdp),
    "tensor parallel": Kind(saved=tensor_parallel),
    "hybrid": Kind(saved=hybrid),
    "pipeline": Kind(saved=pipeline),
    "older fsdp": Kind(saved=older_fsdp),
    "ddp to fsdp": Kind(saved=data_parallel, restored=fsdp),
    "fsdp to ddp": Kind(saved=fsdp, restored=data_parallel),
    "wide": Kind(saved=wide),
}


def parts_of(training: Training) -> Iterator[tuple[str, Any]]:
    """Give all tensors and values of a training on this rank, by name."""
    yield from training.tensors.items()
    model, optimizer = training.model, training.optimizer
    if model is None or optimizer is None:
        return
    named = dict(model.named_parameters(remove_duplicate=False))
    yield from named.items()
    yield from model.named_buffers(remove_duplicate=False)
    names = {value: name for name, value in named.items()}
    for value, kept in optimizer.state.items():
        yield from ((f"{key} of {names[value]}", item) for key, item in kept.items())
    for number, group in enumerate(optimizer.param_groups):
        yield from ((f"{key} of group {number}", item) for key, item in group.items() if key != "params")
        yield f"parameters of group {number}", [names[value] for value in group["params"]]
    yield "versions of modules", [[name, *facts.items()] for name, facts in model.state_dict()._metadata.items()]
    yield "frozen", [name for name, value in named.items() if not value.requires_grad]


def loaded_versions(training: Training) -> list[int | None]:
    """Give the versions of the saved state that the loader of a `Versioned` was given on this rank."""
    modules = [] if training.model is None else training.model.modules()
    return [version for module in modules if isinstance(module, Versioned) for version in module.loaded_versions]


def local_part(value: torch.Tensor) -> torch.Tensor:
    """Give the part of a tensor that this rank holds."""
    return value.to_local().detach() if isinstance(value, DTensor) else value.detach()
