"""DTensors as divided arrays: each rank's part has the elements that torch gives to that rank."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep.state.divided import (
    Box,
    UndividableArrayError,
    cover_problem,
    divided_dtensor,
    is_dtensor,
    new_like,
)

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
tensors = pytest.importorskip("torch.distributed.tensor")
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor.placement_types import _StridedShard  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

Partial, Replicate, Shard = tensors.Partial, tensors.Replicate, tensors.Shard

pytestmark = pytest.mark.torch


@contextlib.contextmanager
def as_rank(rank, world_size):
    """Be one rank of several, in one process, without any other."""
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def parts_of_ranks(whole, mesh_shape, placements):
    """Give the parts of each rank, as torch divides a tensor."""
    count = torch.tensor(mesh_shape).prod().item()
    found = []
    for rank in range(count):
        with as_rank(rank, count):
            mesh = init_device_mesh("cpu", mesh_shape)
            tensor = tensors.distribute_tensor(whole, mesh, placements, src_data_rank=None)
            divided = divided_dtensor(tensor)
            assert (divided.shape, divided.dtype, divided.kind) == (tuple(whole.shape), "int64", "tensor")
            found.append(divided.parts)
    return found


def require_once_and_right(whole, ranks):
    written = [part.written() for parts in ranks for part in parts]
    for part in itertools.chain(*ranks):
        expected = whole[part.box.slices_in(Box.whole(whole.shape))]
        assert torch.equal(part.local, expected)
    assert cover_problem(tuple(whole.shape), [part.box for part in written if part]) is None


PLACEMENTS = st.sampled_from([Shard(0), Shard(1), Replicate(), _StridedShard(0, split_factor=2)])


@settings(max_examples=60)
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 5)),
    st.lists(st.tuples(st.integers(1, 3), PLACEMENTS), min_size=1, max_size=2),
)
def test_every_element_is_written_once_and_by_a_rank_that_has_it(shape, mesh):
    whole = torch.arange(shape[0] * shape[1]).reshape(shape)
    sizes = tuple(size for size, _ in mesh)
    require_once_and_right(whole, parts_of_ranks(whole, sizes, [placement for _, placement in mesh]))


def test_fully_sharded_on_top_of_tensor_parallelism():
    """Tensor parallelism splits first, on the inner dimension of the mesh."""
    whole = torch.arange(13 * 4).reshape(13, 4)
    ranks = parts_of_ranks(whole, (2, 2), [_StridedShard(0, split_factor=2), Shard(0)])
    require_once_and_right(whole, ranks)


def test_replicas_share_the_writing():
    whole = torch.arange(4096).reshape(64, 64)
    ranks = parts_of_ranks(whole, (2, 2), [Replicate(), Shard(0)])
    assert [[(part.holders, part.turn) for part in parts] for parts in ranks] == [[(2, 0)]] * 2 + [[(2, 1)]] * 2
    require_once_and_right(whole, ranks)


def test_the_parts_are_the_memory_of_the_tensor():
    with as_rank(1, 2):
        mesh = init_device_mesh("cpu", (2,))
        tensor = tensors.distribute_tensor(torch.zeros(5, 2), mesh, [Shard(0)], src_data_rank=None)
        parameter = torch.nn.Parameter(tensor)
        assert is_dtensor(parameter)
        assert not is_dtensor(torch.zeros(1))
        (part,) = divided_dtensor(parameter).parts
        part.local.fill_(3)
        assert parameter.to_local().tolist() == [[3, 3], [3, 3]]
        assert divided_dtensor(parameter).requires_grad
        assert not divided_dtensor(tensor).requires_grad


def test_a_new_array_lies_as_the_other_one():
    with as_rank(1, 2):
        mesh = init_device_mesh("cpu", (2,))
        tensor = tensors.distribute_tensor(torch.zeros(5, 2), mesh, [Shard(0)], src_data_rank=None)
        made = new_like(divided_dtensor(tensor), dtype="bfloat16")
        assert made.boxes == (Box((3, 0), (2, 2)),)
        assert (made.source.placements, made.source.shape, made.dtype) == ((Shard(0),), (5, 2), "bfloat16")
        assert not made.requires_grad


def test_an_order_in_memory_is_that_of_the_whole():
    with as_rank(0, 2):
        mesh = init_device_mesh("cpu", (2,))
        whole = torch.zeros(4, 3, 5, 6).to(memory_format=torch.channels_last)
        tensor = tensors.distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
        assert divided_dtensor(tensor).order == (0, 2, 3, 1)


def test_a_rank_outside_of_the_mesh_has_no_part():
    with as_rank(2, 3):
        mesh = tensors.DeviceMesh("cpu", [0, 1])
        tensor = tensors.DTensor.from_local(
            torch.empty(0), mesh, [Shard(0)], run_check=False, shape=torch.Size((4,)), stride=(1,)
        )
        assert divided_dtensor(tensor).parts == ()


def test_terms_of_a_sum_are_refused_by_name():
    with as_rank(0, 2):
        mesh = init_device_mesh("cpu", (2,))
        tensor = tensors.DTensor.from_local(torch.ones(3), mesh, [Partial()], run_check=False)
        with pytest.raises(UndividableArrayError, match=r"Partial\(sum\).*call redistribute"):
            divided_dtensor(tensor)
