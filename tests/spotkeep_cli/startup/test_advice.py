"""Advice about starts: by the deployment's own medians, else by AWS's words with their address."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_cli.startup.advice import Advice, KnownStart, advise, groups_of
from spotkeep_cli.startup.starts import Part, RunFacts, Start

BEGUN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def facts(**changes: Any) -> RunFacts:
    given = {"run": "digits", "backend": "sagemaker", "image": "large:1", "input_modes": ("File",)}
    return RunFacts(**{**given, "file_channels": (("train", "s3://a/"),), **changes})


def start(*, warm: bool = False, packages_from: str | None = None, **seconds: float) -> Start:
    parts = {Part(name.replace("_", " ")): value for name, value in seconds.items()}
    return Start(attempt=1, begun_at=BEGUN, seconds=parts, trains=True, warm=warm, packages_from=packages_from)


def known(given: Start, **changes: Any) -> KnownStart:
    return KnownStart(facts=facts(run="other", **changes), start=given)


def the_advice(*earlier: KnownStart, starts: Any, **changes: Any) -> Advice:
    (found,) = advise(facts(**changes), starts, earlier)
    return found


def test_short_parts_and_small_shares_are_worth_no_advice() -> None:
    assert advise(facts(), [start(capacity=10, data=59)], []) == []
    assert advise(facts(), [start(restore=5_000, data=300)], []) == []
    assert advise(facts(), [], []) == []


def test_data_by_awss_words_while_there_are_no_own_figures() -> None:
    found = the_advice(starts=[start(data=300)])
    assert found.part is Part.DATA
    assert found.change == "channels.train={uri: s3://a/, input_mode: FastFile}"
    assert found.saves_seconds is None
    assert str(found.source).endswith("API_AlgorithmSpecification.html")
    assert found.because.startswith("AWS says that FastFile")


def test_data_by_own_medians() -> None:
    quick = [known(start(data=seconds), input_modes=("FastFile",)) for seconds in (10, 20, 90)]
    copied = known(start(data=1), input_modes=("File",))
    found = the_advice(*quick, copied, starts=[start(data=300)])
    assert found.because == "3 earlier starts without a channel in File mode took 20.0 s in the median"
    assert (found.saves_seconds, found.source) == (280, None)


def test_own_medians_that_say_otherwise_silence_aws() -> None:
    slow = known(start(data=290), input_modes=("FastFile",))
    assert advise(facts(), [start(data=300)], [slow]) == []


def test_data_that_no_choice_shortens() -> None:
    assert advise(facts(file_channels=(), input_modes=("FastFile",)), [start(data=300)], []) == []
    assert advise(facts(backend="ec2"), [start(data=300)], []) == []


def test_a_warm_pool_is_for_on_demand_and_a_ladder_for_spot() -> None:
    on_spot = the_advice(starts=[start(capacity=600)])
    assert on_spot.change == "capacity=auto"
    cold = the_advice(starts=[start(capacity=600)], on_demand=True)
    assert (cold.change, cold.saves_seconds) == ("keep_alive=30m", None)
    assert str(cold.source).endswith("train-warm-pools.html")
    own = the_advice(known(start(capacity=12, warm=True)), starts=[start(capacity=600)], on_demand=True)
    assert own.because == "1 earlier start with a warm pool took 12.0 s in the median"
    assert own.saves_seconds == 588
    assert advise(facts(on_demand=True, keep_alive=True), [start(capacity=600)], []) == []
    assert advise(facts(on_demand=True), [start(capacity=600, warm=True)], []) == []
    assert advise(facts(backend="ec2"), [start(capacity=600)], []) == []


def test_the_image_with_the_shortest_download_is_named() -> None:
    small = [known(start(image=seconds), image="small:1") for seconds in (20, 30)]
    middle = known(start(image=60), image="middle:1")
    found = the_advice(*small, middle, starts=[start(image=200)])
    assert found.text == "Take a smaller image, such as small:1."
    assert found.saves_seconds == 175
    alone = the_advice(known(start(image=190), image="alike:1"), starts=[start(image=200)])
    assert alone.saves_seconds is None
    assert str(alone.source).endswith("API_SecondaryStatusTransition.html")
    on_ec2 = the_advice(starts=[start(image=200)], backend="ec2")
    assert on_ec2.because == "docker downloads the whole image before the script begins"
    assert on_ec2.source is None
    of_ec2 = known(start(image=5), image="small:1", backend="ec2")
    assert the_advice(of_ec2, starts=[start(image=200)]).saves_seconds is None


def test_packages_that_pip_installs_go_into_an_image() -> None:
    by_pip = start(packages=200, packages_from="by pip")
    found = the_advice(starts=[by_pip])
    assert (found.change, found.saves_seconds) == ("install=none", None)
    cached = start(packages=10, packages_from="from the cache")
    assert the_advice(starts=[by_pip, by_pip, cached]).saves_seconds == 190
    assert advise(facts(), [start(packages=200, packages_from="from the cache")], []) == []
    assert advise(facts(), [start(packages=200)], []) == []


def test_the_longest_part_comes_first() -> None:
    found = advise(facts(on_demand=True), [start(data=200, image=300, capacity=250)], [])
    assert [each.part for each in found] == [Part.IMAGE, Part.CAPACITY, Part.DATA]
    assert found[0].as_document()["part"] == "image"


@pytest.mark.parametrize("trains", [True, False])
def test_choices_of_which_two_values_were_seen_are_grouped(*, trains: bool) -> None:
    warm = known(start(capacity=10, warm=True), image="small:1")
    cold = [known(start(capacity=seconds, data=5)) for seconds in (100, 300)]
    never = known(Start(attempt=1, begun_at=BEGUN, trains=trains, seconds={Part.CAPACITY: 200}))
    found = {(each.choice, each.value): each for each in groups_of([warm, *cold, never])}
    assert set(found) == {("pool", "warm"), ("pool", "cold"), ("image", "small:1"), ("image", "large:1")}
    assert found["pool", "cold"].starts == 2 + trains
    assert found["pool", "cold"].median_seconds[Part.CAPACITY] == 200
    document = found["pool", "warm"].as_document()
    assert document == {"choice": "pool", "value": "warm", "starts": 1, "median_seconds": {"capacity": 10}}
