"""Advice about the starts of a run, by the starts of the deployment's earlier runs. Pure.

A part of a start is worth advice from a minute on, where it is a fifth of its start at least. The deployment's own
medians stand behind the advice where there are any, else the words of AWS's documentation with their address. AWS
publishes no times for these parts, so such advice names no saving.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from spotkeep_cli.startup.starts import Part, RunFacts, Start

WORTH_SECONDS: Final = 60.0
"""The least seconds of a part that advice is about."""
_WORTH_SHARE: Final = 0.2
_FASTER: Final = 0.8
"""The own median of another choice counts as faster below this share of the run's own."""
_FAST_FILE: Final = (
    "FastFile streams objects when they are read, and its startup time is lower with fewer files",
    "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html",
)
_WARM_POOL: Final = (
    "a warm pool speeds up start times, as it spends less time on provisioning",
    "https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html",
)
_IN_AN_IMAGE: Final = (
    "a container of your own holds the packages that the script needs",
    "https://docs.aws.amazon.com/sagemaker/latest/dg/docker-containers.html",
)
_IMAGE_DOWNLOAD: Final = "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_SecondaryStatusTransition.html"
BY_PIP: Final = "by pip"
"""The runner's word for packages that pip installed, and that no cache had."""


@dataclass(frozen=True, kw_only=True)
class KnownStart:
    """A start with the choices of its run.

    Attributes:
        facts: The choices.
        start: The start.
    """

    facts: RunFacts
    start: Start


