"""What `make bench-control` counts, in a short form: the targets that do not depend on size hold here, too."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.control import measures
from benchmarks.control.__main__ import main
from spotkeep_fleet.run_prefixes import PREFIXES


def test_a_launch_costs_four_calls_an_event_that_says_nothing_new_two_and_one_after_the_end_one() -> None:
    with measures.quiet():
        calls = measures.calls()
    by_event = calls.figures["by_event"]
    assert calls.kept
    assert by_event["launch"] == {"PutObject": 1, "TransactWriteItems": 2, "CreateTrainingJob": 1}
    assert sum(by_event["an event that says nothing new"].values()) == 2
    assert by_event["an event after the end"] == {"Query": 1}
    assert sum(by_event["following a run for its metrics, every ten minutes"].values()) == 6
    assert calls.figures["sagemaker_calls_to_those_of_a_bare_handler"] == 1


def test_an_event_of_a_node_costs_six_calls_at_most() -> None:
    with measures.quiet():
        measured = measures.node_events(nodes=3)
    assert measured.kept
    assert measured.figures["calls"] == {
        "the world begins": 5,
        "an event that says nothing new": 4,
        "a node leaves on a notice": 6,
        "a node comes": 5,
        "a node is lost without a notice": 6,
    }


def test_a_pass_describes_only_what_may_have_changed() -> None:
    with measures.quiet():
        measured = measures.reconciled(runs=60, pools=2)
    first, *_, last = measured.figures["passes"]
    assert measured.kept
    # Of runs never seen a search says all there is; of so few warm pools each is described.
    assert (first["calls"]["Search"], first["calls"]["DescribeTrainingJob"]) == (1, 2)
    assert "ListTrainingJobs" not in first["calls"]
    assert last["reconciled"] == 60
    assert last["calls"].get("DescribeTrainingJob", 0) < 10


def test_metrics_of_all_runs_are_followed_within_one_invocation_and_not_in_the_next() -> None:
    with measures.quiet():
        measured = measures.reconciled(runs=60, followed=True)
    assert measured.kept
    first, second, *_ = measured.figures["passes"]
    assert first["calls"]["FilterLogEvents"] == 60
    assert second["calls"].get("FilterLogEvents", 0) < 5


def test_of_many_pools_a_pass_describes_those_that_are_over() -> None:
    with measures.quiet():
        waiting = measures.reconciled(runs=20, pools=25)
        over = measures.reconciled(runs=20, pools=25, unseen=True)
    [first, *_] = waiting.figures["passes"]
    assert (first["pools"], first["calls"]["ListTrainingJobs"]) == (25, 1)
    assert "DescribeTrainingJob" not in first["calls"]
    [first, *_] = over.figures["passes"]
    assert (first["pools"], first["calls"]["DescribeTrainingJob"]) == (25, 25)


def test_a_pass_over_an_account_in_order_describes_nothing() -> None:
    with measures.quiet():
        orphans = measures.orphans(runs=60, pools=5)
    in_order, much = orphans.figures["in_order"], orphans.figures["much_orphaned"]
    assert orphans.kept
    assert (in_order["found"], in_order["unreadable"]) == (0, 0)
    calls = in_order["calls"]
    assert "DescribeTrainingJob" not in calls
    assert (calls["Search"], calls["ListTrainingJobs"], calls["ListObjectsV2"]) == (1, 1, len(PREFIXES))
    assert (much["found"], much["removed"]) == (2 * measures.ORPHANED, measures.ORPHANED)
    assert much["calls"]["StopTrainingJob"] == measures.ORPHANED


def test_notifications_whose_sends_fail_are_neither_lost_nor_doubled() -> None:
    with measures.quiet():
        sent = measures.sent(notifications=300, failing=0.2)
    assert (sent.figures["lost"], sent.figures["doubled"]) == (0, 0)
    assert sent.figures["sends_that_failed"] > 30


@pytest.mark.long
def test_it_prints_its_verdict_and_writes_its_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "control.json"
    options = ["--runs", "25", "--pools", "3", "--notifications", "50", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", ["benchmark", *options])
    assert main() == 0
    assert json.loads(output.read_text())["kept"] is True
    assert "50 notifications" in capsys.readouterr().out
