"""What all ranks were said to have in common and have not: each writes its own, and what is equal is written once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.errors import OtherRankError, StateError
from spotkeep.ranks.rank_group import Joinables, RankComparison
from spotkeep.state.arrays import DeviceBytes, device_digests
from spotkeep.state.differences import own_paths
from spotkeep.state.divided import Box, DividedArray, Part
from spotkeep.state.encoding import encode_state
from tests.spotkeep.reshard import restore_on, save_on


def encoded_on_each(world, states, *, saves=1, change=lambda states, save: None):
    """What each rank writes at each of its saves."""

    def act(ranks):
        comparison, documents = RankComparison(ranks, Joinables()), []
        for save in range(saves):
            if ranks.rank == 0:
                change(states, save)
            ranks.exchange(None)
            documents.append(comparison.encode(lambda: (encode_state(states[ranks.rank]), encode_state({}))))
        return documents

    return world(len(states)).run(act)


def differing(world, states, **options):
    return [[own_paths(one.document.differences) for one in rank] for rank in encoded_on_each(world, states, **options)]


def test_what_is_equal_is_written_once_by_all_together(world):
    weights = np.random.default_rng(0).random(6 * 2**20 // 8)
    states = [{"w": weights.copy(), "optimizer": {"state": {0: {"step": 3.0}}}} for _ in range(3)]
    assert differing(world, states) == [[[]], [[]], [[]]]
    written = [one for (one,) in encoded_on_each(world, states)]
    assert [one.document.common is not None for one in written] == [True, False, False]
    assert [[part.size for part in one.parts] for one in written] == [[2 * 2**20, 0]] * 3
    assert b"".join(bytes(blob.raw) for one in written for blob in one.parts[0].blobs) == weights.tobytes()


def test_what_differs_is_written_by_each_rank_and_lies_in_no_range_of_another(world):
    states = [{"a": np.full(2**18, rank), "w": np.ones(2**18), "z": np.full(9, -1)} for rank in range(3)]
    written = [one for (one,) in encoded_on_each(world, states)]
    shared = b"".join(bytes(blob.raw) for one in written for blob in one.parts[0].blobs)
    assert shared == np.ones(2**18).tobytes() + np.full(9, -1).tobytes()
    for rank, one in enumerate(written):
        assert [bytes(blob.raw) for blob in one.parts[1].blobs] == [np.full(2**18, rank).tobytes()]
    of_first = written[0].document.common["dict"]
    assert [one[1]["ndarray"].get("stream", 0) for one in of_first] == [1, 0, 0]


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_each_rank_writes_as_many_bytes_as_another_within_a_tenth(world, tmp_path, ranks):
    """With replicated weights, a divided array of uneven parts, one that pairs of ranks hold, and differences."""
    random = np.random.default_rng(0)
    weights = [random.integers(0, 256, size * 2**20, dtype="u1") for size in (7, 1, 4, 9)]
    parts = [random.integers(0, 256, (1 + 2 * (rank == 1)) * 2**20, dtype="u1") for rank in range(ranks)]
    starts = [sum(map(len, parts[:rank])) for rank in range(ranks)]
    held = random.integers(0, 256, 2**22, dtype="u1")

    def state(rank):
        own = Part(Box((starts[rank],), parts[rank].shape), parts[rank])
        common = Part(Box((0,), held.shape), held)
        return {
            "weights": weights,
            "divided": DividedArray(kind="ndarray", dtype="|u1", shape=(sum(map(len, parts)),), parts=(own,)),
            "held by all": DividedArray(kind="ndarray", dtype="|u1", shape=held.shape, parts=(common,)),
            "queue": np.full(2**16, rank),
        }

    written = save_on(world, tmp_path, [state(rank) for rank in range(ranks)])
    assert max(written) <= 1.1 * sum(written) / ranks + 2**20
    assert min(written) >= sum(written) / ranks / 1.1 - 2**20
    files = CheckpointDirectory(tmp_path).read_manifest(1).files
    once = sum(map(len, weights)) + sum(map(len, parts)) + len(held) + ranks * 2**19
    assert once <= sum(file.size for file in files) == sum(written) < once + (ranks + 8) * 4096, "nothing twice"
    for rank in range(ranks):
        live = state(rank)
        live["queue"] = np.zeros(2**16, dtype=live["queue"].dtype)
        live["weights"] = [np.zeros_like(one) for one in weights]
        restore_on(tmp_path, live, rank=rank, world_size=ranks)
        assert live["queue"].tolist() == [rank] * 2**16
        assert all(map(np.array_equal, live["weights"], weights))


def test_a_list_that_differs_beside_divided_arrays_comes_back_to_each_rank(world, tmp_path):
    def state(rank, values):
        part = Part(Box((6 * rank,), (6,)), values)
        return {"m": [DividedArray(kind="ndarray", dtype="<f8", shape=(12,), parts=(part,)), f"rank {rank}"]}

    save_on(world, tmp_path, [state(0, np.zeros(6)), state(1, np.ones(6))])
    for rank in range(2):
        live = state(rank, np.full(6, -1.0))
        found = restore_on(tmp_path, live, rank=rank, world_size=2)
        assert found["m"] == live["m"]
        assert live["m"][0].parts[0].local.tolist() == [rank] * 6
    with InspectedCheckpoint(tmp_path, 1) as inspected:
        assert list(inspected.damage()) == []
    assert CheckpointDirectory(tmp_path).read(1).state["m"][0].tolist() == [0] * 6 + [1] * 6


def test_parts_that_are_not_the_whole_array_are_refused_by_name(world, tmp_path):
    def state(rank):
        part = Part(Box((6 * rank,), (5,)), np.zeros(5))
        return {"m": {"w": DividedArray(kind="ndarray", dtype="<f8", shape=(12,), parts=(part,))}}

    with pytest.raises(StateError, match=r"state\['m'\]\['w'\]: its parts on all ranks are not the whole array"):
        save_on(world, tmp_path, [state(0), state(1)])


def test_ranks_with_other_arrays_than_rank_0_leave_the_common_ones_to_it(world):
    states = [{"w": np.ones(2**18), "more": [np.zeros(9)] * rank} for rank in range(2)]
    written = [one for (one,) in encoded_on_each(world, states)]
    assert [one.parts[0].size for one in written] == [0, 0]
    assert written[0].parts[1].size == 8 * 2**18


@pytest.mark.parametrize(
    "own",
    [
        lambda rank: np.full(4, rank),
        lambda rank: np.random.default_rng(rank),
        lambda rank: random.Random(rank),  # noqa: S311
        lambda rank: list(range(rank)),
        lambda rank: {"last": 1.0, rank: "rank"},
        lambda rank: None if rank else {"best": 0.5},
        lambda rank: b"r%d" % rank,
    ],
    ids=["array", "numpy", "random", "longer list", "other keys", "on rank 0 alone", "bytes"],
)
def test_each_rank_writes_what_it_has_otherwise(world, own):
    states = [{"w": np.ones(9), "own": {"at": own(rank)}} for rank in range(3)]
    (zero,), (one,), (two,) = differing(world, states)
    assert zero == []
    assert one
    assert two
    assert all(path.startswith("state['own']['at']") for path in (*one, *two))


def test_a_small_change_is_found_at_every_save_and_one_in_a_large_array_within_32(world):
    for size, limit in ((10, 0), (5000, 31)):
        # What changes between the saves of a process; everything is compared at its first one.
        states = [{f"w{index}": np.zeros(size) for index in range(40)} for _ in range(2)]

        def change(states, save):
            if save == 3:
                states[1]["w25"][-1] = 1

        found = differing(world, states, saves=40, change=change)[1]
        first = found.index(["state['w25']"])
        assert 3 <= first <= 3 + limit
        assert found == [[]] * first + [["state['w25']"]] * (40 - first), "from then on it is the rank's own"


def test_an_array_that_drifts_apart_is_found_at_the_next_save(world):
    """A part of each array is compared at each save, so no range mixes two ranks' values of it."""
    states = [{f"w{index}": np.zeros(5000) for index in range(40)} for _ in range(2)]

    def change(states, save):
        if save == 3:
            states[1]["w25"][:] = 1

    found = differing(world, states, saves=6, change=change)[1]
    assert found == [[]] * 3 + [["state['w25']"]] * 3


