"""The container image of a job, with its instance types and registry, and AWS's built-in algorithms.

A deployment's default image may hold `{processor}`. It stands for `cpu` or `gpu`, as in the tags of AWS's own images,
and is filled in by the instance types of a job. Account and region are filled in before, at the deployment. A document
may name a framework or a built-in algorithm instead, which is one of AWS's own images (`framework_images`).

Sources:
    https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html (families: p and g have NVIDIA GPUs
    but for g4ad, which has AMD's, trn and inf have AWS Neuron devices, and a g after the generation says Arm)

    sagemaker.core.image_uris, of the SageMaker SDK (the tags: `<version>-<cpu or gpu>-<python>`)

    https://docs.aws.amazon.com/sagemaker/latest/dg/model-checkpoints.html (Frameworks and algorithms: image
    classification, object detection, semantic segmentation, XGBoost 0.90-1 or later)

    https://docs.aws.amazon.com/sagemaker/latest/dg/common-info-all-im-models.html (the instance classes)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BeforeValidator, WithJsonSchema

from spotkeep_fleet.ecr_images import ecr_registry, is_in_public_gallery, names_a_registry
from spotkeep_jobs.document.framework_images import (
    ACCOUNTS,
    ALGORITHM_IMAGES,
    FRAMEWORK_IMAGES,
    PATCHED_UNTIL,
    AwsImage,
)
from spotkeep_jobs.document.reading import (
    AnyText,
    Rule,
    excluded,
    must,
    outlined,
    read_text,
    rule,
    shown,
    written,
    wrong,
)
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


PROCESSOR_PLACE: Final = "{processor}"
Processor = Literal["cpu", "gpu", "neuron"]
_FAMILIES: Final[tuple[tuple[re.Pattern[str], Processor], ...]] = (
    (re.compile(r"(?!g4ad)[gp]\d.*"), "gpu"),
    (re.compile(r"(trn|inf)\d.*"), "neuron"),
)
_ARM: Final = re.compile(r"[a-z]+\d+g[a-z]*|p6e-gb200")
_Architecture = Literal["Arm", "x86-64"]
_HAS: Final[dict[Processor, str]] = {"cpu": "CPUs only", "gpu": "NVIDIA GPUs", "neuron": "AWS Neuron devices"}
_FOR: Final[dict[Processor, str]] = _HAS | {"cpu": "CPUs"}
_WORDS: Final[tuple[tuple[re.Pattern[str], Processor], ...]] = (
    (re.compile(r"cpu"), "cpu"),
    (re.compile(r"gpu|cuda|cu(da)?\d+"), "gpu"),
    (re.compile(r"neuronx?"), "neuron"),
)
_SAVING: Final = frozenset({"image-classification", "object-detection", "semantic-segmentation", "xgboost"})
_ON_GPUS: Final = frozenset({"image-classification", "object-detection", "semantic-segmentation", "seq2seq"})
_ARCHITECTURE_NAMES: Final[dict[_Architecture, re.Pattern[str]]] = {
    "Arm": re.compile(r"(^|[^a-z0-9])(arm64|aarch64|graviton)([^a-z0-9]|$)"),
    "x86-64": re.compile(r"(^|[^a-z0-9])(amd64|x86_64)([^a-z0-9]|$)"),
}


def processor_of(instance_type: str) -> Processor:
    """Return the kind of processor that a type computes on, by the name of its family."""
    family = _family(instance_type)
    return next((processor for pattern, processor in _FAMILIES if pattern.fullmatch(family)), "cpu")


def default_image_for(image: str | None, *, instance_types: Sequence[str]) -> str | None:
    """Return the deployment's default image as it fits a job.

    The image for GPUs starts on CPUs too, so it serves a job with types of both kinds.

    Args:
        image: The deployment's, with or without `{processor}`.
        instance_types: Every type that the job may run on.

    Returns:
        The image. None where there is none for these types.
    """
    if image is None or PROCESSOR_PLACE not in image:
        return image
    if types_without_default(instance_types):
        return None
    return _for_processor(image, instance_types=instance_types)


def newest_named(text: str, images: Mapping[str, AwsImage]) -> str | None:
    """Return the newest image of a table that a name means. None where it means none.

    Args:
        text: A framework or an algorithm, with as much of its version as matters, such as `pytorch`, `pytorch-2.8` or
            `xgboost-1.7-1`.
        images: The table.
    """
    meant = re.compile(re.escape(text) + r"(?![a-z0-9]).*")
    return next((name for name in reversed(list(images)) if meant.fullmatch(name)), None)


def aws_image(image: AwsImage, *, region: str, instance_types: Sequence[str]) -> str | None:
    """Return one of AWS's own images, as a job in a region pulls it.

    Args:
        image: The image of a framework or an algorithm.
        region: The region of the job.
        instance_types: Every type that the job may run on.

    Returns:
        The image. None where AWS serves none in the region, or none for these types.
    """
    account = ACCOUNTS[image.registry].get(region)
    if account is None or types_without_default(instance_types):
        return None
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    path = _for_processor(image.path, instance_types=instance_types)
    return f"{account}.dkr.ecr.{region}.{suffix}/{path}"


def patched_until(image: str) -> date | None:
    """Return the last day on which AWS patches an image.

    Args:
        image: The image as a job pulls it, with its tag.

    Returns:
        The day. None where the image is not one of AWS's own, or the day is not known.
    """
    name = _aws_name(image)
    return None if name is None else PATCHED_UNTIL[name]


def patch_warnings(image: str, *, today: date) -> Iterator[str]:
    """Yield that AWS patches an image no more, and the newest one that it does.

    Args:
        image: as a job pulls it, with its tag.
        today: the day of the launch.
    """
    name = _aws_name(image)
    if name is None or PATCHED_UNTIL[name] >= today:
        return
    framework = _without_version(name)
    newest = next(each for each in reversed(list(PATCHED_UNTIL)) if _without_version(each) == framework)
    known = f"The newest that Spotkeep knows is framework: {newest}, patched until {PATCHED_UNTIL[newest]}."
    yield f"image {image}: AWS has not patched {name} since {PATCHED_UNTIL[name]}. {known}"


def _aws_name(image: str) -> str | None:
    """Return the name of an image among AWS's own images with a known last patch. None where it is none of them."""
    registry, _, path = image.rpartition("/")
    account = registry.partition(".dkr.ecr.")[0]
    for name in PATCHED_UNTIL:
        known = FRAMEWORK_IMAGES[name]
        # With more behind it: AWS's tags may name CUDA and Ubuntu, too.
        if account in ACCOUNTS[known.registry].values() and path.startswith(known.path.partition(PROCESSOR_PLACE)[0]):
            return name
    return None


