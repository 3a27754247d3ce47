"""What stays: the newest, each n-th, the best."""

from __future__ import annotations

import json

import pytest

from spotkeep.disk.retention import Best, Candidate, Retention, read_retention


def candidates(**losses):
    return [Candidate(step=int(name[1:]), metrics={"loss": loss}) for name, loss in losses.items()]


NEWEST = candidates(s60=0.5, s50=0.4)
OLDER = candidates(s40=0.3, s30=0.1, s20=0.2, s10=0.9)


@pytest.mark.parametrize(("last", "stay"), [(1, 2), (2, 2), (5, 5)])
def test_two_always_stay(last, stay):
    assert Retention(last=last).newest == stay


def test_nothing_else_stays_unless_asked_for():
    assert Retention().spared(NEWEST, OLDER) == set()


def test_each_nth_stays():
    assert Retention(every=20).spared(NEWEST, OLDER) == {40, 20}


@pytest.mark.parametrize(("mode", "best"), [("min", 30), ("max", 10)])
def test_the_best_stays(mode, best):
    assert Retention(best=Best("loss", mode)).spared(NEWEST, OLDER) == {best}


def test_of_two_equally_good_ones_the_newer_is_the_best():
    assert Retention(best=Best("loss")).spared(NEWEST, candidates(s40=0.2, s30=0.2)) == {40}


def test_the_best_may_be_among_those_that_stay_anyway():
    assert Retention(best=Best("loss")).spared(candidates(s60=0.0), OLDER) == set()


def test_what_lacks_the_metric_or_is_damaged_is_not_the_best():
    older = [
        Candidate(step=40, metrics={"loss": float("nan")}),
        Candidate(step=30),
        Candidate(step=20, metrics={"loss": 0.0}, damaged=True),
    ]
    assert Retention(best=Best("loss"), every=20).spared([], older) == {40}


def test_what_each_rank_had_for_itself_stays_until_as_many_ranks_supersede_it():
    older = [
        Candidate(step=50, own_ranks=3),
        Candidate(step=40, own_ranks=2),
        Candidate(step=30, own_ranks=2, damaged=True),
        Candidate(step=20, own_ranks=2),
        Candidate(step=10, own_ranks=4, damaged=True),
    ]
    assert Retention().spared([Candidate(step=60)], older) == {50, 40}
    assert Retention().spared([Candidate(step=60, own_ranks=2)], older) == {50}
    assert Retention().spared([Candidate(step=70, own_ranks=3), Candidate(step=60, own_ranks=2)], older) == set()


@pytest.mark.parametrize("kept", [Retention(), Retention(last=7, every=100, best=Best("loss", "max"))])
def test_it_is_read_back_as_it_was_given(kept):
    assert read_retention(json.loads(json.dumps(kept.document()))) == kept


@pytest.mark.parametrize(
    "change",
    [
        {"last": 0},
        {"last": True},
        {"every": -1},
        {"every": "2"},
        {"best": "loss"},
        {"best": {"metric": 1, "mode": "min"}},
        {"best": {"metric": "loss", "mode": "most"}},
    ],
)
def test_what_is_no_retention_is_none(change):
    assert read_retention({**Retention().document(), **change}) is None
    assert read_retention(None) is None
