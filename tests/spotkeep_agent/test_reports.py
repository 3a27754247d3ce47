"""The reports of an instance: the record has what the training said last, and of several nodes the leader speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_agent.errors import LeaseLostError
from spotkeep_agent.identity import InstanceIdentity
from spotkeep_agent.nodes.controller import NodesController
from spotkeep_agent.reports import Reports
from spotkeep_agent.training.process import MOST_STEPS
from spotkeep_agent.volume import actions as do
from spotkeep_fleet.record import LONGEST_FAILURE, TRAINING, CurrentVolume, FleetRecord

IDENTITY = InstanceIdentity("i-1", "us-east-1a", "us-east-1", "g5.xlarge", "run", "deployment")


class Run:
    """One run: its record, the lines of its log, and the events on its bus."""

    def __init__(self) -> None:
        self.record = FleetRecord(run="run", volume=CurrentVolume("vol-1", "us-east-1a", 8), setbacks=2)
        self.lines: list[str] = []
        self.sent: list[tuple[str, Mapping[str, Any]]] = []
        self.found_job = None
        self.lease_is_lost = False
        self.reports = Reports(say=self.lines.append, counted_calls=lambda: {"GetItem": 1})
        given: Any = self
        self.reports.speak_for(given)
        job: Any = SimpleNamespace(attempt=1, event_bus=None, log_group=None)
        calls: Any = None
        self.reports.open(job, IDENTITY, calls, log_name="algo-1")
        bus: Any = SimpleNamespace(put=lambda event, **fields: self.sent.append((event, fields)))
        self.reports._bus = bus

    def write(self, change: Callable[[FleetRecord], FleetRecord]) -> None:
        if self.lease_is_lost:
            raise LeaseLostError("another instance has it")
        self.record = change(self.record)


@pytest.fixture
def run() -> Run:
    return Run()


def test_the_record_has_the_steps_that_the_training_said_last(run: Run) -> None:
    for event in (
        {"event": "resume", "step": 4, "total_steps": 10},
        {"event": "progress", "step": 6},
        {"event": "saved", "step": 5},
        {"event": "paused", "step": 6},
    ):
        assert run.reports.take_in(event) == event["step"]
    run.reports.add_uploaded(5)
    run.reports.add_uploaded(2)
    run.reports.record(state=TRAINING)
    training = run.record.training
    assert (training.step, training.total_steps, training.durable_step, training.paused_step) == (6, 10, 5, 6)
    assert training.uploaded_step == 5, "an older one that stays may follow a newer one"
    assert training.heartbeat_at is not None
    assert run.record.setbacks == 0, "an instance trains"


@pytest.mark.parametrize("step", [None, "7", True, -1, 1.0, MOST_STEPS])
def test_an_event_without_a_step_changes_nothing(run: Run, step: object) -> None:
    assert run.reports.take_in({"event": "progress", "step": step}) is None
    run.reports.record()
    assert run.record.training.step is None
    assert not run.reports.has_stepped


def test_a_save_that_fails_is_the_runs_problem_until_one_succeeds(run: Run) -> None:
    run.reports.take_in({"event": "save-failed", "step": 3, "problem": "x" * 2 * LONGEST_FAILURE})
    run.reports.record(state=TRAINING)
    assert run.record.problem == "x" * LONGEST_FAILURE
    run.reports.take_in({"event": "saved", "step": 4})
    run.reports.record(state=TRAINING)
    assert run.record.problem is None


def test_a_volume_that_alone_has_some_output_is_kept_once(run: Run) -> None:
    run.reports.miss_in_s3("the model", "S3 is out of reach")
    run.reports.record(state=TRAINING)
    run.reports.record(state=TRAINING)
    assert run.record.kept == ("vol-1",)
    assert '"event":"not-in-s3"' in run.lines[0]


def test_a_report_of_progress_alone_does_not_say_that_an_instance_trains(run: Run) -> None:
    run.reports.record_progress(interruptions=1)
    assert (run.record.training.interruptions, run.record.setbacks) == (1, 2)


def test_without_the_lease_progress_and_start_are_lost_and_the_caller_hears_of_the_rest(run: Run) -> None:
    run.lease_is_lost = True
    run.reports.record_progress(interruptions=1)
    run.reports.begin_training(restored_step=None)
    assert [event for event, _ in run.sent] == ["training"]
    with pytest.raises(LeaseLostError):
        run.reports.record(state=TRAINING)


def test_a_start_is_recorded_before_its_event(run: Run) -> None:
    recorded: list[str | None] = []
    bus: Any = SimpleNamespace(put=lambda event, **_: recorded.append(run.record.training.state))
    run.reports._bus = bus
    run.reports.begin_training(restored_step=3)
    assert recorded == [TRAINING]


def test_the_first_step_ends_a_recovery_and_its_event_has_the_phases(run: Run) -> None:
    run.reports.end_phase("start")
    run.reports.take_in({"event": "resume", "step": 4})
    for step in (5, 6):
        run.reports.take_in({"event": "progress", "step": step})
    assert run.reports.has_stepped
    (line,) = (line for line in run.lines if '"event":"instance-first-step"' in line)
    assert all(f'"{phase}":' in line for phase in ("start", "restore", "first-step"))
    assert '"GetItem":1' in line


@pytest.mark.parametrize(("leads", "sent", "step"), [(True, ["failed", "left"], 7), (False, ["left"], None)])
def test_of_several_nodes_the_leader_reports_and_each_node_says_that_it_left(
    run: Run, leads: bool, sent: list[str], step: int | None
) -> None:
    class Node(NodesController):
        """A node that is the leader, or not."""

        found_job: Any = None
        holds_lease: Any = leads
        write: Any = staticmethod(run.write)

        def __init__(self) -> None:
            """Connect nowhere."""

    run.reports.speak_for(Node())
    run.reports.send_event("failed")
    run.reports.send_event("left", why="the run is over")
    run.reports.take_in({"event": "progress", "step": 7})
    run.reports.record(state=TRAINING)
    assert [event for event, _ in run.sent] == sent
    assert run.record.training.step == step
    assert sum('"event":"instance-failed"' in line for line in run.lines) == 1, "its own log has both all the same"


def test_actions_that_only_look_are_silent_unless_they_find_a_problem(run: Run) -> None:
    run.reports.add_action(do.ReadRecord(), "")
    assert run.lines == []
    run.reports.add_action(do.ReadRecord(), "it cannot be reached")
    assert run.lines == ["volume: ReadRecord(): it cannot be reached"]