def saves_checkpoints(algorithm: str) -> bool:
    """Return True if AWS documents that an algorithm saves checkpoints and goes on from them.

    Args:
        algorithm: its name in the table of images: `xgboost-1.7-1`.
    """
    return _without_version(algorithm) in _SAVING


def needs_gpus(algorithm: str) -> bool:
    """Return True if AWS documents that an algorithm trains on NVIDIA GPUs alone.

    Args:
        algorithm: its name in the table of images: `seq2seq-1`.
    """
    return _without_version(algorithm) in _ON_GPUS


def _without_version(algorithm: str) -> str:
    return re.sub(r"-\d.*", "", algorithm)


def types_without_default(instance_types: Sequence[str]) -> list[str]:
    """Return the types that an image for CPUs or NVIDIA GPUs does not fit.

    These have AWS Neuron devices or Arm processors. AWS has images for training on Arm for EC2 alone, and those for
    Neuron have versions of their own.
    """
    return [each for each in instance_types if processor_of(each) == "neuron" or _architecture_of(each) == "Arm"]


def _misfits(image: str, *, instance_types: Sequence[str]) -> Iterator[str]:
    """Yield the parts of an image's name that do not fit the types.

    A name that says nothing of its processor yields nothing.

    Args:
        image: The image with its tag or digest.
        instance_types: Every type that the job may run on.
    """
    name = image.rpartition("/")[-1].partition("@")[0].lower()
    words = re.split(r"[^a-z0-9]+", name)
    named = {processor for pattern, processor in _WORDS if any(pattern.fullmatch(word) for word in words)}
    if len(named) == 1:
        [processor] = named
        others = [each for each in instance_types if processor_of(each) != processor]
        if processor == "gpu" and len(others) < len(instance_types):
            others = [each for each in others if processor_of(each) != "cpu"]
        if others:
            has = processor_of(others[0])
            yield (
                f"image {image} is for {_FOR[processor]}, by its name; {others[0]} has {_HAS[has]}. "
                f"Name an image for {_FOR[has]}, or another instance type."
            )
    for architecture, pattern in _ARCHITECTURE_NAMES.items():
        others = [each for each in instance_types if _architecture_of(each) != architecture]
        if others and pattern.search(name):
            yield (
                f"image {image} is for {architecture} processors, by its name; {others[0]} has "
                f"{_architecture_of(others[0])} processors, where it does not start."
            )


def _for_processor(image: str, *, instance_types: Sequence[str]) -> str:
    processor = "gpu" if any(processor_of(each) == "gpu" for each in instance_types) else "cpu"
    return image.replace(PROCESSOR_PLACE, processor)


def _family(instance_type: str) -> str:
    return instance_type.removeprefix("ml.").partition(".")[0]


def _architecture_of(instance_type: str) -> _Architecture:
    return "Arm" if _ARM.fullmatch(_family(instance_type)) else "x86-64"


Image = Annotated[
    AnyText,
    must(
        written(r"(?!.*://)[a-z0-9][\w./:@-]{0,254}"),
        "is not the path of a container image (at most 255 characters, no scheme)",
        "Give it as <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag>",
    ),
]


