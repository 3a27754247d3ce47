"""Rules about how long: what a job may train and wait, what its warm pool is kept, when its work must be done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.limits import DAY_SECONDS, MAX_WAIT_SECONDS, NO_CHECKPOINTS_SPOT_SECONDS
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.errors import Problem


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
    if request.capacity == "auto" and not request.checkpoints and request.max_run >= NO_CHECKPOINTS_SPOT_SECONDS:
        yield Problem(
            field="max_run",
            found=format_duration(request.max_run),
            problem="is too long for spot without checkpoints: an interruption would start over, and AWS allows one "
            "hour in all, waiting included",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )
    waits = request.capacity == "spot" or request.backend == "ec2"
    if not waits or request.max_wait is None:
        return
    bounded = request.backend == "sagemaker" and not request.checkpoints
    if bounded and max(request.max_run + 1, request.max_wait) > NO_CHECKPOINTS_SPOT_SECONDS:
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


@rule("deadline", "capacity", "ladder", "spot_only", "checkpoints")
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
    if request.capacity == "auto" and not request.checkpoints:
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
    _total_covers_a_job,
    _wait_exceeds_run,
    _run_within_account_limit,
    _deadline_has_a_way_out,
    _work_fits_its_limits,
    _pool_within_the_limit,
)
