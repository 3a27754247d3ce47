"""The gradients of virtual ranks, added in the order of one tree, and their norm.

A rank with a whole model adds its gradients on its own. The sums of its subtrees then travel once, so that each rank
adds a part of them and gives it to the others. A rank with a part of a model gets the gradients of its part after each
micro-batch. No library that adds in an order of its own touches a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Optional, Protocol

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from spotkeep.errors import UsageError
from spotkeep.ranks.summation import Term, TreeSum, subtrees_of

_BUCKET_BYTES = 32 * 2**20
_NORM_ELEMENTS = 2**15  # at once, so that they stay in the cache of a processor
_NORM_ELEMENTS_OF_GPU = 2**24
_MANTISSA_BITS = 52
_SMALLEST_VALUE = 1e-300  # what divides by it is finite

# torch 2.13 deprecates the older name.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor

Group = Optional[Any]


class Gradients(Protocol):
    """The gradients of one step, which come one micro-batch after the other."""

    @property
    def numbers(self) -> Sequence[int]:
        """The virtual ranks of this rank, in the order of their micro-batches."""

    def begin(self, index: int) -> None:
        """Get ready for a micro-batch of this rank.

        Args:
            index: Its place among those of this rank, from 0. With 0 a new step begins.
        """

    def take(self, index: int, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Take the gradients of a micro-batch away from the parameters that have one."""

    def give(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give the parameters the mean over all virtual ranks."""


class WholeGradients:
    """The gradients of a model that each rank has whole. Neighbouring virtual ranks are on the same rank.

    Args:
        count: Number of virtual ranks.
        group: The process group. None for a process that trains alone.
    """

    def __init__(self, count: int, group: Group) -> None:
        self._count, self._group = count, group
        rank: int = 0 if group is None else dist.get_rank(group)
        self._size: int = 1 if group is None else dist.get_world_size(group)
        self._each = count // self._size
        self.numbers: Sequence[int] = range(rank * self._each, (rank + 1) * self._each)
        self._tree: TreeSum[list[torch.Tensor]] = TreeSum(_added)

    def begin(self, index: int) -> None:
        """Get ready for a micro-batch of this rank."""
        if index == 0:
            self._tree = TreeSum(_added)

    def take(self, index: int, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Take the gradients of a micro-batch away from the parameters that have one."""
        self._tree.push(Term(self.numbers[index], 1, [_gradient(parameter) for parameter in parameters]))
        for parameter in parameters:
            parameter.grad = None

    def give(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Give the parameters the mean over all virtual ranks."""
        if self._size > 1:
            sums = [[local_part(gradient) for gradient in term.value] for term in self._tree.terms]
            for bucket in _buckets(sums[0]):
                self._exchange([[gradients[index] for index in bucket] for gradients in sums])
            mean = self._tree.terms[0].value
        else:
            mean = self._tree.total()
            for gradient in mean:
                local_part(gradient).div_(self._count)
        self._tree = TreeSum(_added)
        for parameter, gradient in zip(parameters, mean):
            parameter.grad = gradient

    def _exchange(self, sums: list[list[torch.Tensor]]) -> None:
        """Write the mean of a bucket to its first term.

        Args:
            sums: The tensors of the bucket, of each term of this rank.
        """
        first = sums[0][0]
        length = sum(tensor.numel() for tensor in sums[0])
        part = -(-length // self._size)  # of each rank, the last ones with zeros at the end
        subtrees = [subtrees_of(rank * self._each, self._each) for rank in range(self._size)]
        whole = first.new_empty(self._size * part)
        whole[length:] = 0
        sent = whole if len(sums) == 1 else whole.new_empty(self._size, len(sums), part)
        for number, tensors in enumerate(sums):
            torch.cat([tensor.reshape(-1) for tensor in tensors], out=whole[:length])
            if sent is not whole:
                sent[:, number] = whole.view(self._size, part)
        received = whole.new_empty(sum(map(len, subtrees)) * part)
        dist.all_to_all_single(
            received,
            sent.view(-1),
            [len(one) * part for one in subtrees],
            [len(sums) * part] * self._size,
            group=self._group,
        )
        tree: TreeSum[torch.Tensor] = TreeSum(torch.Tensor.add_)
        terms = [term for one in subtrees for term in one]
        for (start, count), value in zip(terms, received.split(part)):
            tree.push(Term(start, count, value))
        all_gather(whole, tree.total().div_(self._count), group=self._group)
        for tensor, values in zip(sums[0], whole[:length].split([tensor.numel() for tensor in sums[0]])):
            tensor.copy_(values.view(tensor.shape))


class DividedGradients:
    """The gradients of a model that `fully_shard` has divided. Each micro-batch is of neighbours, one on each rank.

    Args:
        count: Number of virtual ranks.
        group: The process group of the mesh, of two ranks or more.
        modules: The modules that `fully_shard` was called for.
    """

    def __init__(self, count: int, group: Any, modules: Sequence[Any]) -> None:
        size = dist.get_world_size(group)
        self.numbers: Sequence[int] = range(dist.get_rank(group), count, size)
        self._sums = [_ReduceScatter(count, size, parameters) for parameters in _own_parameters(modules)]
        self._modules = modules

    def begin(self, index: int) -> None:
        """Get ready for a micro-batch of this rank."""
        for module, sums in zip(self._modules, self._sums):
            sums.begin(index)
            if index == 0:  # the model may have another VirtualRanks for other steps
                module.set_custom_reduce_scatter(sums)

    def take(self, index: int, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Take the gradients of a micro-batch away. Those of the last one are the mean already."""
        if index + 1 < len(self.numbers):
            for parameter in parameters:
                parameter.grad = None

    def give(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Leave the parameters the mean that they have."""


class _ReduceScatter:
    """Stands in the place of the reduce-scatter of `fully_shard`, of one module.

    Args:
        count: Number of virtual ranks.
        size: Number of ranks.
        parameters: The parameters of the module, without those of inner ones.
    """

    def __init__(self, count: int, size: int, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._count = count
        self._size = size
        self._dtype = parameters[0].dtype
        self._lengths = [(one, _length_of_part(one, size)) for one in parameters]
        self._most = 0  # elements that a rank gets where all trained parameters have a gradient
        self._length: int | None = None  # those that it gets in this step
        self._index = 0
        self._next = 0  # virtual rank whose gradient comes next
        self._tree: TreeSum[torch.Tensor] = TreeSum(torch.Tensor.add_)

    def begin(self, index: int) -> None:
        """Get ready for a micro-batch of this rank."""
        self._index = index
        if index == 0:
            self._next, self._tree, self._length = 0, TreeSum(torch.Tensor.add_), None
            self._most = sum(length for parameter, length in self._lengths if parameter.requires_grad)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Give memory for the gradients of all ranks, or for their mean.

        Raises:
            UsageError: They are not of the dtype of the parameters.
        """
        if dtype != self._dtype:
            raise UsageError(
                f"fully_shard adds gradients as {dtype}, and the parameters are {self._dtype}: pass "
                f"MixedPrecisionPolicy(reduce_dtype={self._dtype})"
            )
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,  # noqa: FBT001 - torch calls it so, and waits for no work
    ) -> None:
        """Take the gradients of all ranks, and give the mean after the last micro-batch.

        Raises:
            UsageError: A second backward pass of a micro-batch, or one with the gradients of other parameters.
        """
        if self._next != self._index * self._size:
            raise UsageError(
                "a micro-batch of virtual ranks has not one backward pass through each module of fully_shard: add its "
                "losses, and call backward once"
            )
        length = output_tensor.numel()
        if self._length not in (None, length):
            raise UsageError(
                "only some micro-batches of a step have a gradient of all parameters of a module of fully_shard: let "
                "each parameter take part in all of them, or freeze it"
            )
        self._length, sent = length, input_tensor
        if length < self._most:
            # Another rank may have more gradients, which is refused after the loop. A shorter message would end both.
            sent = input_tensor.new_zeros(self._size, self._most)
            sent[:, :length] = input_tensor.view(self._size, length)
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent, group=group)
        for value in received.view(self._size, -1):
            self._tree.push(Term(self._next, 1, value[:length]))
            self._next += 1
        if self._next == self._count:
            output_tensor.copy_(self._tree.total().div_(self._count))
            self._tree = TreeSum(torch.Tensor.add_)
            return
        memory = received.untyped_storage().data_ptr()
        self._tree.terms = [
            replace(term, value=term.value.clone()) if term.value.untyped_storage().data_ptr() == memory else term
            for term in self._tree.terms
        ]
        output_tensor.zero_()


def _own_parameters(modules: Sequence[Any]) -> Iterator[list[torch.nn.Parameter]]:
    """Give the parameters of each module, without those of modules before it, which may be inside of it."""
    known: set[int] = set()
    for module in modules:
        yield [parameter for parameter in module.parameters() if id(parameter) not in known]
        known.update(map(id, module.parameters()))


def _length_of_part(parameter: Any, size: int) -> int:
    """Count the elements that each of some ranks gets of a parameter, with those that fill up the last ones."""
    (placement,) = parameter.placements
    whole = int(parameter.shape[placement.dim])
    return -(-whole // size) * int(parameter.numel() // max(whole, 1))


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Give the memory of this rank of a tensor that may be divided."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def norm_of(gradients: Sequence[torch.Tensor], group: Group) -> float:
    """Give the 2-norm of all gradients, the same for any division among any number of ranks.

    The squares of a tensor are rounded to multiples of a number that is so large that no addition of them rounds. Such
    a sum has no order. The same is done with what the rounding has left.

    Args:
        gradients: The gradients, each of them whole or the DTensor of all ranks.
        group: The process group. None for a process that trains alone.

    Returns:
        The norm. Infinity where a value is not finite.
    """
    parts = [_share(gradient, group) for gradient in gradients]
    largest = torch.zeros(len(parts), dtype=torch.float64, device=parts[0].device)
    for place, part in enumerate(parts):
        if part.numel():
            largest[place] = torch.linalg.vector_norm(part, math.inf)
    largest = torch.where(torch.isfinite(largest), largest, math.inf)
    if group is not None:
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
    scales = 1 / largest.clamp(min=_SMALLEST_VALUE)
    sums = torch.stack(
        [squares_on_grid(part, scale, whole.numel()) for part, scale, whole in zip(parts, scales, gradients)], dim=1
    )
    if group is not None:
        dist.all_reduce(sums, group=group)
    tops, firsts, seconds = torch.stack([largest, *sums]).tolist()
    top = max(tops)
    if not 0 < top < math.inf:
        return float(top)
    norms = [max(top, _SMALLEST_VALUE) * math.sqrt(first + second) for top, first, second in zip(tops, firsts, seconds)]
    return float(top * math.sqrt(math.fsum((norm / top) ** 2 for norm in norms)))


def _share(gradient: torch.Tensor, group: Group) -> torch.Tensor:
    """Give the part of a gradient that this rank squares. Of a whole one each rank takes some."""
    if group is None or isinstance(gradient, DTensor):
        return local_part(gradient)
    return gradient.reshape(-1).tensor_split(dist.get_world_size(group))[dist.get_rank(group)]


def squares_on_grid(part: torch.Tensor, scale: torch.Tensor, count: int) -> torch.Tensor:
    """Give the sum of the squares of a part of a tensor, in two numbers. Those of all parts are added without rounding.

    Args:
        part: The part.
        scale: The number that makes the largest value of the tensor 1.
        count: The number of elements of the tensor.
    """
    bits = _MANTISSA_BITS - count.bit_length()
    sums = scale.new_zeros(2)
    for values in part.reshape(-1).split(_NORM_ELEMENTS if scale.is_cpu else _NORM_ELEMENTS_OF_GPU):
        squares = values.double().mul_(scale).square_()
        for word in (0, 1):
            # Adding this number rounds to multiples of 2**-bits, and then of its square.
            rounds = 1.5 * 2.0 ** (_MANTISSA_BITS - bits * (word + 1))
            rounded = (squares + rounds).sub_(rounds)
            sums[word] += rounded.sum()
            squares -= rounded
    return sums


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        raise AssertionError("a parameter without a gradient was counted among those with one")
    return parameter.grad


def _added(left: list[torch.Tensor], right: list[torch.Tensor]) -> list[torch.Tensor]:
    torch._foreach_add_([local_part(one) for one in left], [local_part(one) for one in right])
    return left


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[int]]:
    """Put tensors of one dtype together, for one message. Gives their places."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        bucket: list[int] = []
        size = 0
        for place, tensor in enumerate(tensors):
            if tensor.dtype != dtype:
                continue
            if bucket and size + tensor.nbytes > _BUCKET_BYTES:
                yield bucket
                bucket, size = [], 0
            bucket.append(place)
            size += tensor.nbytes
        yield bucket
