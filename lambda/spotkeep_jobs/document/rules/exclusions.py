"""Fields that do not go with what others say: a row each. Rules that say more than that are in the other modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.reading import outlined
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule
from spotkeep_jobs.errors import Problem


def _excluded(
    field: str,
    *,
    where: Callable[[JobRequest], bool],
    reads: tuple[str, ...],
    problem: str,
    fix: str,
    as_found: Callable[[Any], str] = outlined,
) -> Rule:
    """Return the rule that a field may not be given where others exclude it.

    Args:
        field: The field.
        where: Whether the others exclude it.
        reads: The others.
        problem: What is wrong with it; `{0.capacity}` stands for what the request says there.
        fix: What to do.
        as_found: How its value is shown.
    """

    def problems(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
        if where(request) and not request.has_default(field):
            found = as_found(getattr(request, field))
            yield Problem(field=field, found=found, problem=problem.format(request), fix=fix)

    return Rule(reads=frozenset({field, *reads}), problems=problems)


RULES: Final[tuple[Rule, ...]] = (
    _excluded(
        "framework",
        where=lambda request: request.image is not None,
        reads=("image",),
        problem="is given together with image",
        fix="Give one of the two: framework for AWS's own image, image for any other.",
        as_found=str,
    ),
    _excluded(
        "checkpoint_prefix",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false",
        fix="Remove checkpoint_prefix, or set checkpoints: true.",
    ),
    _excluded(
        "pause_at_step",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false, and a pause is gone on from with a checkpoint",
        fix="Remove pause_at_step, or set checkpoints: true.",
    ),
    _excluded(
        "max_total_run",
        where=lambda request: not request.checkpoints and (request.max_total_run or 0) > request.max_run,
        reads=("checkpoints", "max_run", "script_retries"),
        problem="is given with checkpoints: false: each job would start over and end at max_run again",
        fix="Let the script save checkpoints (checkpoints: true), or remove max_total_run.",
        as_found=format_duration,
    ),
    _excluded(
        "max_wait",
        where=lambda request: request.backend == "sagemaker" and request.capacity == "on-demand",
        reads=("backend", "capacity"),
        problem="is given without spot; SageMaker lets only a spot job wait for capacity",
        fix="Remove max_wait, or choose capacity: spot.",
        as_found=format_duration,
    ),
    _excluded(
        "max_wait",
        where=lambda request: request.capacity == "auto",
        reads=("backend", "capacity"),
        problem="is given with a capacity ladder, where each fallback has a longest wait of its own",
        fix="Give longest_wait instead: how long to wait for capacity before the next fallback.",
        as_found=format_duration,
    ),
    _excluded(
        "keep_alive",
        where=lambda request: request.capacity != "on-demand",
        reads=("capacity",),
        problem="is given with capacity: {0.capacity}; AWS keeps no warm pool for spot instances",
        fix="Either keep spot and remove keep_alive (cheaper), or keep keep_alive and choose capacity: on-demand "
        "(the next job starts faster).",
        as_found=format_duration,
    ),
    _excluded(
        "keep_alive",
        where=lambda request: request.queue is not None,
        reads=("queue", "capacity", "ladder", "deadline"),
        problem="is given with a queue: AWS Batch does not say that a job of it takes a warm pool, or counts one",
        fix="Remove keep_alive, or remove queue.",
        as_found=format_duration,
    ),
    _excluded(
        "share",
        where=lambda request: request.queue is None,
        reads=("queue",),
        problem="is given without a queue",
        fix="Name the queue as well, or remove share.",
    ),
    _excluded(
        "priority",
        where=lambda request: request.queue is None,
        reads=("queue",),
        problem="is given without a queue",
        fix="Name the queue as well, or remove priority.",
    ),
)
