"""Rules about where a job runs: image, instance types, ladder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from spotkeep_fleet.ecr_images import ecr_registry, is_in_public_gallery, names_a_registry
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.framework_images import FRAMEWORK_IMAGES
from spotkeep_jobs.document.local_disks import larger_disks, local_disks_gb
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.document.training_image import types_without_default
from spotkeep_jobs.errors import Problem

_MAX_INSTANCE_TYPES: Final = 5
"""Of a training job: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_ResourceConfig.html"""
_MAX_FLEET_TYPES: Final = 40
_FAMILIES: Final = tuple(dict.fromkeys(name.partition("-")[0] for name in FRAMEWORK_IMAGES))


@rule("backend", "command", "image", "framework", "algorithm", "instance_types", "instance_type", "ladder")
def _image_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    # On EC2 the AMI does without an image.
    if request.image is not None or (request.backend == "ec2" and request.framework is None):
        return
    types = request.every_type
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


@rule("backend", "command", "image", "framework", "algorithm")
def _image_can_be_pulled(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield why a job's image would not be pulled, from what its name says of its registry.

    Roles of jobs and of instances read images in their own region alone. SageMaker pulls from a private registry of
    Amazon ECR, or from any other registry but AWS's public one through the VPC of the job.

    Sources: `TrainingRepositoryAccessMode` in
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_TrainingImageConfig.html and "Adapt your training job
    to access images in a private Docker registry" (SageMaker developer guide).
    """
    image = request.image
    if image is None:
        return
    registry = ecr_registry(image)
    there = f"in {defaults.region}" if defaults.region is not None else "in the deployment's region"
    if registry is not None:
        if registry.host != registry.right_host:
            yield Problem(
                field="image",
                found=image,
                problem=f"names no registry that there is: in {registry.region} it is {registry.right_host}",
                fix=f"Write {registry.right_host}/{image.partition('/')[2]}.",
            )
        if defaults.region is not None and registry.region != defaults.region:
            yield Problem(
                field="image",
                found=image,
                problem=f"is in {registry.region}, and this deployment's runs may pull from Amazon ECR in "
                f"{defaults.region} alone",
                fix=f"Replicate it to {defaults.region}, and name the copy there.",
            )
        return
    if request.backend == "ec2":
        return
    if is_in_public_gallery(image):
        yield Problem(
            field="image",
            found=image,
            problem="is in Amazon ECR's public gallery, from which SageMaker pulls no image",
            fix=f"Copy it to a private repository of Amazon ECR {there} (a pull through cache rule keeps such copies), "
            "and name the copy.",
        )
    elif not names_a_registry(image) and image != defaults.image:
        framework = next((each for each in _FAMILIES if re.match(rf"{each}(:|@|$)", image.rpartition("/")[2])), None)
        yield Problem(
            field="image",
            found=image,
            problem="names no registry, and SageMaker pulls an image from the registry that its name begins with",
            fix="Write <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag>"
            + (f", or framework: {framework} for AWS's own image." if framework is not None else "."),
        )
    elif defaults.training_network is False:
        yield Problem(
            field="image",
            found=image,
            problem="is not in Amazon ECR, and SageMaker pulls from another registry only through a VPC, which this "
            "deployment's jobs do not have",
            fix=f"Copy it to a private repository of Amazon ECR {there}, and name the copy; or deploy with the "
            "settings training_subnet_ids and training_security_group_ids.",
        )


@rule("backend", "instance_types", "instance_type", "capacity", "ladder")
def _instance_types_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.instance_types and request.instance_type:
        yield _given_twice("instance_type", request.instance_type)
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
        example = "g5.xlarge" if request.backend == "ec2" else "ml.g5.xlarge"
        yield Problem(
            field="instance_types",
            found="nothing",
            problem="is required: this deployment has no default instance type",
            fix=f"Name at least one instance type, for example {example}.",
        )
    elif len(types) > (most := _MAX_FLEET_TYPES if request.backend == "ec2" else _MAX_INSTANCE_TYPES):
        yield _too_many("instance_types", types, most=most, fix=f"Keep the best {most}.")
    elif len(types) > 1 and request.capacity == "spot" and request.backend != "ec2":
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; managed spot takes one",
            fix=f"Choose capacity: auto, which tries one after the other, or keep one, for example {types[0]}.",
        )


@rule("backend", "volume_size_gb", "instance_types", "instance_type", "ladder")
def _storage_is_there(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend == "ec2":
        return
    for each in dict.fromkeys(request.every_type):
        disks = local_disks_gb(each)
        if disks is not None and disks < request.volume_size_gb:
            larger = larger_disks(each, than_gb=request.volume_size_gb)
            yield Problem(
                field="volume_size_gb",
                found=f"{request.volume_size_gb:,}",
                problem=f"is more than {each} has: SageMaker gives it no volume, and its own disks hold {disks:,} GB",
                fix=f"Choose {larger or 'a type without disks of its own'}, or give {disks:,} at most.",
            )


def _longest_wait_means_something(request: JobRequest) -> Iterator[Problem]:
    if request.queue is not None:
        yield Problem(
            field="longest_wait",
            found=shown(request.queue),
            problem="is given with a queue, in which a job waits for its turn as long as it takes",
            fix="Remove longest_wait, or remove queue.",
        )
    elif request.capacity == "spot":
        yield Problem(
            field="longest_wait",
            found="spot",
            problem="is given with capacity: spot, whose wait max_wait bounds",
            fix="Choose capacity: auto or on-demand, or give max_wait instead.",
        )


@rule("capacity", "queue", "ladder", "longest_wait")
def _ladder_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "auto":
        if request.ladder is not None:
            yield Problem(
                field="ladder",
                found=shown(request.capacity),
                problem=f"is given with capacity: {request.capacity}, which asks for one kind of capacity only",
                fix="Choose capacity: auto, or remove ladder.",
            )
        if request.longest_wait is not None and request.backend != "ec2":
            yield from _longest_wait_means_something(request)
        return
    for number, fallback in enumerate(request.ladder or ()):
        place = f"ladder[{number}]"
        if fallback.instance_types and fallback.instance_type:
            yield _given_twice(f"{place}.instance_type", fallback.instance_type)
        elif not fallback.types:
            yield Problem(
                field=f"{place}.instance_types",
                found="nothing",
                problem="is required",
                fix="Name at least one instance type, for example ml.g5.xlarge.",
            )
        elif len(fallback.types) > (most := _MAX_INSTANCE_TYPES):
            fix = f"Keep the best {most}, or add a fallback."
            yield _too_many(f"{place}.instance_types", fallback.types, most=most, fix=fix)


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


def _given_twice(field: str, value: object) -> Problem:
    problem, fix = "is given together with instance_types", "Give one of the two."
    return Problem(field=field, found=shown(value), problem=problem, fix=fix)


def _too_many(field: str, types: Sequence[str], *, most: int, fix: str) -> Problem:
    problem = f"names more than {most} instance types"
    return Problem(field=field, found=f"{len(types)} types", problem=problem, fix=fix)


RULES: Final[tuple[Rule, ...]] = (
    _image_is_known,
    _image_can_be_pulled,
    _instance_types_fit,
    _storage_is_there,
    _ladder_fits,
    _spot_only_is_kept,
)