_NAME_OF: Final = {
    "scikit-learn": "sklearn",
    "scikit_learn": "sklearn",
    "scikitlearn": "sklearn",
    "torch": "pytorch",
    "tf": "tensorflow",
    "keras": "tensorflow",
    "transformers": "huggingface",
    "hf": "huggingface",
}
_OTHER_NAMES: Final = re.compile(rf"^({'|'.join(_NAME_OF)})(?![a-z])", re.IGNORECASE)
"""Other names of frameworks, which are written before a version."""


def _image_reader(images: Mapping[str, AwsImage], *, what: str) -> Callable[[object], str]:
    """Return the reader of a name and version, which finds the newest image that the text means."""

    def read(value: object) -> str:
        text = read_text(value)
        named = newest_named(text, images)
        likely = _OTHER_NAMES.sub(lambda found: _NAME_OF[found[0].lower()], text)
        if named is None and newest_named(likely, images) is not None:
            raise wrong(f"is not {what}", f"Write {likely}")
        if named is None:
            raise wrong(
                f"is not {what}",
                f"Write one of {', '.join(images)}; the version may be shorter, or missing for the newest. "
                "Another image is given as image",
            )
        return named

    return read


def _image_schema(images: Mapping[str, AwsImage]) -> WithJsonSchema:
    families = dict.fromkeys(re.sub(r"-\d.*", "", name) for name in images)
    pattern = f"^({'|'.join(families)})(-[0-9][0-9.-]*)?$"
    return WithJsonSchema({"type": "string", "pattern": pattern}, mode="validation")


read_framework = _image_reader(FRAMEWORK_IMAGES, what="a framework that AWS has an image of in Spotkeep's table")
Framework = Annotated[str, BeforeValidator(read_framework), _image_schema(FRAMEWORK_IMAGES)]
Algorithm = Annotated[
    str,
    BeforeValidator(
        _image_reader(ALGORITHM_IMAGES, what="a built-in algorithm of SageMaker that Spotkeep's table has an image of")
    ),
    _image_schema(ALGORITHM_IMAGES),
]
_FRAMEWORKS: Final = tuple(dict.fromkeys(name.partition("-")[0] for name in FRAMEWORK_IMAGES))


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
    """Yield the reasons for which a job's image would not be pulled, as its name shows its registry.

    Roles of jobs and of instances read images in their own region alone. SageMaker pulls from a private registry of
    Amazon ECR. It pulls from any other registry, except AWS's public one, through the VPC of the job.

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
        framework = next((each for each in _FRAMEWORKS if re.match(rf"{each}(:|@|$)", image.rpartition("/")[2])), None)
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


@rule("backend", "image", "framework", "instance_types", "instance_type")
def _image_runs_on_the_instances(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.backend != "ec2" or request.image is None:
        return
    neuron = [each for each in request.types if processor_of(each) == "neuron"]
    if neuron:
        yield Problem(
            field="image",
            found=request.image,
            problem=f"is given with {neuron[0]}, whose AWS Neuron devices no container gets on EC2",
            fix="Remove it and deploy with a Neuron AMI (the setting instance_ami), choose another type, or train on "
            "SageMaker.",
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
    excluded(
        "framework",
        where=lambda request: request.image is not None,
        reads=("image",),
        problem="is given together with image",
        fix="Give one of the two: framework for AWS's own image, image for any other.",
        as_found=str,
    ),
    _image_is_known,
    _image_can_be_pulled,
    _image_runs_on_the_instances,
    _an_algorithm_runs_by_itself,
    _an_algorithm_gets_what_it_takes,
)


def image_warnings(
    request: JobRequest, deployment: DeploymentDefaults, *, types: Sequence[str], today: date | None
) -> Iterator[str]:
    """Yield warnings of an image or an algorithm that is allowed and probably not meant.

    Args:
        request: A request that was read whole, defaults filled in.
        deployment: The deployment.
        types: The instance types that the job may run on.
        today: The day of the launch. None for a document that was accepted before.
    """
    image = request.image
    registry = "" if image is None or not names_a_registry(image) else image
    elsewhere = registry and ecr_registry(registry) is None and not is_in_public_gallery(registry)
    if request.backend == "sagemaker" and elsewhere and deployment.training_network is not False:
        within = (
            "the deployment's VPC" if deployment.training_network else "a VPC (the setting training_subnet_ids) only"
        )
        yield (
            f"image {image} is not in Amazon ECR: SageMaker pulls it through {within}, and without a login. The VPC "
            "must reach the registry, and a public authority must have issued its certificate."
        )
    if image is not None:
        yield from _misfits(image, instance_types=types)
        if today is not None:
            yield from patch_warnings(image, today=today)
    others = [each for each in types if processor_of(each) != "gpu"]
    if request.algorithm is not None and needs_gpus(request.algorithm) and others:
        yield f"algorithm {request.algorithm} trains on NVIDIA GPUs alone; {others[0]} has none."
