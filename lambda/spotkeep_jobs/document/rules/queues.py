"""Rules about queues: what a deployment has, and what AWS Batch's queues do not promise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.queues import Queue, reach_of
from spotkeep_jobs.document.reading import nearest, shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.errors import Problem


@rule("queue", "share", "backend")
def _queue_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    if request.backend == "ec2":
        yield Problem(
            field="queue",
            found=shown(request.queue),
            problem="is given with backend: ec2; the queues are for SageMaker training jobs",
            fix="Remove queue, or choose backend: sagemaker.",
        )
        return
    if defaults.queues is None:
        return
    queue = defaults.queues.get(request.queue)
    if queue is None:
        yield Problem(
            field="queue",
            found=shown(request.queue),
            problem="is no queue of this deployment",
            fix=nearest(request.queue, tuple(defaults.queues))
            if defaults.queues
            else "Remove queue, or ask for it in the setting queues.",
        )
    elif request.share is None:
        yield Problem(
            field="share",
            found="nothing",
            problem=f"is required: the queue {request.queue} has several",
            fix=f"Choose {', '.join(queue.shares)}.",
        )
    elif request.share not in queue.shares:
        yield Problem(
            field="share",
            found=shown(request.share),
            problem=f"is no share of the queue {request.queue}",
            fix=nearest(request.share, tuple(queue.shares)),
        )


@rule("queue", "share", "instance_types", "instance_type", "instance_count", "ladder", "capacity")
def _queue_has_the_instances(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    types = request.types
    if len(types) > 1:
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; a queue counts a job's instances as one type",
            fix=f"Keep one, for example {types[0]}.",
        )
        return
    queue = (defaults.queues or {}).get(request.queue)
    if queue is None or not types:
        return
    (wanted,) = types
    of, most = _most_of(queue, wanted, share=request.share)
    if most == 0:
        known = queue.shares[request.share].types if request.share in queue.shares else queue.types
        yield Problem(
            field="instance_types",
            found=wanted,
            problem=f"is no instance type of {of} {request.queue if of == 'the queue' else request.share}",
            fix=f"Choose {', '.join(known)}.",
        )
        return
    if request.share not in queue.shares:
        return
    reach = reach_of(queue, request.share or "", wanted)
    if request.instance_count > reach.most:
        # AWS Batch takes such a job, and it stands before those behind it for ever.
        yield Problem(
            field="instance_count",
            found=str(request.instance_count),
            problem=f"is more than the share {request.share} may ever have of {wanted}: {reach.own} of its own and "
            f"{reach.borrowed} that it may borrow; the job, and those behind it, would wait for ever",
            fix=f"Ask for {reach.most} at most, or choose another share.",
        )


def _most_of(queue: Queue, instance_type: str, *, share: str | None) -> tuple[str, int]:
    """Return whether the queue or a share of it bounds a type, and by how many instances."""
    if instance_type not in queue.types or share not in queue.shares:
        return "the queue", queue.types.get(instance_type, 0)
    return "the share", queue.shares[share].types.get(instance_type, 0)


@rule("queue", "capacity", "ladder", "deadline")
def _queue_goes_with_it(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.queue is None:
        return
    if request.deadline is not None:
        yield Problem(
            field="deadline",
            found=shown(request.deadline),
            problem="is given with a queue, whose turns nothing promises: no choice of ours could keep it",
            fix="Remove deadline and give a priority, or remove queue.",
        )
    elif request.capacity == "auto":
        yield Problem(
            field="ladder" if request.ladder is not None else "capacity",
            found="a ladder" if request.ladder is not None else "auto",
            problem="is given with a queue: a job that left its fallback would lose its turn, and wait for the next",
            fix="Choose capacity: on-demand or spot, with one instance type; or remove queue.",
        )


RULES: Final[tuple[Rule, ...]] = (
    _queue_is_known,
    _queue_has_the_instances,
    _queue_goes_with_it,
)


def queue_warnings(request: JobRequest) -> Iterator[str]:
    """Yield what is allowed in a queue but may not be meant, in sentences.

    Args:
        request: A request with a queue.
    """
    if request.capacity == "spot":
        yield (
            "spot in a queue: AWS Batch passes it on and does not say how it counts a job that spot interrupts; "
            "capacity: on-demand is what it documents."
        )
    if not request.checkpoints:
        yield "a queue without checkpoints: a job that is preempted starts over."
