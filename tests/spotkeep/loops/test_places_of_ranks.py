"""The place of several ranks in a pass, for another number of ranks."""

from __future__ import annotations

import random

import pytest

from spotkeep import UsageError
from spotkeep.loops.places_of_ranks import DEALT, GLOBAL, OWN, Division, NewPlace, SavedPlace, new_place, saved_place
from tests.pages.every_block import placed_blocks

A, B = {"last": b"a", "marks": b""}, {"last": b"b", "marks": b""}


def saved(positions, size, division, digests=None):
    return SavedPlace(positions, size, division, digests or (A,) * len(positions))


def place(before, *, rank=0, ranks=3, size=None, division, batches_per_step=1):
    return new_place(
        before,
        name="loader",
        rank=rank,
        world_size=ranks,
        size=size,
        division=division,
        batches_per_step=batches_per_step,
    )


def test_a_thousand_histories_over_one_order_that_is_dealt_out_are_exact_or_refused():
    """Each rank has every n-th sample of the order, as DistributedSampler gives it. exact-data.md has the counts."""
    draw = random.Random(48)  # noqa: S311
    exact, refused = 0, []
    for _ in range(1000):
        order = list(range(draw.choice([96, 120, 360])))
        draw.shuffle(order)
        trained, before = [], None
        while len(trained) < len(order):
            ranks = draw.choice([n for n in range(1, 9) if len(order) % n == 0])
            batch, accumulated = draw.choice([1, 2, 4, 6, 12]), draw.choice([1, 1, 2])
            share = len(order) // ranks
            size = -(-share // batch)
            division = Division(DEALT, batch, ranks, len(order))
            try:
                first = 0 if before is None else place(
                    before, ranks=ranks, size=size, division=division, batches_per_step=accumulated
                ).position  # fmt: skip
            except UsageError as error:
                refused.append((f"{len(trained)} samples of the pass are done", str(error)))
                assert len(trained) % (ranks * batch * accumulated)
                break
            steps = draw.randint(1, -(-(size - first) // accumulated))
            stop = min(first + steps * accumulated, size)
            for number in range(first, stop):
                for rank in range(ranks):
                    trained += order[rank::ranks][number * batch : (number + 1) * batch]
            assert sorted(trained) == sorted(set(trained))
            before = saved((stop,) * ranks, size, division)
        else:
            assert sorted(trained) == sorted(order)
            exact += 1
    assert exact + len(refused) == 1000
    (block,) = (
        placed.block
        for placed in placed_blocks()
        if placed.block.test == "tests/spotkeep/loops/test_places_of_ranks.py"
    )
    assert block.content == (
        f"1000 histories over one order that is dealt out\n"
        f"to the end: {exact}   refused on the way: {len(refused)}   "
        "samples that came twice: 0   samples that never came: 0\n"
    )
    assert all(done in message for done, message in refused)


@pytest.mark.parametrize(
    ("before", "options", "expected"),
    [
        # A pass that was over stays over, although the last batches are filled up otherwise.
        (saved((6, 6), 6, Division(DEALT, 4, 2)), {"size": 4, "division": Division(DEALT, 4, 3)}, NewPlace(4)),
        # Batches of all ranks stay as they are.
        (saved((5, 5), 12, Division(GLOBAL, 8)), {"size": 12, "division": Division(GLOBAL, 8)}, NewPlace(5)),
        # Each rank goes through all of the data, in an order of its own. A new rank has none to compare.
        (saved((5, 4), 12, Division(OWN, 4), (A, B)), {"size": 12, "division": Division(OWN, 4)}, NewPlace(5, A)),
        (saved((5, 4), 12, Division(OWN, 4), (A, B)), {"rank": 1, "size": 12, "division": Division(OWN, 4)},
         NewPlace(4, B)),
        (saved((5, 4), 12, Division(OWN, 4), (A, B)), {"rank": 2, "size": 12, "division": Division(OWN, 4)},
         NewPlace(5)),
        # Without a length each rank, a new one too, must have the batches that all had.
        (saved((5, 5), None, Division(OWN)), {"rank": 2, "division": Division(OWN)}, NewPlace(5, A)),
        # Ranks that share the data of others count once.
        (saved((6, 6, 6, 6), 12, Division(DEALT, 4, 2)), {"rank": 1, "size": 12, "division": Division(DEALT, 4, 2)},
         NewPlace(6)),
    ],
)  # fmt: skip
def test_the_place_follows_from_the_division(before, options, expected):
    assert place(before, **options) == expected


def test_another_batch_of_all_ranks_and_another_filling_up_are_remarked_on():
    before = saved((3, 3), 7, Division(DEALT, 4, 2, 50))
    found = place(before, size=9, division=Division(DEALT, 2, 3, 51))
    assert found.position == 4
    assert found.as_of == before
    assert found.remarks == (
        "a batch of all ranks had 8 samples, and has 6 now",
        "an epoch had 50 samples with those that fill it up, and has 51 now",
    )


@pytest.mark.parametrize(
    ("before", "options", "problem"),
    [
        (saved((4, 4), 6, Division(DEALT, 4, 2)), {"size": 4, "division": Division(DEALT, 4, 3)},
         "2 ranks were in the middle of a pass over the loader, and 3 cannot go on there: 32 samples of the pass are "
         "done, and steps of 12 do not end there. Samples would come twice, or never. Start it with 2 ranks. Or let a "
         "step have 8 samples as before"),
        # The steps would begin in the middle of those that add up gradients.
        (saved((3, 3), 6, Division(DEALT, 2, 2)), {"size": 6, "division": Division(DEALT, 2, 3), "batches_per_step": 4},
         "steps of 24 do not end there"),
        # 13 samples of two ranks are two batches of four on a rank, and those of three ranks are two as well.
        (saved((1, 1), 2, Division(DEALT, 4, 2, 14)), {"size": 2, "division": Division(DEALT, 4, 3, 15)},
         "8 samples of the pass are done, and steps of 12"),
        (saved((4, 4), 12, Division(OWN, 4)), {"size": 8, "division": Division(OWN, 4)},
         "had 12 batches of 4 then, and has 8 batches of 4 now, so each rank has a part"),
        (saved((4, 4), None, Division(OWN), (A, B)), {"division": Division(OWN)}, "each rank had batches of its own"),
        (saved((4, 4), 12, Division(DEALT, 4, 2)), {"size": 8, "division": Division(OWN, 4)},
         "the data was dealt out from one order then, and is gone through by each rank now.* Use the sampler"),
        (saved((4,), 12, saved_place([{"position": 4, "size": 12, "source": {"digest": A}}]).division),
         {"size": 8, "division": Division(DEALT, 4, 3)}, "in a way that an older version did not save then"),
        (saved((4, 3), 12, Division(DEALT, 4, 2)), {"size": 8, "division": Division(DEALT, 4, 3)},
         r"they were at different batches \(4, 3\)"),
        (saved((4, 4), 12, Division(DEALT, None, 2)), {"size": 8, "division": Division(DEALT, 4, 3)},
         "the size of a batch is known in one of the two runs alone"),
    ],
)  # fmt: skip
def test_a_place_that_cannot_be_taken_over_is_refused_with_what_to_do(before, options, problem):
    with pytest.raises(UsageError, match=problem) as refused:
        place(before, **options)
    assert "With GlobalBatches any number of ranks goes on" in str(refused.value)
