"""Rules about jobs without a command: the image's own entry point runs, and nothing of Spotkeep beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES
from spotkeep_jobs.document.reading import outlined, shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.document.training_image import saves_checkpoints
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.states import NotificationKind

NO_RUNNER: Final = (
    "has no effect without a command: the image's own entry point runs, and nothing of Spotkeep beside it"
)


@rule("backend", "command", "image", "framework", "algorithm")
def _something_runs(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.command is not None:
        return
    if request.backend == "ec2":
        yield Problem(
            field="command",
            found="nothing",
            problem="is required with backend: ec2: an image's own entry point runs on SageMaker alone",
            fix="For example: python train.py",
        )
    elif request.image is None and request.framework is None and request.algorithm is None:
        yield Problem(
            field="command",
            found="nothing",
            problem="is required",
            fix="For example: python train.py. To run an image's own entry point, name it as image, or name an "
            "algorithm of AWS's.",
        )


@rule("command", "metrics", "notify")
def _only_the_runner_gives_it_an_effect(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.command is not None:
        return
    for name, metric in request.metrics.items():
        if metric.pattern is None or metric.step is not None or metric.goal is not None:
            yield Problem(
                field=f"metrics.{name}",
                found=outlined(metric),
                problem=NO_RUNNER,
                fix="Give the pattern alone: SageMaker then has the metric in CloudWatch. Or remove it.",
            )
    if NotificationKind.CHECKPOINT_STALE in request.notify:
        yield Problem(
            field="notify",
            found=NotificationKind.CHECKPOINT_STALE.value,
            problem=NO_RUNNER,
            fix="Remove it from the list: checkpoints of an image are its own, and nothing reports them.",
        )


@rule("backend", "algorithm", "command", "image", "framework")
def _an_algorithm_runs_by_itself(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    algorithm = request.algorithm
    if algorithm is None or request.backend != "sagemaker":
        return
    if request.command is not None:
        yield Problem(
            field="command",
            found=outlined(request.command),
            problem="is given together with algorithm, which is a program of AWS's",
            fix="Remove it, or name the image of your script as framework or image.",
        )
    others = {"framework": request.framework}
    if request.image is None or request.image.partition("/")[2] != ALGORITHM_IMAGES[algorithm].path:
        others["image"] = request.image
    for name, value in others.items():
        if value is not None:
            yield Problem(
                field=name,
                found=shown(value),
                problem=f"is given together with algorithm ({algorithm}), which has an image of its own",
                fix="Give one of the two.",
            )


@rule("backend", "algorithm", "channels", "metrics", "checkpoints")
def _an_algorithm_gets_what_it_takes(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    algorithm = request.algorithm
    if algorithm is None or request.backend != "sagemaker":
        return
    if not request.channels:
        yield Problem(
            field="channels",
            found="nothing",
            problem=f"is required with algorithm: {algorithm}",
            fix="Give its data: {train: {uri: s3://my-data/train/, content_type: text/csv}}",
        )
    if request.metrics:
        yield Problem(
            field="metrics",
            found=", ".join(request.metrics),
            problem="is given with algorithm; SageMaker defines the metrics of its algorithms and takes no others",
            fix="Remove it: they are in CloudWatch by themselves.",
        )
    if request.checkpoints and not saves_checkpoints(algorithm):
        yield Problem(
            field="checkpoints",
            found="true",
            problem=f"is given with algorithm: {algorithm}, which saves none",
            fix="Remove it: an interruption starts it over, so AWS limits it on spot to one hour in all.",
        )


RULES: Final[tuple[Rule, ...]] = (
    _something_runs,
    _only_the_runner_gives_it_an_effect,
    _an_algorithm_runs_by_itself,
    _an_algorithm_gets_what_it_takes,
)
