"""Batches of all ranks: each sample once an epoch, and the same batches, for any number of ranks."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import GlobalBatches, UsageError
from spotkeep.loops import global_batches
from tests.pages.every_block import placed_blocks

HISTORIES = 1000


def block_of_page():
    """Give what docs/exact-data.md shows of these tests."""
    (block,) = (
        placed.block for placed in placed_blocks() if placed.block.test == "tests/spotkeep/loops/test_global_batches.py"
    )
    return block.content


def batches_of_one_rank(length, size, epoch, **options):
    alone = GlobalBatches(length, batch_size=size, rank=0, world_size=1, **options)
    return [tuple(batch) for batch in alone.batches(epoch)]


def test_a_thousand_histories_of_other_numbers_of_ranks_give_the_batches_of_one_that_was_left_alone():
    draw = random.Random(48)  # noqa: S311
    interruptions = batches_in_all = 0
    for _ in range(HISTORIES):
        size, epochs = draw.randint(8, 24), draw.randint(1, 3)
        length = draw.randint(size, 6 * size)
        last = length % size
        options = {"seed": draw.randint(0, 9), "drop_last": draw.random() < 0.5 or 0 < last < 8, "uneven": True}
        given_batches, place = [], (0, 0)
        while place[0] < epochs:
            ranks = draw.randint(1, 8)
            samplers = [
                GlobalBatches(length, batch_size=size, rank=rank, world_size=ranks, **options) for rank in range(ranks)
            ]
            epoch, first = place
            stop = draw.randint(first, len(samplers[0]))  # between two batches, at the end of the pass too
            slices = zip(*(sampler.batches(epoch, first) for sampler in samplers), strict=True)
            for number, parts in enumerate(itertools.islice(slices, stop - first), first):
                given_batches.append((epoch, tuple(index for part in parts for index in part)))
                assert max(map(len, parts)) - min(map(len, parts)) <= 1
                assert sum(sampler.weight(number) for sampler in samplers) == pytest.approx(ranks)
            place = (epoch + 1, 0) if stop == len(samplers[0]) else (epoch, stop)
            interruptions += 1
        expected = [
            (epoch, one) for epoch in range(epochs) for one in batches_of_one_rank(length, size, epoch, **options)
        ]
        assert given_batches == expected
        batches_in_all += len(expected)
        times = Counter((epoch, index) for epoch, batch in given_batches for index in batch)
        assert set(times.values()) == {1}
        assert len(times) == epochs * (length - last if options["drop_last"] else length)
    assert block_of_page() == (
        f"{HISTORIES} histories, {interruptions} worlds of 1 to 8 ranks, {batches_in_all} batches of all ranks\n"
        "equal to those of one rank: all   samples that came twice: 0   samples that never came: 0\n"
    )


@given(st.integers(1, 5000), st.integers(0, 2**40), st.integers(0, 2**20))
def test_the_order_has_each_sample_once(length, seed, epoch):
    order = global_batches._Order(length, seed=seed, epoch=epoch)
    assert sorted(order[position] for position in range(length)) == list(range(length))


def test_another_seed_or_epoch_is_another_order_and_without_shuffle_there_is_one():
    orders = {
        tuple(index for batch in batches_of_one_rank(60, 12, epoch, seed=seed) for index in batch)
        for epoch in range(20)
        for seed in range(20)
    }
    assert len(orders) == 400
    plain = batches_of_one_rank(6, 2, 3, shuffle=False)
    assert plain == [(0, 1), (2, 3), (4, 5)]


def test_the_order_of_a_rule_stays_as_it_is():
    """Checkpoints hold the number of the rule and no order, so another order would be other data."""
    assert batches_of_one_rank(10, 5, 1, seed=7) == [KEPT[:5], KEPT[5:]]


KEPT = (0, 3, 7, 6, 9, 2, 1, 5, 4, 8)


def test_each_place_of_the_order_comes_as_often_as_any_other():
    length, orders = 50, 4000
    times = Counter()
    for epoch in range(orders):
        order = global_batches._Order(length, seed=1, epoch=epoch)
        times.update((position, order[position]) for position in range(length))
    expected = orders / length
    spread = sum((times[position, index] - expected) ** 2 for position in range(length) for index in range(length))
    assert 0.8 < spread / expected / (length - 1) ** 2 < 1.2  # chi-square by its degrees of freedom


def test_batch_a_million_is_taken_without_the_batches_before_it(monkeypatch):
    asked = []
    at = global_batches._Order.__getitem__
    monkeypatch.setattr(
        global_batches._Order, "__getitem__", lambda order, position: asked.append(position) or at(order, position)
    )
    batches = GlobalBatches(10**9, batch_size=256, rank=1, world_size=4)
    batch = next(batches.batches(3, first=10**6))
    assert len(set(batch)) == 64
    assert asked == [256 * 10**6 + 64 + number for number in range(64)]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"length": 0}, "length is 0; pass a whole number above zero"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"rank": 3}, "rank is 3 of 3"),
        ({"length": 5, "drop_last": True}, "5 samples make no batch of 6"),
        ({"batch_size": 2, "length": 6}, "batch_size has 2 samples for 3 ranks"),
        ({"length": 13}, "the last batch of an epoch has 1 samples for 3 ranks, .* or drop_last=True"),
        ({"batch_size": 4}, r"3 ranks cannot divide batch_size \(4\) into equal slices; .* uneven=True"),
        ({"length": 16}, r"divide the last batch of an epoch \(4\) into equal slices; .* drop_last=True"),
    ],
)
def test_batches_that_the_ranks_cannot_divide_are_refused_before_the_first_one(arguments, problem):
    with pytest.raises(UsageError, match=problem):
        GlobalBatches(**{"length": 12, "batch_size": 6, "rank": 0, "world_size": 3, **arguments})


def test_slices_that_differ_are_announced_with_what_to_do(caplog):
    for rank in range(3):
        GlobalBatches(10, batch_size=10, uneven=True, rank=rank, world_size=3)
    assert [record.message for record in caplog.records] == [
        "3 ranks divide batch_size (10) into slices that differ by one sample: multiply each rank's loss by "
        "weight(number)"
    ]


def test_uneven_slices_with_weights_have_the_mean_of_the_whole_batch():
    losses = [draw**2 / 7 for draw in range(11)]
    ranks = [GlobalBatches(11, batch_size=11, uneven=True, rank=rank, world_size=4) for rank in range(4)]
    means = []
    for batches in ranks:
        (indices,) = batches
        means.append(batches.weight(0) * sum(losses[index] for index in indices) / len(indices))
    assert sum(means) / len(means) == pytest.approx(sum(losses) / len(losses))


@pytest.mark.parametrize("number", [-1, 2, 9])
def test_a_weight_of_a_batch_that_an_epoch_does_not_have_is_refused(number):
    batches = GlobalBatches(20, batch_size=11, uneven=True, rank=1, world_size=2)
    with pytest.raises(
        UsageError, match=rf"batch {number} of an epoch of 2; pass the number of the batch in its epoch"
    ):
        batches.weight(number)


def test_batches_that_were_made_before_the_ranks_are_refused_at_the_first_one(monkeypatch):
    found = (0, 1)
    monkeypatch.setattr(global_batches, "_rank_and_world_size", lambda: found)
    early, given_numbers = GlobalBatches(12, batch_size=6), GlobalBatches(12, batch_size=6, rank=0, world_size=1)
    assert next(iter(early)) == next(iter(given_numbers))
    found = (1, 3)
    with pytest.raises(
        UsageError, match=r"rank 0 of 1, and this process is rank 1 of 3.*init_process_group.*world_size="
    ):
        next(iter(early))
    assert len(next(iter(GlobalBatches(12, batch_size=6)))) == 2
    assert len(next(iter(given_numbers))) == 6
    found = (0, 1)  # the process group is destroyed
    assert len(next(iter(early))) == 6


def test_another_order_than_that_of_the_checkpoint_is_named():
    saved = GlobalBatches(12, batch_size=6, seed=1).facts()
    GlobalBatches(12, batch_size=6, seed=1).require_facts(saved)
    with pytest.raises(UsageError, match=r"seed was 1 and is 2, drop_last was False and is True, so the batches"):
        GlobalBatches(12, batch_size=6, seed=2, drop_last=True).require_facts(saved)
    with pytest.raises(UsageError, match="in another order than that of GlobalBatches"):
        GlobalBatches(12, batch_size=6).require_facts(None)


class VirtualRanksOfOneRank:
    count, numbers = 4, (0, 2)


def test_a_rank_with_virtual_ranks_gets_the_slice_of_each_by_itself():
    of_virtual = GlobalBatches(24, batch_size=8, seed=3, virtual_ranks=VirtualRanksOfOneRank)
    of_ranks = [GlobalBatches(24, batch_size=8, seed=3, rank=rank, world_size=4) for rank in (0, 2)]
    assert list(of_virtual.batches(1, 1)) == [
        list(slices) for slices in zip(*(one.batches(1, 1) for one in of_ranks), strict=True)
    ]
    assert of_virtual.weight(0) == 1.0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"rank": 0}, "leave out rank, world_size and uneven"),
        ({"uneven": True}, "leave out rank, world_size and uneven"),
        ({"batch_size": 6}, r"4 virtual ranks cannot divide batch_size \(6\) .* another number of virtual ranks"),
        ({"batch_size": 2}, "2 samples for 4 virtual ranks, so one would have none; take fewer virtual ranks"),
    ],
)
def test_batches_that_virtual_ranks_cannot_divide_are_refused(arguments, problem):
    with pytest.raises(UsageError, match=problem):
        GlobalBatches(**{"length": 24, "batch_size": 8, "virtual_ranks": VirtualRanksOfOneRank, **arguments})


def test_a_loader_alone_would_mix_the_micro_batches_and_is_refused():
    with pytest.raises(UsageError, match="a DataLoader alone would put them into one"):
        iter(GlobalBatches(24, batch_size=8, virtual_ranks=VirtualRanksOfOneRank))
