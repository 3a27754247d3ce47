"""The times of a run, which are its durations, its limits, its waits and its deadline.

People write durations as `90m`, `4h`, `1h30m` or `3600`. A request keeps seconds.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from annotated_types import GroupedMetadata
from pydantic import BeforeValidator, Field, WithJsonSchema

from spotkeep_jobs.document.reading import DocumentModel, Rule, WholeNumber, excluded, rule, wrong
from spotkeep_jobs.errors import DurationError, Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


DAY_SECONDS: Final = 86_400
MAX_WAIT_SECONDS: Final = 30 * DAY_SECONDS
"""SageMaker ends any training job after 30 days in total, so a longer wait could never be used."""
MAX_KEEP_ALIVE_SECONDS: Final = 3_600
NO_CHECKPOINTS_SPOT_SECONDS: Final = 3_600
MAX_DEADLINE_SECONDS: Final = 365 * DAY_SECONDS
DEFAULT_RESTART_SECONDS: Final = 720
"""Start-up (AWS measures 2 to 3 minutes), the end of the job before, and the loading of a large checkpoint."""
DEFAULT_ACCOUNT_LIMIT_SECONDS: Final = 432_000
"""The quota of a new account for the longest training job, which is 5 days."""
_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"(?:(\d{1,9})d)?\s*(?:(\d{1,9})h)?\s*(?:(\d{1,9})m)?\s*(?:(\d{1,9})s)?", re.ASCII)
_WORDS = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_LIKELY_UNIT = {
    "d": 86_400, "day": 86_400, "days": 86_400,
    "h": 3_600, "hr": 3_600, "hrs": 3_600, "hour": 3_600, "hours": 3_600,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
_MANY_DIGITS = 15
FORMS = "Write seconds (5400), or a number with d, h, m or s: 90m, 4h, 2d, 1h30m"


def parse_duration(value: object) -> int:
    """Read a duration.

    Args:
        value: A whole number of seconds, or a string such as `90m`, `4h`, `2d`, `1h30m`, `3600`. Units go from the
            largest to the smallest, each at most once.

    Returns:
        The duration in seconds, 0 or more.

    Raises:
        DurationError: The value is no duration. The error says how to write one.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DurationError(problem="is not a duration", fix=f"{FORMS}.")
    if isinstance(value, int | float):
        if value != value or value in (float("inf"), float("-inf")) or value != int(value):
            raise DurationError(problem="is not a whole number of seconds", fix=f"{FORMS}.")
        if value < 0:
            raise DurationError(problem="is below zero", fix=f"{FORMS}.")
        return int(value)
    text = value.strip()
    if text.isascii() and text.isdigit() and len(text) <= _MANY_DIGITS:
        return int(text)
    match = _WRITTEN.fullmatch(text)
    if text and match:
        return sum(
            int(count) * seconds for count, seconds in zip(match.groups(), _SECONDS.values(), strict=True) if count
        )
    raise DurationError(problem="is not a duration Spotkeep can read", fix=_likely_meaning(text))


def format_duration(seconds: int) -> str:
    """Write a duration in the shortest exact form. 5400 becomes `1h30m`, and 0 becomes `0s`.

    Args:
        seconds: The duration, 0 or more.
    """
    parts = []
    for unit, size in _SECONDS.items():
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _likely_meaning(text: str) -> str:
    match = _WORDS.fullmatch(text)
    size = _LIKELY_UNIT.get(match.group(2).lower()) if match else None
    if match is None or size is None:
        return f"{FORMS}."
    return (
        f"If {match.group(1)} {match.group(2)} was meant, write {format_duration(round(float(match.group(1)) * size))}."
    )


_DURATION_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0, "description": "seconds"},
            {"type": "string", "pattern": r"^\s*\d+\s*$|^\s*(\d+d)?\s*(\d+h)?\s*(\d+m)?\s*(\d+s)?\s*$"},
        ]
    },
    mode="validation",
)


@dataclass(frozen=True, kw_only=True)
class DurationOf(GroupedMetadata):
    """Reads a duration as people write it into seconds, within limits.

    Attributes:
        lowest: In seconds.
        highest: In seconds.
    """

    lowest: int
    highest: int

    def __iter__(self) -> Iterator[object]:
        """Give pydantic the reader and the JSON schema."""
        yield BeforeValidator(lambda value: _seconds(value, lowest=self.lowest, highest=self.highest))
        yield _DURATION_SCHEMA


