"""The place of several ranks in a pass, for another number of ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.loops.batch_passes import PlaceOfRanks

COUNTS = st.integers(1, 8)


@given(st.integers(0, 50), COUNTS, COUNTS, COUNTS, COUNTS)
def test_less_than_a_batch_of_all_ranks_comes_again(position, ranks, batch, ranks_after, batch_after):
    place = PlaceOfRanks((position,) * ranks, None, batch)
    after, again = place.of_other_ranks(ranks_after, size=None, samples=batch_after)
    assert after * ranks_after * batch_after + again == position * ranks * batch
    assert 0 <= again < ranks_after * batch_after


@pytest.mark.parametrize(
    ("place", "options", "expected"),
    [
        # Each rank goes through all of the data, so a rank's own place counts.
        (PlaceOfRanks((5, 5), 12, 4), {"size": 12, "samples": 4}, (5, 0)),
        (PlaceOfRanks((5, 5), 12, 4), {"size": 6, "samples": 8}, (2, 4)),
        # A pass that was over stays over, although the last batches are filled up otherwise.
        (PlaceOfRanks((6, 6), 6, 4), {"size": 4, "samples": 4}, (4, 0)),
        # Where the samples of a batch are not known, the batches count.
        (PlaceOfRanks((7, 7), 12, None), {"size": 8, "samples": 4}, (4, 2)),
        (PlaceOfRanks((7, 7), None, 4), {"size": None, "samples": None}, (4, 2)),
    ],
)
def test_the_place_follows_from_the_sizes(place, options, expected):
    assert place.of_other_ranks(3, **options) == expected