@dataclass(frozen=True, kw_only=True)
class Group:
    """The starts that share a choice, with the median of each part.

    Attributes:
        choice: The kind of choice, `pool`, `input mode` or `image`.
        value: The choice, such as `warm`.
        starts: The number of the starts.
        median_seconds: The median of each part, in seconds.
    """

    choice: str
    value: str
    starts: int
    median_seconds: Mapping[Part, float]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        named = {part.value.replace(" ", "_"): seconds for part, seconds in self.median_seconds.items()}
        return {"choice": self.choice, "value": self.value, "starts": self.starts, "median_seconds": named}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One piece of advice.

    Attributes:
        part: The part that it shortens.
        text: The advice, a sentence.
        change: The change of the job file, as `--set` takes it. None where it is no single field.
        because: The grounds, a sentence without its period.
        saves_seconds: The saving of a start in seconds, by own medians. None where only AWS's words stand behind it.
        source: The address of AWS's words. None for own medians.
    """

    part: Part
    text: str
    change: str | None = None
    because: str
    saves_seconds: float | None = None
    source: str | None = None

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {**asdict(self), "part": self.part.value.replace(" ", "_")}


def advise(facts: RunFacts, starts: Sequence[Start], earlier: Sequence[KnownStart]) -> list[Advice]:
    """Return the advice about a run's starts, that about the longest part first.

    Args:
        facts: The choices of the run.
        starts: Its starts.
        earlier: Starts of the deployment's other runs.
    """
    medians = median_seconds(starts)
    total = sum(medians.values())
    worth = sorted((part for part in medians if _is_worth(medians[part], total)), key=lambda part: -medians[part])
    alike = [each for each in earlier if each.facts.backend == facts.backend]
    return [
        found
        for part in worth
        if part in _ABOUT and (found := _ABOUT[part](facts, starts, alike, medians[part])) is not None
    ]


def median_seconds(starts: Iterable[Start]) -> dict[Part, float]:
    """Return the median of each part over the starts that have it, in seconds."""
    listed = list(starts)
    found = {part: [each.seconds[part] for each in listed if part in each.seconds] for part in Part}
    return {part: round(statistics.median(values), 3) for part, values in found.items() if values}


def groups_of(known: Sequence[KnownStart]) -> list[Group]:
    """Return starts by pool, input mode and image, for each choice with more than one value."""
    choices: dict[str, Callable[[KnownStart], str | None]] = {
        "pool": lambda each: "warm" if each.start.warm else "cold",
        "input mode": lambda each: " and ".join(each.facts.input_modes) or "no channel",
        "image": lambda each: each.facts.image,
    }
    return [group for choice, value_of in choices.items() for group in _grouped(choice, value_of, known)]


def _grouped(choice: str, value_of: Callable[[KnownStart], str | None], known: Sequence[KnownStart]) -> Iterator[Group]:
    by_value: dict[str, list[Start]] = {}
    for each in known:
        value = value_of(each)
        if value is not None and each.start.trains:
            by_value.setdefault(value, []).append(each.start)
    for value in sorted(by_value) if len(by_value) > 1 else ():
        starts = by_value[value]
        yield Group(choice=choice, value=value, starts=len(starts), median_seconds=median_seconds(starts))


def _is_worth(seconds: float, total: float) -> bool:
    return seconds >= WORTH_SECONDS and seconds >= _WORTH_SHARE * total


def _grounds(
    part: Part, seconds: float, other: Sequence[Start], *, named: str, published: tuple[str, str]
) -> tuple[str, float | None, str | None] | None:
    """Return why another choice is faster, with its saving and its source. None where own starts say it is not."""
    own = median_seconds(other).get(part)
    if own is None:
        return (f"AWS says that {published[0]}", None, published[1])
    if own > _FASTER * seconds:
        return None
    count = sum(part in each.seconds for each in other)
    return (f"{_counted(count)} {named} took {_said(own)} in the median", round(seconds - own, 3), None)


def _about_capacity(
    facts: RunFacts, starts: Sequence[Start], earlier: Sequence[KnownStart], seconds: float
) -> Advice | None:
    if facts.backend != "sagemaker" or all(each.warm for each in starts):
        return None
    if not facts.on_demand:
        return Advice(
            part=Part.CAPACITY,
            text="Spot capacity is waited for. A ladder also asks for other types, and then on demand.",
            change="capacity=auto",
            because="SageMaker asks for one type on spot, and a warm pool goes with on demand alone",
            source="https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html",
        )
    if facts.keep_alive:
        return None
    warm = [each.start for each in earlier if each.start.warm]
    grounds = _grounds(Part.CAPACITY, seconds, warm, named="with a warm pool", published=_WARM_POOL)
    if grounds is None:
        return None
    because, saves, source = grounds
    return Advice(
        part=Part.CAPACITY,
        text="Keep the instances for the next job in a warm pool, which is billed while it waits.",
        change="keep_alive=30m",
        because=because,
        saves_seconds=saves,
        source=source,
    )


def _about_data(
    facts: RunFacts, _starts: Sequence[Start], earlier: Sequence[KnownStart], seconds: float
) -> Advice | None:
    if facts.backend != "sagemaker" or not facts.file_channels:
        return None
    streamed = [each.start for each in earlier if each.facts.input_modes and "File" not in each.facts.input_modes]
    grounds = _grounds(Part.DATA, seconds, streamed, named="without a channel in File mode", published=_FAST_FILE)
    if grounds is None:
        return None
    because, saves, source = grounds
    names = ", ".join(name for name, _ in facts.file_channels)
    first, uri = facts.file_channels[0]
    return Advice(
        part=Part.DATA,
        text=f"Read {names} with FastFile, or from a file system, in place of a copy before the start.",
        change=f"channels.{first}={{uri: {uri}, input_mode: FastFile}}",
        because=because,
        saves_seconds=saves,
        source=source,
    )


def _about_image(
    facts: RunFacts, _starts: Sequence[Start], earlier: Sequence[KnownStart], seconds: float
) -> Advice | None:
    """Return the image whose download was the shortest, or that a smaller one helps."""
    by_image: dict[str, list[Start]] = {}
    for each in earlier:
        if each.facts.image is not None and each.facts.image != facts.image and Part.IMAGE in each.start.seconds:
            by_image.setdefault(each.facts.image, []).append(each.start)
    medians = {image: median_seconds(found)[Part.IMAGE] for image, found in by_image.items()}
    fastest = min(medians, key=lambda image: medians[image], default=None)
    if fastest is None or medians[fastest] > _FASTER * seconds:
        on_sagemaker = facts.backend == "sagemaker"
        return Advice(
            part=Part.IMAGE,
            text="Take a smaller image, with what the script needs and no more.",
            because=f"{'SageMaker' if on_sagemaker else 'docker'} downloads the whole image before the script begins",
            source=_IMAGE_DOWNLOAD if on_sagemaker else None,
        )
    count = len(by_image[fastest])
    return Advice(
        part=Part.IMAGE,
        text=f"Take a smaller image, such as {fastest}.",
        because=f"{_counted(count)} with it took {_said(medians[fastest])} in the median",
        saves_seconds=round(seconds - medians[fastest], 3),
    )


def _about_packages(
    _facts: RunFacts, starts: Sequence[Start], _earlier: Sequence[KnownStart], seconds: float
) -> Advice | None:
    if not any(each.packages_from == BY_PIP for each in starts):
        return None
    kept = [each for each in starts if each.packages_from not in (None, BY_PIP)]
    grounds = _grounds(Part.PACKAGES, seconds, kept, named="with packages from a cache", published=_IN_AN_IMAGE)
    if grounds is None:
        return None
    because, saves, source = grounds
    return Advice(
        part=Part.PACKAGES,
        text="Put the packages into an image of your own, and leave requirements.txt out of the source.",
        change="install=none",
        because=because,
        saves_seconds=saves,
        source=source,
    )


_ABOUT: Final[Mapping[Part, Callable[[RunFacts, Sequence[Start], Sequence[KnownStart], float], Advice | None]]] = {
    Part.CAPACITY: _about_capacity,
    Part.DATA: _about_data,
    Part.IMAGE: _about_image,
    Part.PACKAGES: _about_packages,
}
"""The parts that a choice of the job file shortens. A restore and a first step are the script's own."""


def _counted(count: int) -> str:
    return "1 earlier start" if count == 1 else f"{count} earlier starts"


def _said(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"
