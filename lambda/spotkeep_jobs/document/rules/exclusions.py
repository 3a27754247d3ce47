"""Fields that do not go with what others say: a row each. Rules that say more than that are in the other modules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.reading import outlined
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.own_entry_point import NO_RUNNER
from spotkeep_jobs.errors import Problem


@dataclass(frozen=True, kw_only=True)
class _Exclusion:
    """A field that may not be given where others say something.

    Attributes:
        field: The field.
        where: Whether the others exclude it.
        reads: The others.
        problem: What is wrong with it; `{0.capacity}` stands for what the request says there.
        fix: What to do.
        as_found: How its value is shown.
    """

    field: str
    where: Callable[[JobRequest], bool]
    reads: tuple[str, ...]
    problem: str
    fix: str
    as_found: Callable[[Any], str] = outlined


def exclusions(request: JobRequest, *, unread: Collection[str]) -> Iterator[Problem]:
    """Yield the fields that were given and do not go with what others say.

    Args:
        request: A request, defaults filled in. It names all fields: what has its default counts as not given.
        unread: The fields that could not be read, about which nothing is said.
    """
    for each in _EXCLUSIONS:
        value = getattr(request, each.field)
        given = value != JobRequest.model_fields[each.field].default
        if given and {each.field, *each.reads}.isdisjoint(unread) and each.where(request):
            problem = each.problem.format(request)
            yield Problem(field=each.field, found=each.as_found(value), problem=problem, fix=each.fix)


_NOT_ON_EC2: Final[Mapping[str, str]] = {
    "algorithm": "Remove it: SageMaker's built-in algorithms run in its training jobs alone.",
    "instance_count": "Remove it: a run on EC2 has one instance. For independent trainings write runs: instead.",
    "volume_size_gb": "Write volume: {size_gb: ...}.",
    "ladder": "Remove it: a fleet chooses among all instance_types and zones by itself.",
    "longest_wait": "Remove it: max_wait bounds how long the run may take in all.",
    "spot_only": "Remove it: capacity: spot stays on spot.",
    "max_total_run": "Remove it: max_run bounds the training, over all instances.",
    "max_cost": "Remove it; max_price bounds what an hour may cost, max_run how many there are.",
    "deadline": "Remove it: runs on EC2 are not steered by a deadline.",
    "keep_alive": "Remove it: warm pools are SageMaker's.",
    "team": "Remove it: what an isolated team stores is kept apart on SageMaker alone; instances work below runs/.",
}
"""Fields of a training job that a run on EC2 does not take, and what to do instead."""


_ADD_BACKEND: Final = "Add backend: ec2, or remove it."
_ONLY_ON_EC2: Final[Mapping[str, str]] = {
    "volume": _ADD_BACKEND,
    "max_price": _ADD_BACKEND,
    "rebalance": _ADD_BACKEND,
    "instance_metadata": _ADD_BACKEND,
    "runs": "Add backend: ec2, or launch the file several times: what SageMaker's quotas leave room for is known only "
    "job by job, so several could not be launched all or none.",
    "on_demand_base": _ADD_BACKEND,
}


_BY_THE_RUNNER: Final[Mapping[str, str]] = {
    "source": "Remove it: the image holds its program. For a script of yours add command.",
    "install": "Remove it: packages are installed before a command. Add command, or take an image that holds them.",
    "setup": "Remove it, or add command.",
    "arguments": "Remove it: an image's own entry point reads /opt/ml/input/config/hyperparameters.json.",
    "pause_at_step": "Remove it: the library in a script pauses. Add command, and save with Spotkeep's library.",
    "checkpoint_stale": "Remove it: checkpoints of an image are its own, and nothing reports them.",
}
"""Fields that only Spotkeep's runner in the job gives an effect to, and what to do instead."""


_EXCLUSIONS: Final = (
    _Exclusion(
        field="framework",
        where=lambda request: request.image is not None,
        reads=("image",),
        problem="is given together with image",
        fix="Give one of the two: framework for AWS's own image, image for any other.",
        as_found=str,
    ),
    _Exclusion(
        field="checkpoint_prefix",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false",
        fix="Remove checkpoint_prefix, or set checkpoints: true.",
    ),
    _Exclusion(
        field="pause_at_step",
        where=lambda request: not request.checkpoints,
        reads=("checkpoints",),
        problem="is given with checkpoints: false, and a pause is gone on from with a checkpoint",
        fix="Remove pause_at_step, or set checkpoints: true.",
    ),
    _Exclusion(
        field="max_total_run",
        where=lambda request: not request.checkpoints and (request.max_total_run or 0) > request.max_run,
        reads=("checkpoints", "max_run", "script_retries"),
        problem="is given with checkpoints: false: each job would start over and end at max_run again",
        fix="Let the script save checkpoints (checkpoints: true), or remove max_total_run.",
        as_found=format_duration,
    ),
    _Exclusion(
        field="max_wait",
        where=lambda request: request.backend == "sagemaker" and request.capacity == "on-demand",
        reads=("backend", "capacity"),
        problem="is given without spot; SageMaker lets only a spot job wait for capacity",
        fix="Remove max_wait, or choose capacity: spot.",
        as_found=format_duration,
    ),
    _Exclusion(
        field="max_wait",
        where=lambda request: request.capacity == "auto",
        reads=("backend", "capacity"),
        problem="is given with a capacity ladder, where each fallback has a longest wait of its own",
        fix="Give longest_wait instead: how long to wait for capacity before the next fallback.",
        as_found=format_duration,
    ),
    _Exclusion(
        field="keep_alive",
        where=lambda request: request.capacity != "on-demand",
        reads=("capacity",),
        problem="is given with capacity: {0.capacity}; AWS keeps no warm pool for spot instances",
        fix="Either keep spot and remove keep_alive (cheaper), or keep keep_alive and choose capacity: on-demand "
        "(the next job starts faster).",
        as_found=format_duration,
    ),
    _Exclusion(
        field="keep_alive",
        where=lambda request: request.queue is not None,
        reads=("queue", "capacity", "ladder", "deadline"),
        problem="is given with a queue: AWS Batch does not say that a job of it takes a warm pool, or counts one",
        fix="Remove keep_alive, or remove queue.",
        as_found=format_duration,
    ),
    *(
        _Exclusion(
            field=field,
            where=lambda request: request.queue is None,
            reads=("queue",),
            problem="is given without a queue",
            fix=f"Name the queue as well, or remove {field}.",
        )
        for field in ("share", "priority")
    ),
    *(
        _Exclusion(
            field=field,
            where=lambda request: request.command is None,
            reads=("command",),
            problem=NO_RUNNER,
            fix=fix,
        )
        for field, fix in _BY_THE_RUNNER.items()
    ),
    *(
        _Exclusion(
            field=field,
            where=lambda request: request.backend == "ec2",
            reads=("backend",),
            problem="is not taken with backend: ec2",
            fix=fix,
        )
        for field, fix in _NOT_ON_EC2.items()
    ),
    *(
        _Exclusion(
            field=field,
            where=lambda request: request.backend == "sagemaker",
            reads=("backend",),
            problem="is not taken with backend: sagemaker",
            fix=fix,
        )
        for field, fix in _ONLY_ON_EC2.items()
    ),
)
