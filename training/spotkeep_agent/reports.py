"""The reports of one instance: lines in the log of its run, events on the bus, the training's part of the record."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Callable, Union

from spotkeep.events import event_line
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import LONGEST_FAILURE, TRAINING, FleetRecord

from .aws.calls import AwsCalls
from .aws.event_bus import EventBus
from .aws.log_stream import LogStream
from .errors import LeaseLostError
from .identity import InstanceIdentity
from .nodes.controller import NodesController
from .training.process import MOST_STEPS
from .volume import actions as do
from .volume.controller import VolumeController

Controller = Union[VolumeController, NodesController]
"""The part of the agent that holds the lease of the run, and writes the record."""

_logger = logging.getLogger("spotkeep.agent")


class Reports:
    """The reports of one instance, to people, to the functions, and to the next instance.

    Args:
        say: The function that prints a line.
        counted_calls: The calls of AWS that this agent has made, by their names.
    """

    def __init__(self, *, say: Callable[[str], None], counted_calls: Callable[[], Mapping[str, int]]) -> None:
        self.say = say
        self.has_stepped = False
        """True once the training that runs now has made a step."""
        self._counted_calls = counted_calls
        self._phase_began = time.monotonic()
        self._phases: dict[str, float] = {}
        self._changes: dict[str, Any] = {}
        self._save_problem: str | None = None
        self._on_volume_only = False
        self._controller: Controller | None = None
        self._log: LogStream | None = None
        self._log_name = ""

    def speak_for(self, controller: Controller) -> None:
        """Report from now on for the run of a controller."""
        self._controller = controller

    @property
    def is_open(self) -> bool:
        """True once log and bus of the run are known."""
        return self._log is not None

    def open(self, job: InstanceJob, identity: InstanceIdentity, calls: AwsCalls, *, log_name: str) -> None:
        """Connect log and bus of the run.

        Args:
            job: The job, which says where they are.
            identity: This instance.
            calls: Calls of AWS with the credentials of the run.
            log_name: The name of this instance in the logs of the run.
        """
        if self._log_name == log_name:
            return
        self._identity = identity
        about = {
            "run": identity.run,
            "attempt": job.attempt,
            "instance_id": identity.instance,
            "zone": identity.zone,
            "instance_type": identity.instance_type,
        }
        self._bus = EventBus(calls, bus=job.event_bus, about=about)
        self.close()
        stream = f"{identity.run}-{job.attempt}/{log_name}-ec2"
        self._log, self._log_name = LogStream(calls, group=job.log_group, stream=stream), log_name

    def flush(self) -> None:
        """Send what the log has collected."""
        if self._log is not None:
            self._log.flush()

    def close(self) -> None:
        """Send what the log has collected, and let go of it."""
        if self._log is not None:
            self._log.close()

    # Lines and events

    def add_line(self, line: str) -> None:
        """Print a line, and add it to the log."""
        self.say(line)
        if self._log is not None:
            self._log.add(line)

    def add_event(self, name: str, **fields: Any) -> None:
        """Add an event of this instance to the log."""
        job = None if self._controller is None else self._controller.found_job
        launch = None if job is None else job.launch
        self.add_line(event_line(name, time_seconds=time.time(), fields=fields, launch=launch).rstrip("\n"))

    def send_event(self, event: str, **fields: Any) -> None:
        """Add an event to the log, and send it to the bus. Of several nodes the leader sends, and each that leaves."""
        self.add_event(f"instance-{event}", instance=self._identity.instance, zone=self._identity.zone, **fields)
        if not self._another_leads or event == "left":
            self._bus.put(event, **fields)

    def add_action(self, action: do.Action, problem: str) -> None:
        """Print an action of the volume protocol, unless it only looks and finds no problem."""
        looks = (do.ReadJob, do.ReadRecord, do.DescribeVolumes, do.DescribeSnapshots, do.DescribeInstances)
        if problem or not isinstance(action, (*looks, do.SurveyMachine, do.Idle)):
            self.say(f"volume: {_described(action)}{f': {problem}' if problem else ''}")

    def end_phase(self, name: str) -> None:
        """Note the seconds since the last phase ended."""
        now = time.monotonic()
        self._phases[name] = round(now - self._phase_began, 3)
        self._phase_began = now

    # The record

    def record(self, **changes: Any) -> None:
        """Write the training's reports to the record, which renews the lease. Of several nodes the leader writes.

        Args:
            changes: Further fields of the record's `training`.

        Raises:
            LeaseLostError: Another instance has the lease.
            ConnectionError: The record cannot be reached.
        """
        if self._another_leads:
            return
        assert self._controller is not None  # noqa: S101 - the lease came by it
        reported = {**self._changes, **changes, "heartbeat_at": time.time()}
        trains = "state" in changes

        def change(record: FleetRecord) -> FleetRecord:
            training = replace(record.training, **reported)
            if not trains:
                return replace(record, training=training)
            kept = record.kept
            if self._on_volume_only and record.volume is not None and record.volume.id not in kept:
                kept = (*kept, record.volume.id)
            return replace(record, training=training, setbacks=0, problem=self._save_problem, kept=kept)

        self._controller.write(change)

    def record_progress(self, **changes: Any) -> None:
        """Write the training's reports to the record. A failure is a warning."""
        try:
            self.record(**changes)
        except (LeaseLostError, ConnectionError) as error:
            _logger.warning("how far it came is not recorded: %s", error)

    # The training

    def begin_training(self, *, restored_step: int | None) -> None:
        """Record the start before its event, since receivers of the event read the record."""
        try:
            self.record(state=TRAINING)
        except (LeaseLostError, ConnectionError) as error:
            _logger.warning("the start is not recorded; the next heartbeat does it: %s", error)
        self.send_event("training", restored_step=restored_step, phases=self._phases, calls=self._counted_calls())

    def take_in(self, event: Mapping[str, Any]) -> int | None:
        """Take in an event of the training. Return its step, or None for an event without one."""
        step = event.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < MOST_STEPS:
            return None
        kind = event.get("event")
        self._follow_start(kind, step)
        if kind in ("progress", "resume"):
            self._changes["step"] = step
            total = event.get("total_steps")
            if isinstance(total, int) and 0 <= total < MOST_STEPS:
                self._changes["total_steps"] = total
        elif kind == "paused":
            self._changes["paused_step"] = step
        elif kind == "save-failed":
            # The training goes on without checkpoints: a person should know while it still does.
            self._save_problem = str(event.get("problem"))[:LONGEST_FAILURE]
        elif kind == "saved":
            self._save_problem = None
            self._changes["durable_step"] = step
        return step

    def add_uploaded(self, step: int) -> None:
        """Report that the copy of a checkpoint is in S3."""
        # An older one that is to stay may follow a newer one.
        self._changes["uploaded_step"] = max(step, self._changes.get("uploaded_step", step))
        self.add_event("uploaded", step=step)

    def miss_in_s3(self, what: str, problem: str) -> None:
        """Report that only the volume has some output. The run is done all the same, and that volume is not deleted."""
        self._on_volume_only = True
        self.add_event("not-in-s3", what=what, problem=problem)

    def _follow_start(self, kind: object, step: int) -> None:
        """Report the duration of a recovery, which is over with the first step of the training."""
        if self.has_stepped:
            return
        if kind == "resume":
            self.end_phase("restore")
        elif kind == "progress":
            self.has_stepped = True
            self.end_phase("first-step")
            self.add_event("instance-first-step", step=step, phases=self._phases, calls=self._counted_calls())

    @property
    def _another_leads(self) -> bool:
        return isinstance(self._controller, NodesController) and not self._controller.holds_lease


def _described(action: do.Action) -> str:
    if isinstance(action, do.WriteRecord):
        return f"record: {action.why}"
    fields = ", ".join(f"{name}={value}" for name, value in asdict(action).items() if value not in (None, False))
    return f"{type(action).__name__}({fields})"
