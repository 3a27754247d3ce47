"""Rules about where a job runs and how long it may: instance types, ladder, waits, limits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.limits import (
    DAY_SECONDS,
    MAX_FLEET_TYPES,
    MAX_INSTANCE_TYPES,
    MAX_WAIT_SECONDS,
    NO_CHECKPOINTS_SPOT_SECONDS,
)
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.rule import Rule, rule
from spotkeep_jobs.document.training_image import types_without_default
from spotkeep_jobs.errors import Problem


@rule("image", "framework")
def _image_is_named_once(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.image is not None and request.framework is not None:
        yield Problem(
            field="framework",
            found=request.framework,
            problem="is given together with image",
            fix="Give one of the two: framework for AWS's own image, image for any other.",
        )


@rule("backend", "command", "image", "framework", "algorithm", "instance_types", "instance_type", "ladder")
def _image_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    # On EC2 the AMI does without an image.
    if request.image is not None or (request.backend == "ec2" and request.framework is None):
        return
    types = [*request.types, *(each for fallback in request.ladder or () for each in fallback.types)]
    name = "framework" if request.framework is not None else "algorithm"
    chosen = request.framework or request.algorithm
    if chosen is not None:
        if defaults.region is not None:
            others = types_without_default(types)
            yield Problem(
                field=name,
                found=chosen,
                problem=f"has no image for {', '.join(others)}" if others else f"has no image in {defaults.region}",
                fix="Name an image that has, as image, or choose another version or instance type.",
            )
        return
    if request.command is None:
        return
    if defaults.image is None:
        yield Problem(
            field="image",
            found="nothing",
            problem="is required: this deployment has no default image",
            fix="Name a container image, or set `default_image` of the deployment.",
        )
        return
    yield Problem(
        field="image",
        found="nothing",
        problem=f"is required: the deployment's default image does not fit {', '.join(types_without_default(types))}",
        fix="Name an image for this type; AWS's own are listed in its Deep Learning Containers guide.",
    )


@rule("backend", "instance_types", "instance_type", "capacity", "ladder")
def _instance_types_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.instance_types and request.instance_type:
        yield Problem(
            field="instance_type",
            found=shown(request.instance_type),
            problem="is given together with instance_types",
            fix="Give one of the two.",
        )
        return
    types = request.types
    if request.ladder is not None:
        if types:
            yield Problem(
                field="instance_types",
                found=", ".join(types),
                problem="is given together with ladder, whose fallbacks name their own",
                fix="Move the types into the fallbacks, or remove ladder.",
            )
    elif not types:
        yield Problem(
            field="instance_types",
            found="nothing",
            problem="is required: this deployment has no default instance type",
            fix=f"Name at least one instance type, for example {_example_type(request)}.",
        )
    elif request.backend == "ec2":
        if len(types) > MAX_FLEET_TYPES:
            yield Problem(
                field="instance_types",
                found=f"{len(types)} types",
                problem=f"names more than {MAX_FLEET_TYPES} instance types",
                fix=f"Keep the best {MAX_FLEET_TYPES}.",
            )
    elif len(types) > MAX_INSTANCE_TYPES:
        yield Problem(
            field="instance_types",
            found=f"{len(types)} types",
            problem=f"names more than {MAX_INSTANCE_TYPES} instance types",
            fix=f"Keep the best {MAX_INSTANCE_TYPES}.",
        )
    elif len(types) > 1 and request.capacity == "spot":
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; managed spot takes one",
            fix=f"Choose capacity: auto, which tries one after the other, or keep one, for example {types[0]}.",
        )


@rule("capacity", "ladder", "longest_wait")
def _ladder_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "auto":
        for name in ("ladder", "longest_wait"):
            if getattr(request, name) is not None:
                yield Problem(
                    field=name,
                    found=shown(request.capacity),
                    problem=f"is given with capacity: {request.capacity}, which asks for one kind of capacity only",
                    fix=f"Choose capacity: auto, or remove {name}.",
                )
        return
    for number, fallback in enumerate(request.ladder or ()):
        place = f"ladder[{number}]"
        if fallback.instance_types and fallback.instance_type:
            yield Problem(
                field=f"{place}.instance_type",
                found=shown(fallback.instance_type),
                problem="is given together with instance_types",
                fix="Give one of the two.",
            )
        elif not fallback.types:
            yield Problem(
                field=f"{place}.instance_types",
                found="nothing",
                problem="is required",
                fix="Name at least one instance type, for example ml.g5.xlarge.",
            )
        elif len(fallback.types) > MAX_INSTANCE_TYPES:
            yield Problem(
                field=f"{place}.instance_types",
                found=f"{len(fallback.types)} types",
                problem=f"names more than {MAX_INSTANCE_TYPES} instance types",
                fix=f"Keep the best {MAX_INSTANCE_TYPES}, or add a fallback.",
            )


@rule("capacity", "ladder", "spot_only")
def _spot_only_is_kept(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if not request.spot_only:
        return
    places = [
        f"ladder[{n}].capacity" for n, fallback in enumerate(request.ladder or ()) if fallback.capacity == "on-demand"
    ]
    for place in ["capacity", *places] if request.capacity == "on-demand" else places:
        yield Problem(
            field=place,
            found="on-demand",
            problem="is on demand, and spot_only forbids that",
            fix="Make it spot, or remove spot_only.",
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


@rule("checkpoints", "max_total_run", "max_run", "script_retries")
def _following_jobs_need_checkpoints(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if not request.checkpoints and (request.max_total_run or 0) > request.max_run:
        yield Problem(
            field="max_total_run",
            found=format_duration(request.max_total_run or 0),
            problem="is given with checkpoints: false: each job would start over and end at max_run again",
            fix="Let the script save checkpoints (checkpoints: true), or remove max_total_run.",
        )


@rule("backend", "capacity", "max_wait")
def _no_wait_on_demand(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend == "sagemaker" and request.capacity == "on-demand" and request.max_wait is not None:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem="is given without spot; SageMaker lets only a spot job wait for capacity",
            fix="Remove max_wait, or choose capacity: spot.",
        )
    if request.capacity == "auto" and request.max_wait is not None:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem="is given with a capacity ladder, where each fallback has a longest wait of its own",
            fix="Give longest_wait instead: how long to wait for capacity before the next fallback.",
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


def _example_type(request: JobRequest) -> str:
    return "g5.xlarge" if request.backend == "ec2" else "ml.g5.xlarge"


RULES: Final[tuple[Rule, ...]] = (
    _image_is_named_once,
    _image_is_known,
    _instance_types_fit,
    _ladder_fits,
    _spot_only_is_kept,
    _total_covers_a_job,
    _following_jobs_need_checkpoints,
    _no_wait_on_demand,
    _wait_exceeds_run,
    _run_within_account_limit,
)
