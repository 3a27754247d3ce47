"""A bill says whose its prices are, where they are not those of the reader's account."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.rendering.run_description import RunStory, bill, run_description
from spotkeep_cli.rendering.run_page import run_page
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import CountedCost, Hangs, Nodes
from spotkeep_jobs.record.states import RunState
from tests.html import Parsed

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
OF_A_LIST = "of a list"


def story_of(run: Any) -> RunStory:
    return RunStory(run=run, attempts=[], timeline=[], metrics=None, plan=None, page=None)


def printed(run: Any, **options: Any) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(bill(run, **options))
    return captured.get()


def test_the_dollars_of_a_rehearsal_are_those_of_the_local_price_list(make: Any) -> None:
    run = make.completed(cost=make.cost(billed_usd=0.01, usd_per_hour=0.115))
    assert OF_A_LIST in printed(run, prices=OF_A_LIST)
    assert OF_A_LIST not in printed(run)


def test_a_bill_in_instance_time_has_no_prices(make: Any) -> None:
    run = make.completed(cost=make.cost(billed_usd=None, usd_per_hour=None))
    text = printed(run, prices=OF_A_LIST)
    assert OF_A_LIST not in text
    assert "not known: in instance time" in text


def test_what_ebs_kept_for_a_run_on_ec2_is_on_its_bill_a_line_each(make: Any) -> None:
    stored = {"storage_gb_hours": 200.0, "storage_usd": 0.1, "root_volume_gb_hours": 80.0, "root_volume_usd": 0.03}
    text = " ".join(printed(make.completed(cost=make.cost(**stored))).split())
    assert "volume 200.0 GiB hours, $0.10 of it root volumes 80.0 GiB hours, $0.03 of it" in text
    unpriced = {"root_volume_gb_hours": 80.0, "unknown_prices": ("gp3 throughput",)}
    text = " ".join(printed(make.completed(cost=make.cost(**unpriced))).split())
    assert "root volumes 80.0 GiB hours saved at most" in text
    assert "not known: gp3 throughput" in text


def test_the_saving_is_a_ceiling_where_the_repeated_work_is_unknown(make: Any) -> None:
    text = " ".join(printed(make.completed(cost=make.cost(redone_steps=None, redone_seconds=None))).split())
    assert "on demand, clean at most 10m 40s ($0.04) saved at most 62%, 6m 40s ($0.03)" in text
    nothing = make.cost(redone_steps=None, redone_seconds=None, saved_percent=None)
    assert "saved at most" not in " ".join(printed(make.completed(cost=nothing)).split())


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (None, "0 of 4 nodes are there, and train when there are 2"),
        (Nodes(connected=1, in_world=0), "1 of 4 nodes are there, and train when there are 2"),
        (Nodes(connected=3, in_world=3), "3 of 4 nodes train"),
        (Nodes(connected=4, in_world=3), "3 of 4 nodes train, 1 waits to join"),
        (Nodes(connected=4, in_world=2), "2 of 4 nodes train, 2 wait to join"),
    ],
)
def test_the_nodes_of_a_run_are_shown_while_it_lives(make: Any, nodes: Nodes | None, said: str) -> None:
    request = {"name": "digits", "backend": "ec2", "nodes": {"min": 2, "max": 4}}
    place = {"backend": "ec2", "instance_type": "g5.xlarge", "instance_count": 4}
    run = make.run("digits-1", request=request, nodes=nodes, interruptions=1, started_at=NOON, **place)

    def shown(run: Any) -> tuple[str, str]:
        story = story_of(run)
        console = Console(width=120)
        with console.capture() as captured:
            console.print(run_description(story, now=NOON, width=120))
        page = Parsed(run_page(story, now=NOON, steps=[], footer="")).text
        return " ".join(captured.get().split()), " ".join(page.split())

    described, page = shown(run)
    assert f"now {said}" in described
    assert f"It lost a node once. Now {said}." in page
    assert "2 to 4 x g5.xlarge, spot" in described
    assert "lost a node once" in described
    assert "volume" not in described
    for ended in shown(with_changes(run, state=RunState.COMPLETED, ended_at=NOON)):
        assert said not in ended


def test_the_bill_of_nodes_does_not_say_that_their_waits_are_free(make: Any) -> None:
    request = {"name": "digits", "backend": "ec2", "nodes": {"min": 2, "max": 4}}
    run = make.completed(backend="ec2", instance_count=4, request=request, cost=make.cost(waited_seconds=60.0))
    text = " ".join(printed(run).split())
    assert "billed 12m of node time ($0.02), with the waits of nodes for others" in text
    assert "waited 1m for nodes" in text
    assert "not billed" not in text


def test_the_bill_of_several_hosts_says_that_its_times_are_those_of_all_of_them(make: Any) -> None:
    cost = make.cost(idle_pool_seconds=120.0, idle_pool_usd=0.01, redone_steps=3, redone_seconds=60.0)

    def shown(instance_count: int) -> str:
        run = make.completed(instance_count=instance_count, cost=cost)
        page = Parsed(run_page(story_of(run), now=NOON, steps=[], footer="")).text
        return " ".join(f"{printed(run)} {page}".split())

    of_two = shown(2)
    for row in ("billed 4m", "idle pool 2m", "on demand, clean 10m 40s", "saved 62%, 6m 40s", "repeated 3 steps, 1m"):
        assert f"{row} of instance time" in of_two
        assert row in shown(1)
    assert "Repeated3 steps1m of instance time" in of_two
    assert "of instance time" not in shown(1)


def test_the_bill_of_a_run_that_once_had_several_hosts_says_whose_its_times_are(make: Any) -> None:
    cost = make.cost(training_seconds=1600.0, worked_seconds=800.0)
    assert "billed 4m of instance time" in " ".join(printed(make.completed(attempt=2, cost=cost)).split())
    alone = make.cost(training_seconds=800.0, worked_seconds=800.0)
    assert "of instance time" not in printed(make.completed(attempt=2, cost=alone))


def test_each_attempt_has_the_number_of_its_own_instances(make: Any) -> None:
    """A resume may go on with another number of hosts."""

    def shown(*counts: int, **place: Any) -> str:
        attempts = [
            make.attempt("digits-1", attempt=number, instance_count=count, **place)
            for number, count in enumerate(counts, 1)
        ]
        story = replace(story_of(make.completed(attempt=len(counts))), attempts=attempts)
        console = Console(width=120)
        with console.capture() as captured:
            console.print(run_description(story, now=NOON, width=120))
        return " ".join(f"{captured.get()} {Parsed(run_page(story, now=NOON, steps=[], footer='')).text}".split())

    of_two_then_one = shown(2, 1)
    assert "2 x ml.m5.xlarge spot" in of_two_then_one
    assert "2 x ml.m5.xlarge spot" not in shown(1, 1)
    assert "up to 4 x g5.xlarge spot" in shown(4, 2, backend="ec2", instance_type="g5.xlarge")


def test_a_saving_on_ec2_has_no_seconds_because_its_prices_move(make: Any) -> None:
    """A run may be billed fewer on-demand seconds than it worked, and cost more, by its volumes."""
    dear = make.cost(saved_seconds=11.0, saved_percent=-24.0, saved_usd=-0.3)
    on_ec2 = make.completed(backend="ec2", cost=dear)
    assert "saved -24% (-$0.30)" in " ".join(printed(on_ec2).split())
    assert "saved -24%, 11s (-$0.30)" in " ".join(printed(make.completed(cost=dear)).split())
    unpriced = make.completed(backend="ec2", cost=make.cost(saved_usd=None))
    assert "saved 62%, 6m 40s" in " ".join(printed(unpriced).split())


def test_the_bill_of_a_run_at_work_says_what_is_not_on_it(make: Any) -> None:
    cost = make.cost()
    assert "not on it" not in printed(make.completed(cost=cost))
    assert "not on it attempt 2, which has not ended" in " ".join(printed(make.run(attempt=2, cost=cost)).split())


def test_a_run_at_work_with_a_max_cost_shows_its_cost_so_far(make: Any) -> None:
    run = make.run("digits-1", request={"max_cost": 3.0})
    counted = CountedCost(usd=2.41, at=NOON, remark="without io2 storage, as no price is known")

    def shown(**changes: Any) -> str:
        attempts = [make.attempt("digits-1", counted_cost=counted)]
        story = RunStory(
            run=with_changes(run, **changes), attempts=attempts, timeline=[], metrics=None, plan=None, page=None
        )
        console = Console(width=120)
        with console.capture() as captured:
            console.print(run_description(story, now=NOON, width=120))
        page = Parsed(run_page(story, now=NOON, steps=[], footer="")).text
        said = "about $2.41 of $3.00 (max_cost) at 2026-11-29 12:00:00 UTC, without io2 storage, as no price is known"
        assert said in " ".join(page.split())
        assert said in " ".join(captured.get().split())
        return captured.get()

    assert "not known before the attempt ends" not in shown()
    assert "billed" in shown(cost=make.cost())


@pytest.mark.parametrize(
    ("ended", "restarts", "said"),
    [
        (False, 0, "stood still 2 times; no step and no line for 40m now"),
        (False, 1, "stood still 2 times, and was started again once; no step and no line for 40m now"),
        (True, 2, "stood still 2 times, and was started again 2 times"),
    ],
)
def test_a_description_says_how_often_a_training_stood_still(make: Any, ended: bool, restarts: int, said: str) -> None:
    hangs = Hangs(count=2, restarts=restarts, newest_at=NOON, still_since=NOON - timedelta(minutes=30))
    run = (make.completed if ended else make.run)(hangs=hangs)
    story = RunStory(run=run, attempts=[], timeline=[], metrics=None, plan=None, page=None)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(run_description(story, now=NOON + timedelta(minutes=10), width=120))
    assert said in " ".join(captured.get().split())
