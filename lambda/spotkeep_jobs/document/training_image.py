"""Which container image fits which instance types, and what is known of AWS's built-in algorithms. Pure.

A deployment's default image may hold `{processor}`: it stands for `cpu` or `gpu`, as in the tags of AWS's own images,
and is filled in by the instance types of a job. Account and region are filled in before, at the deployment. A
document may name a framework or a built-in algorithm instead: one of AWS's own images, from `framework_images`.

Sources:
    https://docs.aws.amazon.com/ec2/latest/instancetypes/instance-type-names.html (families: p and g have NVIDIA GPUs
    but for g4ad, which has AMD's; trn and inf have AWS Neuron devices; a g after the generation says Arm)
    sagemaker.core.image_uris, of the SageMaker SDK (the tags: `<version>-<cpu or gpu>-<python>`)
    https://docs.aws.amazon.com/sagemaker/latest/dg/model-checkpoints.html (Frameworks and algorithms: image
    classification, object detection, semantic segmentation, XGBoost 0.90-1 or later)
    https://docs.aws.amazon.com/sagemaker/latest/dg/common-info-all-im-models.html (the instance classes)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Final, Literal

from spotkeep_jobs.document.framework_images import ACCOUNTS, FRAMEWORK_IMAGES, PATCHED_UNTIL, AwsImage

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
    """Return what a type computes on, by the name of its family."""
    family = _family(instance_type)
    return next((processor for pattern, processor in _FAMILIES if pattern.fullmatch(family)), "cpu")


def default_image_for(image: str | None, *, instance_types: Sequence[str]) -> str | None:
    """Return the deployment's default image as it fits a job.

    The image for GPUs starts on CPUs too, so it serves a job whose types are of both kinds.

    Args:
        image: the deployment's, with or without `{processor}`.
        instance_types: every type that the job may run on.

    Returns:
        The image; None where there is none for these types.
    """
    if image is None or PROCESSOR_PLACE not in image:
        return image
    if types_without_default(instance_types):
        return None
    return _for_processor(image, instance_types=instance_types)


def newest_named(text: str, images: Mapping[str, AwsImage]) -> str | None:
    """Return the newest image of a table that a name means; None where it means none.

    Args:
        text: a framework or an algorithm alone, or with as much of its version as matters: `pytorch`, `pytorch-2.8`,
            `xgboost-1.7-1`.
        images: the table.
    """
    meant = re.compile(re.escape(text) + r"(?![a-z0-9]).*")
    return next((name for name in reversed(list(images)) if meant.fullmatch(name)), None)


def aws_image(image: AwsImage, *, region: str, instance_types: Sequence[str]) -> str | None:
    """Return one of AWS's own images, as a job in a region pulls it.

    Args:
        image: of a framework or an algorithm.
        region: where the job runs.
        instance_types: every type that the job may run on.

    Returns:
        The image; None where AWS serves none in the region, or none for these types.
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
        image: as a job pulls it, with its tag.

    Returns:
        The day; None where the image is not one of AWS's own, or the day is not known.
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
    """Return which of AWS's own images this is, of those whose last patch is known; None where it is none of them."""
    registry, _, path = image.rpartition("/")
    account = registry.partition(".dkr.ecr.")[0]
    for name in PATCHED_UNTIL:
        known = FRAMEWORK_IMAGES[name]
        # With more behind it: AWS's tags may name CUDA and Ubuntu, too.
        if account in ACCOUNTS[known.registry].values() and path.startswith(known.path.partition(PROCESSOR_PLACE)[0]):
            return name
    return None


def saves_checkpoints(algorithm: str) -> bool:
    """Return whether AWS documents that an algorithm saves checkpoints and goes on from them.

    Args:
        algorithm: its name in the table of images: `xgboost-1.7-1`.
    """
    return _without_version(algorithm) in _SAVING


def needs_gpus(algorithm: str) -> bool:
    """Return whether AWS documents that an algorithm trains on NVIDIA GPUs alone.

    Args:
        algorithm: its name in the table of images: `seq2seq-1`.
    """
    return _without_version(algorithm) in _ON_GPUS


def _without_version(algorithm: str) -> str:
    return re.sub(r"-\d.*", "", algorithm)


def types_without_default(instance_types: Sequence[str]) -> list[str]:
    """Return those that an image for CPUs or NVIDIA GPUs does not fit: AWS Neuron devices, and Arm processors.

    AWS has images for training on Arm for EC2 alone, and those for Neuron have versions of their own.
    """
    return [each for each in instance_types if processor_of(each) == "neuron" or _architecture_of(each) == "Arm"]


def image_warnings(image: str, *, instance_types: Sequence[str]) -> Iterator[str]:
    """Yield what the name of an image says that does not fit the types; nothing about one whose name does not say it.

    Args:
        image: with its tag or digest.
        instance_types: every type that the job may run on.
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