def _seconds(value: object, *, lowest: int, highest: int) -> int:
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        raise wrong(error.problem, error.fix) from None
    if not lowest <= seconds <= highest:
        shown = format_duration(seconds) if seconds <= 10 * MAX_WAIT_SECONDS else "far too long"
        raise wrong(
            f"is out of range ({shown}): {format_duration(lowest)} to {format_duration(highest)} are allowed",
            f"Choose a duration from {format_duration(lowest)} to {format_duration(highest)}. {FORMS}",
        )
    return seconds


_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_SOME_TIME: Final = "2026-12-01T08:00:00Z"


def read_deadline(value: object) -> int | datetime:
    """Return seconds from the launch, or a time in UTC."""
    if isinstance(value, datetime):
        at = value
    elif isinstance(value, str) and _DATE.match(value.strip()):
        try:
            at = datetime.fromisoformat(value.strip())
        except ValueError:
            raise wrong("is not a time", f"Write it as {_SOME_TIME}, or as a duration from the launch: 60h") from None
        if _DATE.fullmatch(value.strip()):
            raise wrong("is a day without a time", f"Write {value.strip()}T08:00:00Z, for example")
    else:
        return _seconds(value, lowest=1, highest=MAX_DEADLINE_SECONDS)
    if at.tzinfo is None:
        raise wrong("is a time without a time zone", f"Write Z for UTC ({_SOME_TIME}), or an offset such as +01:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise wrong("is a time no calendar holds", f"Write a time such as {_SOME_TIME}") from None


DEADLINE_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "description": "seconds from the launch"},
            {"type": "string", "pattern": r"^\s*\d+\s*$|^\s*(\d+d)?\s*(\d+h)?\s*(\d+m)?\s*(\d+s)?\s*$"},
            {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"},
        ]
    },
    mode="validation",
)
LongestWait = Annotated[int, DurationOf(lowest=300, highest=28 * DAY_SECONDS)]
"""The controller reconciles every five minutes, so it could not keep a shorter wait."""


DEFAULT_STUCK_RESTARTS: Final = 3
_MOST_STUCK_RESTARTS: Final = 20


class StuckRequest(DocumentModel):
    """The limit of a training that hangs, and the action after it."""

    after: Annotated[int, DurationOf(lowest=60, highest=28 * DAY_SECONDS)] = Field(examples=["30m"])
    """The longest time without a step of the library and without a line of output, 1m to 28d, and at most max_run.
    Longer than the script loads, evaluates and saves in silence."""
    restart: bool = Field(default=False, strict=True)
    """True ends the command then, after it was asked to save, and starts it again on the same instance."""
    at_most: WholeNumber | None = Field(default=None, ge=1, le=_MOST_STUCK_RESTARTS, examples=[5])
    """The most restarts of a job before it fails, 1 to 20. Default: 3."""


def read_stuck(value: object) -> object:
    """Turn a time alone into the limit of a training that hangs."""
    return {"after": value} if isinstance(value, int | float | str) and not isinstance(value, bool) else value


