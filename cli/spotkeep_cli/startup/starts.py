"""The parts of each start of a run, from its timeline and the events in its log. Pure.

A start begins with the wait for capacity and ends with the first completed step. SageMaker's SecondaryStatusTransitions
and EC2's history of a fleet are in the timeline. The runner and the library report the rest in the log. A part that
nothing reports is None. The clocks of AWS and of the machine may differ by some seconds, so no part is below 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final

from spotkeep_jobs.backends.sagemaker.training_job import DOWNLOADS_ITS_IMAGE
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.record import Attempt, Run, TimelineEntry
from spotkeep_jobs.record.states import TimelineKind

_CLOCKS_DIFFER: Final = timedelta(seconds=5)
_PHASES: Final = frozenset(
    {
        TimelineKind.STARTING,
        TimelineKind.DOWNLOADING,
        TimelineKind.TRAINING,
        TimelineKind.INTERRUPTED,
        TimelineKind.RESUMED,
        TimelineKind.UPLOADING,
        TimelineKind.STOPPING,
    }
)
_TRAINS: Final = frozenset({TimelineKind.TRAINING, TimelineKind.RESUMED})


class Part(StrEnum):
    """The parts of a start, in their order."""

    CAPACITY = "capacity"
    """From the request to the first instance, or from the interruption to the next one."""
    DATA = "data"
    """SageMaker downloads channels and source. On EC2 the instance boots, attaches the volume and brings its data.

    Nodes also wait for each other, until each of them has the checkpoint.
    """
    IMAGE = "image"
    """SageMaker, or the instance, downloads the container image."""
    PACKAGES = "packages"
    """The container starts, unpacks the source, installs packages and runs `setup`."""
    RESTORE = "restore"
    """The script begins, and takes up its checkpoint."""
    FIRST_STEP = "first step"
    """From there to the first completed step."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of an attempt.

    Attributes:
        attempt: The number of the attempt.
        begun_at: The time of its beginning.
        seconds: The seconds of each known part.
        trains: True once its job trained.
        warm: True where it took over the instances of a warm pool.
        packages_from: The origin of the packages, as the runner names it. None where there are none, or is no log.
        resumed_step: The step of the checkpoint. None where it began from the beginning, or nothing reports it.
    """

    attempt: int
    begun_at: datetime
    seconds: Mapping[Part, float] = field(default_factory=dict)
    trains: bool = False
    warm: bool = False
    packages_from: str | None = None
    resumed_step: int | None = None

    @property
    def total_seconds(self) -> float:
        """The seconds of all known parts."""
        return sum(self.seconds.values())

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON. A part that is not known is null."""
        return {
            "attempt": self.attempt,
            "begun_at": self.begun_at.isoformat().replace("+00:00", "Z"),
            "warm": self.warm,
            "seconds": {part.value.replace(" ", "_"): self.seconds.get(part) for part in Part},
            "total_seconds": round(self.total_seconds, 3),
            "packages_from": self.packages_from,
            "resumed_step": self.resumed_step,
        }


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The choices of a run that decide about its starts.

    Attributes:
        run: The run's id.
        backend: The service that runs its jobs.
        on_demand: True where its capacity is on demand.
        image: The container image. None for none, or an unknown one.
        input_modes: The kinds of its channels, each once: `File`, `FastFile`, `Pipe` or `file system`.
        file_channels: The channels that SageMaker copies first, each with its name and its address in S3.
        keep_alive: True where its jobs leave a warm pool.
    """

    run: str
    backend: str
    on_demand: bool = False
    image: str | None = None
    input_modes: tuple[str, ...] = ()
    file_channels: tuple[tuple[str, str], ...] = ()
    keep_alive: bool = False


def facts_of(run: Run) -> RunFacts:
    """Return the choices of a run, from its recorded request. An adopted run has none."""
    request = run.request
    channels = request.get("channels") or ()
    modes = {
        "file system" if each.get("fsx") or each.get("efs") else each.get("input_mode", "File") for each in channels
    }
    copied = [each for each in channels if each.get("uri") and each.get("input_mode", "File") == "File"]
    return RunFacts(
        run=run.run,
        backend=run.place.backend,
        on_demand=run.place.capacity == "on-demand",
        image=request.get("image"),
        input_modes=tuple(sorted(modes)),
        file_channels=tuple((each["name"], each["uri"]) for each in copied),
        keep_alive=bool(request.get("keep_alive")),
    )


def starts_of(
    attempt: Attempt, timeline: Sequence[TimelineEntry], events: Sequence[JobEvent] = (), *, warm: bool = False
) -> list[Start]:
    """Return the starts of an attempt, in order of time.

    Args:
        attempt: The attempt.
        timeline: The timeline of its run, or a part of it.
        events: The events of its log. Without them the parts inside the container are not known.
        warm: True where its first job took over a warm pool.
    """
    own = [each for each in timeline if each.attempt == attempt.attempt and each.kind in _PHASES]
    spans = list(_spans(sorted(own, key=lambda each: each.at), begun_at=attempt.created_at))
    ends = [span[0] for span in spans[1:]]
    starts = []
    for number, ((begun_at, entries), end) in enumerate(zip(spans, [*ends, None], strict=False)):
        inside = [each for each in events if _is_within(each, begun_at, end)]
        starts.append(_start(attempt, begun_at, entries, inside, warm=warm and number == 0))
    return starts


def _spans(entries: Sequence[TimelineEntry], *, begun_at: datetime) -> Iterator[tuple[datetime, list[TimelineEntry]]]:
    """Yield the beginning of each start with its entries. An interruption of a job that trained begins the next one."""
    current: list[TimelineEntry] = []
    for entry in entries:
        if entry.kind is TimelineKind.INTERRUPTED:
            yield begun_at, current
            begun_at, current = entry.at, []
        else:
            current.append(entry)
    if current:
        yield begun_at, current


def _is_within(event: JobEvent, begun_at: datetime, end: datetime | None) -> bool:
    after = event.at >= (begun_at - _CLOCKS_DIFFER).timestamp()
    return after and (end is None or event.at < end.timestamp())


def _start(
    attempt: Attempt, begun_at: datetime, entries: Sequence[TimelineEntry], events: Sequence[JobEvent], *, warm: bool
) -> Start:
    trains = next((each for each in entries if each.kind in _TRAINS), None)
    seconds: dict[Part, float] = {}
    before = entries if trains is None else [*entries[: entries.index(trains)], trains]
    marks = [(begun_at, Part.CAPACITY), *((each.at, _part_of(each)) for each in before)]
    for (at, part), (following, _) in pairwise(marks):
        if part is not None:
            seconds[part] = seconds.get(part, 0.0) + max(0.0, (following - at).total_seconds())
    pulled = next((each.fields.get("seconds") for each in events if each.kind is JobEventKind.IMAGE_PULLED), None)
    if pulled is not None and Part.DATA in seconds:
        seconds[Part.IMAGE] = min(float(pulled), seconds[Part.DATA])
        seconds[Part.DATA] -= seconds[Part.IMAGE]
    # What the process before printed last is close to an interruption, too.
    inside = [each for each in events if trains is not None and _is_within(each, trains.at, None)]
    installed = next((each for each in inside if each.kind is JobEventKind.INSTALLED), None)
    resume = next((each for each in inside if each.kind is JobEventKind.RESUME), None)
    if trains is not None:
        began_at = trains.at.timestamp()
        handed_over_at = max(began_at, _handed_over_at(inside) or began_at)
        if handed_over_at > began_at:
            seconds[Part.DATA] = seconds.get(Part.DATA, 0.0) + handed_over_at - began_at
        seconds |= _in_the_container(handed_over_at, inside, resume)
    return Start(
        attempt=attempt.attempt,
        begun_at=begun_at,
        seconds={part: round(seconds[part], 3) for part in Part if part in seconds},
        trains=trains is not None,
        warm=warm,
        packages_from=None if installed is None else installed.fields.get("reason"),
        resumed_step=None if resume is None else resume.step or None,
    )


def _part_of(entry: TimelineEntry) -> Part | None:
    if entry.kind is TimelineKind.STARTING:
        return Part.CAPACITY
    if entry.kind is TimelineKind.DOWNLOADING:
        return Part.IMAGE if entry.text.startswith(DOWNLOADS_ITS_IMAGE) else Part.DATA
    return None


def _handed_over_at(events: Sequence[JobEvent]) -> float | None:
    """Return the time at which an agent has started the runner. None where no agent reports it."""
    started = next((place for place, each in enumerate(events) if each.kind is JobEventKind.START), 0)
    handed_over = (each.at for each in reversed(events[:started]) if each.kind is JobEventKind.INSTANCE_TRAINING)
    return next(handed_over, None)


def _in_the_container(
    began_at: float, events: Sequence[JobEvent], resume: JobEvent | None
) -> Iterator[tuple[Part, float]]:
    """Yield the parts after the beginning of the runner, as far as the log tells them."""
    kinds = (JobEventKind.START, JobEventKind.INSTALLED, JobEventKind.SET_UP)
    first_of = {kind: next((each.at for each in events if each.kind is kind), None) for kind in kinds}
    prepared = max((at for at in first_of.values() if at is not None), default=None)
    if prepared is None:
        return
    yield Part.PACKAGES, max(0.0, prepared - began_at)
    if resume is None:
        return
    yield Part.RESTORE, max(0.0, resume.at - prepared)
    taken_up = resume.step or 0
    progress = (each for each in events if each.kind is JobEventKind.PROGRESS and each.at >= resume.at)
    first_step = next((each.at for each in progress if (each.step or 0) > taken_up), None)
    if first_step is not None:
        yield Part.FIRST_STEP, first_step - resume.at
