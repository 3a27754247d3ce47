"""A training that ends with the same bits for each number of ranks.

`VirtualRanks` divides the global batch of a step into micro-batches, of which each belongs to a virtual rank. Their
number stays, and a rank of the training has some of them. Random numbers follow from the virtual rank, and gradients
are added in an order that follows from it. So one process ends with the bits of many ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from typing import Any, TypeVar, Union, overload

from spotkeep.errors import UsageError
from spotkeep.loops.order_memory import is_generator, seeded_generators
from spotkeep.state.random_states import seeded_random_numbers

try:
    import torch
    import torch.distributed as dist
    from torch.distributed.fsdp import FSDPModule  # noqa: F401 - the modules below need it
    from torch.distributed.tensor import DTensor
    from torch.nn.parallel import DistributedDataParallel
except ImportError as error:
    raise ImportError(f"spotkeep.integrations.virtual_ranks needs torch 2.6 or newer ({error})") from error

from .virtual_ranks_gradients import DividedGradients, Gradients, WholeGradients, all_gather, local_part, norm_of
from .virtual_ranks_refusals import environment_of, fully_sharded, problems_of_training

_Optimizers = Union[torch.optim.Optimizer, Sequence[torch.optim.Optimizer]]
_Batch = TypeVar("_Batch")
_Weights = dict[str, tuple[torch.nn.Parameter, int]]
_Options = list[tuple[str, dict[str, Any], int]]

_DIGEST_BYTES = 32
_SHOWN = 5
_NORM_EPSILON = 1e-6  # torch's own, in clip_grad_norm_


class VirtualRanks:
    """The virtual ranks of a training. It goes into the `state` of a `Checkpointer`.

    ```python
    ranks = VirtualRanks(8, model, optimizer, seed=7)
    state = {"model": model, "optimizer": optimizer, "ranks": ranks}
    with Checkpointer(state, every_steps=100) as checkpointer:
        for step in checkpointer.steps(total_steps):
            optimizer.zero_grad()
            for virtual_rank in ranks.micro_batches():
                inputs, labels = micro_batch(step, virtual_rank)
                loss_of(model(inputs), labels).backward()
            ranks.clip_grad_norm_(1.0)
            optimizer.step()
    ```

    Any number of ranks that divides the number of virtual ranks trains the same model, to the bit. So does a training
    that goes on from a checkpoint with another number. All ranks have the same kind of processor, the same number of
    threads and the same torch, as the checkpoint had. The model begins with the same weights on each rank.

    Args:
        count: Number of virtual ranks. It stays the same for the whole training.
        model: The model as the script calls it, in `DistributedDataParallel`, or divided by `fully_shard`. One process
            alone may have a model without a wrapper.
        optimizer: Its optimizer, or several. Each computes an element of a parameter from that element alone.
        seed: Number that the random numbers of the micro-batches follow from. A restore brings back that of the
            checkpoint.

    Attributes:
        count: Number of virtual ranks.

    Raises:
        UsageError: Something makes the bits depend on the number of ranks. The message names all of it.
    """

    def __init__(self, count: int, model: torch.nn.Module, optimizer: _Optimizers, *, seed: int = 0) -> None:
        self.count, self._model, self._seed = count, model, seed
        self._optimizers = (optimizer,) if isinstance(optimizer, torch.optim.Optimizer) else tuple(optimizer)
        self._require_fit()
        first = next(model.parameters())
        self._device = first.device
        self._group = self._group_of(first) if _world_size() > 1 else None
        self._gradients = self._gradients_of_step()
        self._sum = _Sum(model, self._optimizers, divided=isinstance(first, DTensor))
        self._buffers = _Buffers(model, self._group)
        self._steps = 0
        self._is_in_a_state = False
        self._agreed: tuple[list[str], list[int]] | None = None  # the trained parameters, and those of each optimizer
        for one in self._optimizers:
            one.register_step_pre_hook(self._sum.before_optimizer)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the virtual ranks of this rank, in the order of their micro-batches.

        Virtual rank `v` of `count` takes part `v` of each global batch, whatever rank it is on.
        """
        return tuple(self._gradients.numbers)

    @overload
    def micro_batches(self) -> Iterator[int]: ...

    @overload
    def micro_batches(self, batches: Sequence[_Batch]) -> Iterator[_Batch]: ...

    def micro_batches(self, batches: Sequence[Any] | None = None) -> Iterator[Any]:
        """Go through the micro-batches of a step on this rank. Collective, so every rank must go through all of them.

        Inside the loop random numbers are those of the virtual rank, also those of generators in attributes of modules
        of the model. The loop has as many turns as a rank has virtual ranks. So schedules, averages of weights and
        counts of the script come after it. The script computes the loss of its micro-batch, and calls `backward` once.
        After the loop each parameter has the mean gradient of all virtual ranks. Of buffers, such as the averages of a
        batch norm, those of virtual rank 0 count, as under DDP those of rank 0 do.

        Args:
            batches: The micro-batches of this rank in the order of `numbers`, such as `GlobalBatches` with
                `virtual_ranks` gives them.

        Returns:
            The micro-batches, or without any the number of the virtual rank of each.

        Raises:
            UsageError: The bits would depend on the number of ranks. No optimizer has made a step with it.
        """
        given = self.numbers if batches is None else batches
        if len(given) != len(self.numbers):
            raise UsageError(
                f"{len(given)} micro-batches were given, and this rank has {len(self.numbers)} virtual ranks "
                f"({', '.join(map(str, self.numbers))}); pass one for each, as GlobalBatches(..., virtual_ranks=ranks) "
                "gives them"
            )
        self._begin()
        before = of_first = self._buffers.copies()
        generators = [one for module in self._model.modules() for one in vars(module).values() if is_generator(one)]
        without_sum = self._model.no_sync() if isinstance(self._model, DistributedDataParallel) else nullcontext()
        with without_sum, self._buffers.others_stay():
            for index, (number, batch) in enumerate(zip(self.numbers, given)):
                self._gradients.begin(index)
                key = f"virtual rank {number}, step {self._steps}, seed {self._seed}"
                gpu = self._device.index if self._device.type == "cuda" else None
                own = seeded_generators(generators, key.encode())
                with seeded_random_numbers(key.encode(), gpu=gpu), own:
                    yield batch
                self._gradients.take(index, self._sum.parameters_of_micro_batch())
                if index == 0:
                    of_first = self._buffers.copies()
                self._buffers.put_back(before)
        self._sum.require_unchanged()
        # Else ranks would add gradients of different parameters to each other.
        self._require_common(
            {"parameters with a gradient": self._sum.names},
            remedy="Let each parameter take part in all micro-batches, or freeze it",
        )
        self._gradients.give(self._sum.parameters())
        self._buffers.put_back(self._buffers.of_rank_0(of_first))
        self._steps += 1
        self._sum.is_there()

    def clip_grad_norm_(self, max_norm: float) -> float:
        """Scale the gradients to a 2-norm of `max_norm` where theirs is larger. Collective.

        The norm does not depend on the division of the model. Its last bits differ from those of
        `torch.nn.utils.clip_grad_norm_`, which adds in another order.

        Args:
            max_norm: Largest norm.

        Returns:
            The norm before. Infinity where a value is not finite.

        Raises:
            UsageError: Outside of a step, that is before the end of `micro_batches`.
        """
        self._sum.require("clip_grad_norm_ was called")
        gradients = [one.grad for one in self._sum.parameters() if one.grad is not None]
        norm = norm_of(gradients, self._group)
        scale = max_norm / (norm + _NORM_EPSILON)
        if scale < 1:
            for gradient in gradients:
                local_part(gradient).mul_(scale)
        self._sum.is_there()
        return norm

    def state_dict(self) -> dict[str, Any]:
        """Give the facts that decide the next step beside the model and the optimizer."""
        self._is_in_a_state = True
        return {
            "count": self.count,
            "seed": self._seed,
            "steps": self._steps,
            "environment": environment_of(self._device),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state.

        Raises:
            UsageError: Another number of virtual ranks wrote it, or another kind of machine.
        """
        self._is_in_a_state = True
        now = {"virtual ranks": self.count, **environment_of(self._device)}
        saved = {"virtual ranks": state["count"], **state["environment"]}
        others = [
            f"{name}: {saved.get(name)} in the checkpoint, {now.get(name)} here"
            for name in dict.fromkeys([*saved, *now])
            if saved.get(name) != now.get(name)
        ]
        if others:
            raise UsageError(
                "the training cannot go on to the same bits:"
                + "".join(f"\n  - {other}" for other in others)
                + "\nGo on with what the checkpoint has (torch.set_num_threads sets the threads), or begin a new "
                "training."
            )
        self._seed, self._steps = state["seed"], state["steps"]

    def _require_fit(self) -> None:
        problems = problems_of_training(self.count, _world_size(), self._model, self._optimizers)
        if problems:
            raise UsageError(
                "this training would not end with the same bits for each number of ranks:"
                + "".join(f"\n  - {problem}" for problem in problems)
            )

    def _group_of(self, parameter: torch.nn.Parameter) -> Any:
        if isinstance(parameter, DTensor):
            return parameter.device_mesh.get_group()
        return self._model.process_group

    def _gradients_of_step(self) -> Gradients:
        modules = fully_sharded(self._model)
        for module in modules:
            # The mean is taken here, in one division of the sum.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        if modules and self._group is not None:
            return DividedGradients(self.count, self._group, modules)
        return WholeGradients(self.count, self._group)

    def _begin(self) -> None:
        """Get ready for a step, and see that all ranks do the same one.

        Raises:
            UsageError: They do not, or something has changed that decides the bits.
        """
        if not self._is_in_a_state:
            raise UsageError(
                "a resume would draw the random numbers of the first step again: pass the VirtualRanks in the state of "
                "the Checkpointer, for example {'model': model, 'optimizer': optimizer, 'ranks': ranks}"
            )
        self._sum.begin()
        trained = [name for name, parameter in self._model.named_parameters() if parameter.requires_grad]
        counts = [sum(len(group["params"]) for group in one.param_groups) for one in self._optimizers]
        if (trained, counts) == self._agreed:
            return
        self._require_fit()
        self._require_common(
            {
                "number of virtual ranks": self.count,
                "seed": self._seed,
                "number of steps": self._steps,
                "trained parameters": trained,
                **environment_of(self._device),
            }
        )
        if self._agreed is None:
            self._buffers.put_back(self._buffers.of_rank_0(self._buffers.copies()))
        self._agreed = (trained, counts)

    def _require_common(
        self, facts: Mapping[str, Any], *, remedy: str = "Start all ranks alike, on machines of one kind"
    ) -> None:
        """Require the same facts on all ranks. Collective.

        Args:
            facts: The facts of this rank, by their names.
            remedy: The remedy for the message.

        Raises:
            UsageError: They differ. The message names them.
        """
        if self._group is None:
            return
        digests = b"".join(sha256(json.dumps(fact).encode()).digest() for fact in facts.values())
        own = torch.tensor(list(digests), dtype=torch.uint8, device=self._device)
        gathered = own.new_empty(_world_size() * own.numel())
        all_gather(gathered, own, group=self._group)
        first, *others = (bytes(one.tolist()) for one in gathered.chunk(_world_size()))
        for rank, other in enumerate(others, 1):
            for place, (name, fact) in enumerate(facts.items()):
                part = slice(place * _DIGEST_BYTES, (place + 1) * _DIGEST_BYTES)
                if first[part] != other[part]:
                    raise UsageError(
                        f"the ranks differ in the {name}: rank {rank} has another one than rank 0. Here it is "
                        f"{_text(fact)}. {remedy}"
                    )


class _Sum:
    """The gradients of a step, with the parameters that have one, and whether an optimizer may make a step with them.

    Args:
        model: The model.
        optimizers: Its optimizers.
        divided: True where each rank has a part of each parameter.
    """

    def __init__(self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], *, divided: bool) -> None:
        self._divided = divided
        self._model = model
        self._optimizers = optimizers
        self._names: list[str] | None = None
        self._is_there = False
        self._checksums: torch.Tensor | None = None
        self._versions: list[int] = []  # of the gradients, when the sum came
        self._stepped: set[int] = set()
        self._before: tuple[_Weights, _Options] = ({}, [])

    @property
    def names(self) -> list[str]:
        """Names of the parameters that had a gradient in each micro-batch."""
        return self._names or []

    def begin(self) -> None:
        """Begin a step.

        Raises:
            UsageError: There are gradients from before.
        """
        names = [name for name, parameter in self._model.named_parameters() if parameter.grad is not None]
        if names:
            raise UsageError(
                f"there are gradients before the first micro-batch of a step, of {_some(names)}: call "
                "optimizer.zero_grad() before the loop, without set_to_none=False, or model.zero_grad() where no "
                "optimizer has them. For larger steps pass more virtual ranks"
            )
        self._names, self._is_there = None, False
        self._stepped.clear()
        self._before = self._settings()

    def require_unchanged(self) -> None:
        """Require the weights and the options of optimizers that were there before the first micro-batch.

        Raises:
            UsageError: The loop has changed some. It has as many turns as a rank has virtual ranks.
        """
        weights, options = self._settings()
        weights_before, options_before = self._before
        # A module that was whole before and is divided now has other parameters.
        changed = [
            name
            for name, (parameter, version) in weights_before.items()
            if name in weights and weights[name][0] is parameter and weights[name][1] != version
        ]
        for (kind, before, version), (_, now, version_now) in zip(options_before, options):
            changed += [f"{name} of {kind}" for name, value in now.items() if before.get(name, value) != value]
            changed += [f"lr of {kind}"] if version_now != version else []
        if changed:
            raise UsageError(
                f"the loop over the micro-batches changed {_some(changed)}. It has as many turns as this rank has "
                "virtual ranks, so another number of ranks would change that more or less often: step schedules, and "
                "change weights and options of optimizers, after the loop"
            )

    def _settings(self) -> tuple[_Weights, _Options]:
        """Give what decides a step beside the gradients, with versions of tensors, which count their changes."""
        weights = {name: (parameter, parameter._version) for name, parameter in self._model.named_parameters()}
        options = [
            (type(one).__name__, {**group, "params": None}, getattr(group.get("lr"), "_version", 0))
            for one in self._optimizers
            for group in one.param_groups
        ]
        return weights, options

    def parameters_of_micro_batch(self) -> list[torch.nn.Parameter]:
        """Give the parameters with a gradient after a micro-batch.

        Raises:
            UsageError: There are none, or others than after another micro-batch, or a gradient is sparse.
        """
        named = [(name, one) for name, one in self._model.named_parameters() if one.grad is not None]
        names = [name for name, _ in named]
        sparse = [name for name, one in named if one.grad is not None and one.grad.layout != torch.strided]
        if sparse:
            raise UsageError(f"the gradients of {_some(sparse)} are sparse: make the layers with sparse=False")
        if not names:
            raise UsageError("no parameter has a gradient after a micro-batch: call backward inside of the loop")
        if self._names is None:
            self._names = names
        if names != self._names:
            others = sorted(set(names) ^ set(self._names))
            raise UsageError(
                f"only some micro-batches of a step have a gradient of {_some(others)}: let each parameter take part "
                "in all of them, or freeze it"
            )
        return [parameter for _, parameter in named]

    def parameters(self) -> list[torch.nn.Parameter]:
        """Give the parameters that had a gradient in each micro-batch."""
        names = set(self.names)
        return [parameter for name, parameter in self._model.named_parameters() if name in names]

    def is_there(self) -> None:
        """Take note that the gradients are those for the optimizer."""
        self._is_there = True
        self._checksums = self._checksums_now() if self._divided else None
        if isinstance(self._model, DistributedDataParallel):
            # All ranks have the same buffers. DDP sets this at a forward pass whose gradients it would add.
            self._model.require_forward_param_sync = False
            self._versions = self._versions_now()

    def require(self, called: str) -> None:
        """Require the sum.

        Raises:
            UsageError: The step is not at its end yet.
        """
        if not self._is_there:
            raise UsageError(
                f"{called} before the gradients were added: go through `for virtual_rank in ranks.micro_batches()` to "
                "its end first"
            )

    def before_optimizer(
        self, optimizer: torch.optim.Optimizer, arguments: Sequence[Any], options: Mapping[str, Any]
    ) -> None:
        """See that a step of an optimizer is one with the sum of all virtual ranks.

        Args:
            optimizer: The optimizer.
            arguments: Those of its `step`, of which the optimizer is the first.
            options: Those with a name.

        Raises:
            UsageError: It is not.
        """
        self.require("an optimizer was stepped")
        if id(optimizer) in self._stepped:
            raise UsageError(
                "an optimizer was stepped twice for one sum of gradients: go through `ranks.micro_batches()` before "
                "each step"
            )
        if options.get("closure", arguments[1] if len(arguments) > 1 else None) is not None:
            raise UsageError(
                "an optimizer was stepped with a closure, which computes gradients of this rank alone: call step() "
                "without one"
            )
        if (
            isinstance(self._model, DistributedDataParallel)
            and self._model.require_forward_param_sync
            and self._versions_now() != self._versions
        ):
            raise UsageError(
                "gradients of a forward pass after the last micro-batch were added by DistributedDataParallel, in an "
                "order that may depend on the number of ranks: compute each loss inside of the loop"
            )
        if self._checksums is not None and not torch.equal(self._checksums_now(), self._checksums):
            raise UsageError(
                "the gradients of a divided model were changed after the last micro-batch, in an order that may depend "
                "on the number of ranks: clip them by ranks.clip_grad_norm_, in place of torch's clip_grad_norm_. Call "
                "it after scaler.unscale_(optimizer) of a GradScaler, too"
            )
        self._stepped.add(id(optimizer))

    def _versions_now(self) -> list[int]:
        return [one.grad._version for one in self.parameters() if one.grad is not None]

    def _checksums_now(self) -> torch.Tensor:
        """Give sums of the gradients' bits. A DTensor counts no version where torch changes several at once."""
        parts = [local_part(one.grad) for one in self.parameters() if one.grad is not None]
        words = {4: torch.int32, 8: torch.int64}
        return torch.stack([part.reshape(-1).view(words[part.element_size()]).sum() for part in parts])


class _Buffers:
    """The buffers of a model, such as the averages of a batch norm.

    Args:
        model: The model.
        group: The process group. None for a process that trains alone.
    """

    def __init__(self, model: torch.nn.Module, group: Any) -> None:
        self._model = model
        self._group = group

    def copies(self) -> dict[str, torch.Tensor]:
        """Copy them, by their names."""
        return {name: buffer.clone() for name, buffer in self._model.named_buffers()}

    def put_back(self, copies: Mapping[str, torch.Tensor]) -> None:
        """Give them the values of copies.

        Raises:
            UsageError: There are others now, or one has another shape.
        """
        now = dict(self._model.named_buffers())
        others = [
            name
            for name in {**copies, **now}
            if name not in now or name not in copies or now[name].shape != copies[name].shape
        ]
        if others:
            raise UsageError(
                f"a micro-batch made or removed the buffers {_some(others)}, or changed their shape, so the next "
                "virtual rank would begin with others: make them before the first step, for example by a forward pass "
                "of the model under torch.no_grad()"
            )
        with torch.no_grad():
            for name, buffer in now.items():
                buffer.copy_(copies[name])

    def of_rank_0(self, copies: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Give all ranks the copies of rank 0, which has virtual rank 0. Collective."""
        if self._group is None or not copies:
            return copies
        flat = torch.cat([copy.reshape(-1).view(torch.uint8) for copy in copies.values()])
        dist.broadcast(flat, dist.get_global_rank(self._group, 0), group=self._group)
        parts = flat.split([copy.nbytes for copy in copies.values()])
        return {
            name: part.clone().view(copy.dtype).view(copy.shape) for part, (name, copy) in zip(parts, copies.items())
        }

    @contextmanager
    def others_stay(self) -> Iterator[None]:
        """Require inside a `with` block that the buffers of modules outside of the model stay as they are.

        Raises:
            UsageError: A forward pass of such a module has changed one. The next virtual rank would go on with it.
        """
        own = set(self._model.modules())
        others: dict[torch.nn.Module, list[tuple[Any, int]]] = {}

        def before_forward(module: torch.nn.Module, _: Any) -> None:
            if type(module).__name__ == "OptimizedModule":
                raise UsageError(
                    "a module of torch.compile was called inside of the loop, whose kernels may differ from process to "
                    "process; leave torch.compile out"
                )
            if module._buffers and module not in own and module not in others:
                others[module] = _versions_of(module)

        handle = torch.nn.modules.module.register_module_forward_pre_hook(before_forward)
        try:
            yield
        finally:
            handle.remove()
        changed = [type(module).__name__ for module, before in others.items() if not _are_same(module, before)]
        if changed:
            raise UsageError(
                f"a forward pass inside of the loop changed buffers of {_some(changed)}, outside of the model of the "
                "VirtualRanks. The next virtual rank of this rank goes on with them, so they depend on the number of "
                "ranks: make it a submodule of that model, or call eval() on it"
            )


def _versions_of(module: torch.nn.Module) -> list[tuple[Any, int]]:
    return [(buffer, buffer._version) for buffer in module._buffers.values() if buffer is not None]


def _are_same(module: torch.nn.Module, before: Sequence[tuple[Any, int]]) -> bool:
    now = _versions_of(module)
    return [version for _, version in now] == [version for _, version in before] and all(
        one is other for (one, _), (other, _) in zip(now, before)
    )


def _world_size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _text(fact: Any) -> str:
    return _some(fact) if isinstance(fact, list) else str(fact)