@rule("stuck", "max_run", "instance_count", "backend", "nodes")
def _hangs_can_be_seen(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.stuck is None:
        return
    if request.stuck.after > request.max_run:
        yield Problem(
            field="stuck.after",
            found=format_duration(request.stuck.after),
            problem=f"is longer than max_run ({format_duration(request.max_run)}), so no job lives to see it",
            fix="Give less, for example 30m, or remove stuck.",
        )
    if request.stuck.restart and request.hosts > 1:
        yield Problem(
            field="stuck.restart",
            found="true",
            problem=f"is given with {request.hosts} instances: the commands of several instances wait for each other, "
            "and one of them cannot be started again alone",
            fix="Write `stuck: 30m`, which sends a notification. Stop and resume the run then.",
        )
    if request.stuck.at_most is not None and not request.stuck.restart:
        yield Problem(
            field="stuck.at_most",
            found=str(request.stuck.at_most),
            problem="is given without restart: true, and counts the starts that follow from it",
            fix="Add restart: true, or remove at_most.",
        )


@rule("max_run", "max_total_run")
def _total_covers_a_job(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_total_run is not None and request.max_total_run < request.max_run:
        yield Problem(
            field="max_total_run",
            found=format_duration(request.max_total_run),
            problem=f"is below max_run ({format_duration(request.max_run)}), which is for one job",
            fix=f"Raise it to {format_duration(request.max_run)} or more, or lower max_run.",
        )


@rule("backend", "capacity", "max_run", "max_wait", "checkpoints")
def _wait_exceeds_run(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    on_sagemaker = request.backend == "sagemaker"
    no_checkpoints = on_sagemaker and not request.checkpoints
    if request.capacity == "auto" and no_checkpoints and request.max_run >= NO_CHECKPOINTS_SPOT_SECONDS:
        yield Problem(
            field="max_run",
            found=format_duration(request.max_run),
            problem="is too long for spot without checkpoints: an interruption would start over, and AWS allows one "
            "hour in all, waiting included",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )
    waits = request.capacity == "spot" or not on_sagemaker
    if not waits or request.max_wait is None:
        return
    if no_checkpoints and max(request.max_run + 1, request.max_wait) > NO_CHECKPOINTS_SPOT_SECONDS:
        over = "max_run" if request.max_run >= NO_CHECKPOINTS_SPOT_SECONDS else "max_wait"
        seconds = request.max_run if over == "max_run" else request.max_wait
        yield Problem(
            field=over,
            found=format_duration(seconds),
            problem="is too long for spot without checkpoints: an interruption would start over, and AWS allows one "
            "hour in all, waiting included",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand, or keep max_run "
            "below max_wait and max_wait within 1h.",
        )
    elif request.max_wait <= request.max_run:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem=f"is not above max_run ({format_duration(request.max_run)}); it covers waiting and running",
            fix=f"Raise it above {format_duration(request.max_run)}, for example to "
            f"{format_duration(min(request.max_run + DAY_SECONDS, MAX_WAIT_SECONDS))}, or lower max_run.",
        )


@rule("max_run")
def _run_within_account_limit(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    limit = defaults.max_run_limit_seconds
    if limit is not None and request.max_run > limit:
        yield Problem(
            field="max_run",
            found=format_duration(request.max_run),
            problem=f"is above this deployment's limit of {format_duration(limit)}",
            fix=f"Lower it to {format_duration(limit)} and resume the run, or have the setting max_run_limit_seconds "
            "raised.",
        )


@rule("keep_alive")
def _pool_within_the_limit(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    longest = defaults.max_keep_alive_seconds
    if longest is not None and request.keep_alive > longest:
        yield Problem(
            field="keep_alive",
            found=format_duration(request.keep_alive),
            problem=f"is longer than this deployment keeps a warm pool ({format_duration(longest)})",
            fix=f"Give {format_duration(longest)} at most, or ask for a higher max_keep_alive_seconds."
            if longest
            else "Remove keep_alive, or ask for a higher max_keep_alive_seconds.",
        )


@rule("backend", "deadline", "capacity", "ladder", "spot_only", "checkpoints")
def _deadline_has_a_way_out(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.deadline is None:
        return
    if request.capacity == "spot" or request.spot_only:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="cannot be promised on spot alone: on-demand capacity takes over when time runs short",
            fix="Remove spot_only." if request.spot_only else "Choose capacity: auto, or leave capacity out.",
        )
    elif request.ladder is not None and request.ladder[-1].capacity != "on-demand":
        yield Problem(
            field=f"ladder[{len(request.ladder) - 1}].capacity",
            found=request.ladder[-1].capacity,
            problem="is the last fallback of a run with a deadline, which must be on demand",
            fix="Add a fallback with capacity: on-demand.",
        )
    # On EC2 the volume takes along what was saved.
    if request.backend == "sagemaker" and request.capacity == "auto" and not request.checkpoints:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="is given with checkpoints: false: what is done on spot could not be taken along on demand",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )


@rule("work", "max_run", "max_total_run")
def _work_fits_its_limits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    allowed = request.max_total_run or request.max_run
    if request.work is not None and request.work > allowed:
        yield Problem(
            field="work",
            found=format_duration(request.work),
            problem=f"is above the {format_duration(allowed)} that the run may train "
            f"({'max_total_run' if request.max_total_run else 'max_run'})",
            fix=f"Raise that to more than {format_duration(request.work)}, or lower work.",
        )


DEADLINE_READS: Final = ("deadline", "work", "restart", "max_run", "max_total_run")


def deadline_can_be_kept(request: JobRequest, *, now: datetime) -> Iterator[Problem]:
    """Refuse a deadline that capacity on demand from the very start, with no interruption, would miss."""
    at = request.deadline_at(now)
    needed = request.seconds_on_demand
    if at is None or (at - now).total_seconds() >= needed:
        return
    work = "work" if request.work else "max_total_run" if request.max_total_run else "max_run"
    better = "" if request.work else f", or say how long the training really takes (work; now {work} is taken for it)"
    earliest = (now + timedelta(seconds=needed)).astimezone(UTC)
    yield Problem(
        field="deadline",
        found=_deadline_shown(request),
        problem=f"cannot be kept even on demand: {format_duration(request.work_seconds)} of work and "
        f"{format_duration(needed - request.work_seconds)} to start take {format_duration(needed)}",
        fix=f"Give {format_duration(needed)} or more (the earliest end is {earliest:%Y-%m-%d %H:%M} UTC){better}.",
    )


def _deadline_shown(request: JobRequest) -> str:
    if isinstance(request.deadline, int):
        return format_duration(request.deadline)
    return "nothing" if request.deadline is None else f"{request.deadline:%Y-%m-%d %H:%M} UTC"


RULES: Final[tuple[Rule, ...]] = (
    excluded(
        "max_total_run",
        where=lambda request: not request.checkpoints and (request.max_total_run or 0) > request.max_run,
        reads=("checkpoints", "max_run", "script_retries"),
        problem="is given with checkpoints: false: each job would start over and end at max_run again",
        fix="Let the script save checkpoints (checkpoints: true), or remove max_total_run.",
        as_found=format_duration,
    ),
    excluded(
        "max_wait",
        where=lambda request: request.backend == "sagemaker" and request.capacity == "on-demand",
        reads=("backend", "capacity"),
        problem="is given without spot; SageMaker lets only a spot job wait for capacity",
        fix="Remove max_wait, or choose capacity: spot.",
        as_found=format_duration,
    ),
    excluded(
        "max_wait",
        where=lambda request: request.backend == "sagemaker" and request.capacity == "auto",
        reads=("backend", "capacity"),
        problem="is given with a capacity ladder, where each fallback has a longest wait of its own",
        fix="Give longest_wait instead: how long to wait for capacity before the next fallback.",
        as_found=format_duration,
    ),
    excluded(
        "keep_alive",
        where=lambda request: request.backend == "sagemaker" and request.capacity != "on-demand",
        reads=("backend", "capacity"),
        problem="is given with capacity: {0.capacity}; AWS keeps no warm pool for spot instances",
        fix="Either keep spot and remove keep_alive (cheaper), or keep keep_alive and choose capacity: on-demand "
        "(the next job starts faster).",
        as_found=format_duration,
    ),
    _total_covers_a_job,
    _wait_exceeds_run,
    _run_within_account_limit,
    _deadline_has_a_way_out,
    _work_fits_its_limits,
    _hangs_can_be_seen,
    _pool_within_the_limit,
)


def time_warnings(request: JobRequest, deployment: DeploymentDefaults) -> Iterator[str]:
    """Yield times that are allowed and probably not meant."""
    if request.max_run > DEFAULT_ACCOUNT_LIMIT_SECONDS and deployment.max_run_limit_seconds is None:
        yield (
            f"max_run {format_duration(request.max_run)} is above the {format_duration(DEFAULT_ACCOUNT_LIMIT_SECONDS)} "
            "that AWS allows a new account; SageMaker refuses the job unless that quota was raised."
        )
    if request.nodes is not None and request.max_wait is not None and request.nodes_wait_seconds >= request.max_wait:
        yield (
            f"nodes_wait {format_duration(request.nodes_wait_seconds)} is as long as the whole run may take (max_wait "
            f"{format_duration(request.max_wait)}): no other place is tried where nodes do not come together."
        )
    if request.capacity == "on-demand" and request.keep_alive:
        yield (
            f"keep_alive {format_duration(request.keep_alive)} is billed after the job ends, and a new account's "
            "warm-pool quota is 0: the job then runs and no pool is kept."
        )
        if len(request.types) > 1:
            yield (
                "keep_alive with several instance types: AWS does not say whether such a job takes a warm pool. Name "
                "the one type whose pools it shall take and leave."
            )