def test_a_state_that_one_rank_cannot_save_fails_on_all(world):
    states = [{"own": 1}, {"own": {1, 2}}]
    zero, one = encoded_on_each(world, states)
    assert isinstance(one, StateError)
    assert isinstance(zero, OtherRankError)


@pytest.mark.torch
def test_buffers_that_a_wrapper_makes_equal_are_rank_0s_and_others_each_ranks(world):
    torch = pytest.importorskip("torch")
    wrapper_type = torch.nn.parallel.DistributedDataParallel

    def wrapped(net, *, broadcasts, size):
        """As it is when it was made over so many ranks, without any."""
        wrapper = wrapper_type.__new__(wrapper_type)
        torch.nn.Module.__init__(wrapper)
        wrapper.module, wrapper.broadcast_buffers, wrapper.parameters_to_ignore = net, broadcasts, {"ignored"}
        wrapper.process_group = type("Group", (), {"size": lambda self: size})()
        return wrapper

    for broadcasts, size, own in (
        (True, 2, ["ignored"]),
        (False, 2, ["mean", "ignored"]),
        (True, 1, ["mean", "ignored"]),
    ):
        nets = [torch.nn.Module(), torch.nn.Module()]
        for rank, net in enumerate(nets):
            net.register_buffer("mean", torch.full((3,), float(rank)))
            net.register_buffer("ignored", torch.full((3,), float(rank)))
            net.register_buffer("same", torch.ones(3))
        wrappers = [wrapped(net, broadcasts=broadcasts, size=size) for net in nets]
        states = [{"model": net} for net in nets]
        assert differing(world, states)[1] == [[f"state['model'][{name!r}]" for name in own]]
        del wrappers


@pytest.mark.torch
def test_digests_that_a_gpu_adds_up_are_equal_for_equal_bytes_only():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    for size, start in ((1, 0), (4087, 0), (4088, 0), (4089, 3), (50_000, 0), (50_000, 8), (50_001, 5)):
        raw = torch.randint(0, 256, (size + start,), dtype=torch.uint8)[start:]
        changed = raw.clone()
        changed[size // 2] += 1
        turned = raw.roll(8)
        one, again, *others = device_digests([DeviceBytes(each) for each in (raw, raw.clone(), changed, turned)])
        assert one == again
        assert size == 1 or len({one, *others}) == 3
