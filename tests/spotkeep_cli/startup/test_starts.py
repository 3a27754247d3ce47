"""Where the time of a start went, from the timeline and the log, on both backends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotkeep_cli.startup.starts import Part, Start, facts_of, starts_of
from spotkeep_jobs.backends.sagemaker.training_job import transition_of
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.record import Attempt, TimelineEntry
from spotkeep_jobs.record.states import TimelineKind

BEGUN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
KINDS = {
    "Starting": TimelineKind.STARTING,
    "LaunchingMLInstances": TimelineKind.STARTING,
    "PreparingTrainingStack": TimelineKind.STARTING,
    "Downloading": TimelineKind.DOWNLOADING,
    "DownloadingTrainingImage": TimelineKind.DOWNLOADING,
    "Training": TimelineKind.TRAINING,
    "Interrupted": TimelineKind.INTERRUPTED,
    "Uploading": TimelineKind.UPLOADING,
}


def entry(after: float, status: str, *, kind: TimelineKind | None = None, attempt: int = 1) -> TimelineEntry:
    at = BEGUN + timedelta(seconds=after)
    text = transition_of(status)[1]
    return TimelineEntry(run="digits", attempt=attempt, at=at, kind=kind or KINDS[status], text=text)


def event(after: float, kind: JobEventKind, *, step: int | None = None, **fields: Any) -> JobEvent:
    return JobEvent(kind=kind, at=BEGUN.timestamp() + after, step=step, fields=fields)


def starts(make: Any, timeline: Sequence[TimelineEntry], events: Sequence[JobEvent] = (), **more: Any) -> list[Start]:
    attempt: Attempt = make.attempt("digits", created_at=BEGUN)
    return starts_of(attempt, timeline, events, **more)


FIRST = [
    entry(0.5, "Starting"),
    entry(60, "LaunchingMLInstances"),
    entry(90, "PreparingTrainingStack"),
    entry(120, "Downloading"),
    entry(150, "DownloadingTrainingImage"),
    entry(250, "Training"),
]
IN_THE_FIRST = [
    event(255, JobEventKind.START),
    event(256, JobEventKind.INSTALLING),
    event(300, JobEventKind.INSTALLED, seconds=44.0, reason="by pip"),
    event(310, JobEventKind.SET_UP, seconds=10.0),
    event(318, JobEventKind.RESUME, step=0),
    event(321, JobEventKind.PROGRESS, step=1),
    event(331, JobEventKind.PROGRESS, step=20),
]


def test_each_part_of_a_start_on_sagemaker(make: Any) -> None:
    (start,) = starts(make, FIRST, IN_THE_FIRST)
    assert start.seconds == {
        Part.CAPACITY: 120,
        Part.DATA: 30,
        Part.IMAGE: 100,
        Part.PACKAGES: 60,
        Part.RESTORE: 8,
        Part.FIRST_STEP: 3,
    }
    assert start.total_seconds == 321
    assert (start.trains, start.warm, start.packages_from, start.resumed_step) == (True, False, "by pip", None)


def test_an_interruption_begins_the_next_start(make: Any) -> None:
    timeline = [
        *FIRST,
        entry(900, "Interrupted"),
        entry(905, "Starting"),
        entry(1_000, "Downloading"),
        entry(1_010, "DownloadingTrainingImage"),
        entry(1_050, "Training", kind=TimelineKind.RESUMED),
        entry(2_000, "Uploading"),
    ]
    again = [
        event(898, JobEventKind.PROGRESS, step=40),
        event(899, JobEventKind.RESUME, step=39),
        event(1_052, JobEventKind.START),
        event(1_058, JobEventKind.INSTALLED, seconds=5.0, reason="from the cache"),
        event(1_070, JobEventKind.RESUME, step=20),
        event(1_071, JobEventKind.PROGRESS, step=20),
        event(1_074, JobEventKind.PROGRESS, step=21),
    ]
    first, second = starts(make, timeline, [*IN_THE_FIRST, *again], warm=True)
    assert (first.warm, second.warm) == (True, False)
    assert first.seconds[Part.FIRST_STEP] == 3
    assert second.begun_at == BEGUN + timedelta(seconds=900)
    assert second.seconds == {
        Part.CAPACITY: 100,
        Part.DATA: 10,
        Part.IMAGE: 40,
        Part.PACKAGES: 8,
        Part.RESTORE: 12,
        Part.FIRST_STEP: 4,
    }
    assert (second.packages_from, second.resumed_step) == ("from the cache", 20)
    assert second.as_document()["seconds"]["first_step"] == 4


def test_an_instance_of_ec2_pulls_its_image_while_it_loads(make: Any) -> None:
    timeline = [
        entry(0, "Starting"),
        entry(40, "Downloading"),
        entry(140, "Training"),
    ]
    events = [
        event(80, JobEventKind.IMAGE_PULLING),
        event(120, JobEventKind.IMAGE_PULLED, seconds=40.0),
        event(143, JobEventKind.START),
    ]
    (start,) = starts(make, timeline, events)
    assert start.seconds == {Part.CAPACITY: 40, Part.DATA: 60, Part.IMAGE: 40, Part.PACKAGES: 3}


def test_the_wait_of_a_node_for_the_others_is_no_installation(make: Any) -> None:
    """A leader that leaves names the others in the record, and they count as training before their world has begun."""
    timeline = [
        entry(0, "Starting"),
        entry(40, "Downloading"),
        entry(60, "Training"),
        entry(900, "Interrupted"),
        entry(900, "Downloading"),
        entry(904, "Training", kind=TimelineKind.RESUMED),
    ]
    events = [
        event(59, JobEventKind.INSTANCE_TRAINING),
        event(62, JobEventKind.START),
        event(974, JobEventKind.WORLD_BEGAN),
        event(1_000, JobEventKind.INSTANCE_TRAINING),
        event(1_003, JobEventKind.START),
        event(1_004, JobEventKind.INSTANCE_TRAINING),
        event(1_005, JobEventKind.START),
        event(1_020, JobEventKind.INSTALLED, reason="from the cache"),
    ]
    first, second = starts(make, timeline, events)
    assert first.seconds == {Part.CAPACITY: 40, Part.DATA: 20, Part.PACKAGES: 2}
    assert second.seconds == {Part.CAPACITY: 0, Part.DATA: 100, Part.PACKAGES: 20}


def test_a_fleet_that_replaces_an_instance_before_it_trained_waits_on(make: Any) -> None:
    timeline = [entry(0, "Starting"), entry(40, "Downloading"), entry(60, "Starting"), entry(100, "Downloading")]
    (start,) = starts(make, [*timeline, entry(130, "Training")])
    assert start.seconds == {Part.CAPACITY: 80, Part.DATA: 50}


def test_what_nothing_reports_is_not_known(make: Any) -> None:
    (start,) = starts(make, FIRST)
    assert set(start.seconds) == {Part.CAPACITY, Part.DATA, Part.IMAGE}
    (start,) = starts(make, FIRST, IN_THE_FIRST[:1])
    assert Part.RESTORE not in start.seconds
    assert start.as_document()["seconds"]["restore"] is None
    assert start.as_document()["begun_at"] == "2026-11-21T12:00:00Z"


def test_a_start_that_goes_on_has_the_parts_that_are_over(make: Any) -> None:
    (start,) = starts(make, FIRST[:5])
    assert start.seconds == {Part.CAPACITY: 120, Part.DATA: 30}
    assert not start.trains
    assert starts(make, []) == []
    assert len(starts(make, [*FIRST, entry(900, "Interrupted")])) == 1


def test_clocks_that_differ_give_no_negative_part(make: Any) -> None:
    events = [event(248, JobEventKind.START), event(247.5, JobEventKind.RESUME, step=0)]
    (start,) = starts(make, FIRST, events)
    assert (start.seconds[Part.PACKAGES], start.seconds[Part.RESTORE]) == (0, 0)


def test_entries_of_other_attempts_are_passed_over(make: Any) -> None:
    assert starts(make, [entry(0, "Starting", attempt=2)]) == []


@pytest.mark.parametrize(
    ("channels", "modes", "copied"),
    [
        ([], (), ()),
        ([{"name": "train", "uri": "s3://a/", "input_mode": "File"}], ("File",), (("train", "s3://a/"),)),
        (
            [
                {"name": "train", "uri": "s3://a/", "input_mode": "FastFile"},
                {"name": "test", "efs": "fs-1", "path": "/", "input_mode": "File"},
            ],
            ("FastFile", "file system"),
            (),
        ),
    ],
)
def test_the_choices_of_a_run(make: Any, channels: Any, modes: tuple[str, ...], copied: Any) -> None:
    request = {"name": "digits", "channels": channels, "image": "image:1", "keep_alive": 600}
    facts = facts_of(make.run(request=request, capacity="on-demand"))
    assert (facts.input_modes, facts.file_channels) == (modes, copied)
    assert (facts.backend, facts.on_demand, facts.image, facts.keep_alive) == ("sagemaker", True, "image:1", True)
    assert facts_of(make.run(request={})).image is None
