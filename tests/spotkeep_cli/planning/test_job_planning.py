"""Which instance types a plan is about: those a job may get on spot, in its own order."""

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_cli.planning.job_planning import seen_spells, types_of
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import TimelineEntry
from spotkeep_jobs.record.states import TimelineKind


def on_spot(*types: str) -> dict[str, Any]:
    return {"capacity": "spot", "instance_types": list(types)}


def on_demand(*types: str) -> dict[str, Any]:
    return {"capacity": "on-demand", "instance_types": list(types)}


@pytest.mark.parametrize(
    ("fields", "types"),
    [
        pytest.param({"instance_type": "ml.a"}, ["ml.a"], id="one type"),
        pytest.param({"instance_type": "ml.a", "instance_types": ["ml.b", "ml.a"]}, ["ml.b", "ml.a"], id="several"),
        pytest.param(
            {"capacity": "auto", "ladder": [on_spot("ml.a", "ml.b"), on_spot("ml.b", "ml.c"), on_demand("ml.d")]},
            ["ml.a", "ml.b", "ml.c"],
            id="a ladder: its fallbacks on spot, each type once",
        ),
        pytest.param(
            {"capacity": "auto", "ladder": [on_demand("ml.d", "ml.e")]}, ["ml.d", "ml.e"], id="a ladder without spot"
        ),
    ],
)
def test_the_types_of_a_plan(fields: dict[str, Any], types: list[str]) -> None:
    assert types_of(JobRequest.model_validate({"name": "a", **fields})) == types


MINUTE_S = 60.0


def entries(make: Any, *story: tuple[int, TimelineKind]) -> list[TimelineEntry]:
    return [
        TimelineEntry(run="r", attempt=1, at=make.now - timedelta(minutes=ago), kind=kind, text="")
        for ago, kind in story
    ]


def stretches(make: Any, *story: tuple[int, TimelineKind]) -> list[tuple[bool, float, bool]]:
    spells = seen_spells(entries(make, *story), now=make.now)
    return [(spell.with_capacity, spell.length_s / MINUTE_S, spell.ended) for spell in spells]


def test_capacity_that_was_taken_ended_and_work_that_was_done_did_not_end_it(make: Any) -> None:
    spells = seen_spells(make.timeline(), now=make.now)
    assert [(spell.with_capacity, spell.length_s / MINUTE_S, spell.ended) for spell in spells] == [
        (True, 6, True),
        (False, 3, True),
        (True, 5, False),
    ]


def test_a_run_that_still_waits_has_not_seen_the_end(make: Any) -> None:
    assert stretches(make, (30, TimelineKind.TRAINING), (20, TimelineKind.INTERRUPTED)) == [
        (True, 10, True),
        (False, 20, False),
    ]


def test_downloading_and_training_are_one_stretch(make: Any) -> None:
    assert stretches(
        make, (30, TimelineKind.DOWNLOADING), (28, TimelineKind.TRAINING), (8, TimelineKind.UPLOADING)
    ) == [(True, 22, False)]


def test_a_run_that_never_had_capacity_tells_nothing(make: Any) -> None:
    assert stretches(make, (30, TimelineKind.RUN_OPENED), (10, TimelineKind.ENDED)) == []


def test_a_wait_that_was_given_up_for_on_demand_has_not_seen_its_end(make: Any) -> None:
    story = ((30, TimelineKind.TRAINING), (20, TimelineKind.INTERRUPTED), (5, TimelineKind.ATTEMPT_ENDED))
    assert stretches(make, *story) == [(True, 10, True), (False, 15, False)]


def test_an_error_of_sagemakers_own_took_no_capacity_and_the_start_after_it_is_no_wait_for_any(make: Any) -> None:
    story = entries(
        make, (30, TimelineKind.TRAINING), (20, TimelineKind.INTERRUPTED), (15, TimelineKind.RESUMED),
        (5, TimelineKind.UPLOADING),
    )  # fmt: skip
    story[1] = story[1].model_copy(update={"error_of_aws": True})
    spells = seen_spells(story, now=make.now)
    assert [(spell.with_capacity, spell.length_s / MINUTE_S, spell.ended) for spell in spells] == [
        (True, 10, False),
        (True, 10, False),
    ]
