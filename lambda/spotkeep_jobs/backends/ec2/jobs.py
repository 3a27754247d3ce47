"""Attempts on fleets, behind the interface `Backend`, so that the controller knows one kind of job.

A fleet needs more care than a training job, because EC2 replaces its instances for ever. When the training is over, the
controller has to delete the fleet. The last instance saves and lets go of its volume. The controller terminates it if
it does not leave. `settle` takes the steps that are due. Each step may be taken twice. A function that dies in
between leaves it to the next one. `observe` asks EC2 and changes nothing. It reports if a step is due.

- Create. The function writes the job and the fleet record, then the history. It creates the template's version and then
  the fleet, each with the launch's token.
- Next place. Nodes that train together come to one place. Where too few do, the fleet ends with them, and the next one
  is created at another place (`places`).
- Stop. The function writes it into the history, then into the fleet record, which the instance reads every few seconds.
  The fleet is deleted. The instance saves, leaves and shuts itself down.
- End. The fleet is deleted first, so that nothing follows. The instance is terminated when it has let go of lease and
  volume. The job is over only when nothing runs any more.

Instances write the fleet record, so it may be missing, unreadable, or different at each reading. None of this blocks a
stop, a limit or the end. These follow from EC2 and from the history, which functions alone write. A history that
DynamoDB does not take blocks nothing either. The instances and the fleet end first, and then the refusal is raised.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from spotkeep_fleet import record as fleet_record
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.orphans import Resource, rebuilt
from spotkeep_fleet.record import FleetRecord, snapshot_gib_hours
from spotkeep_fleet.tags import ATTEMPT_TAG, DEPLOYMENT_TAG, RUN_TAG, operation_of
from spotkeep_jobs.backends.backend import CostSoFar, JobView
from spotkeep_jobs.backends.ec2 import history as histories
from spotkeep_jobs.backends.ec2 import places
from spotkeep_jobs.backends.ec2.attempt_view import as_job_view, folded, must_fold, to_fold
from spotkeep_jobs.backends.ec2.charges import AttemptStorage, charges_of, cost_so_far
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.facts import FleetReading, ProvisionedVolume, SpotPrice
from spotkeep_jobs.backends.ec2.fleet_table import FleetRecordChangedError, FleetTable
from spotkeep_jobs.backends.ec2.history import (
    LONGEST_REASON,
    PREPARES_WITHIN,
    FleetEnding,
    FleetHistory,
    InstanceLife,
    futile_lives,
    last_words,
    may_launch,
)
from spotkeep_jobs.backends.ec2.launch import (
    FleetLaunch,
    brought,
    create_fleet_request,
    launch_of,
    place_of_nodes,
    token_at,
)
from spotkeep_jobs.errors import AwsBusyError, AwsCallError, AwsRefusedError, JobNotFoundError
from spotkeep_jobs.record.deployment_records import StoragePrices
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Charges
from spotkeep_jobs.record.table_client import Item, RecordRefusedError, Write, until_written

LEAVING_TAKES: Final = timedelta(minutes=5)
"""Two minutes to save, the copy of the last checkpoint, unmount and detach. A slower instance is terminated."""

BOOT_TAKES: Final = timedelta(minutes=20)
"""The longest time that an instance may run before its agent takes the run's lease, or says that it is a node.

A virtual one needs one to three minutes, bare metal five to fifteen. One that is silent for longer has no agent, and
would bill for as long as its fleet is there."""

APPEARS_AFTER: Final = timedelta(minutes=2)
"""The longest time after the end of its fleet in which an instance may still appear."""

_ENDED_FLEET_STATES: Final = frozenset({"deleted", "failed"})


class FleetStep(StrEnum):
    """A due step for a fleet. Each may be taken twice."""

    ASK_TO_STOP = "ASK_TO_STOP"
    """Write into the fleet record that the training must save and leave."""
    DELETE_FLEET = "DELETE_FLEET"
    """Delete the fleet, so that EC2 launches nothing more. Its instance stays, because it saves first."""
    TERMINATE = "TERMINATE"
    """End the instances that hold no lease any more, hold it too long, do not report, or are at an earlier place."""
    NEXT_PLACE = "NEXT_PLACE"
    """Record that the nodes are looked for at another place, because too few came."""
    DELETE_EARLIER = "DELETE_EARLIER"
    """Delete the fleets of earlier places with their instances."""
    CREATE_FLEET = "CREATE_FLEET"
    """Create the fleet at the present place, after all earlier ones were deleted."""
    CLOSE = "CLOSE"
    """Nothing runs any more. Mark the record as ended, count the cost, delete the template's version."""


def steps_due(
    history: FleetHistory, *, seen: FleetReading, record: FleetRecord | None, now: datetime
) -> tuple[FleetStep, ...]:
    """Return the steps that are due now, in this order. Empty for an attempt that goes on well, or is over.

    Args:
        history: The history after EC2's answer.
        seen: EC2's answer.
        record: The fleet record, which the instances write. None when it is missing or unreadable.
        now: The time.
    """
    if history.over_at is not None:
        return ()
    todo: list[FleetStep] = []
    all_deleted = all(fleet.deleted for fleet in history.earlier_fleets)
    if history.ending is None:
        moves = places.is_to_be_left(history, seen, now=now)
        if moves:
            todo.append(FleetStep.NEXT_PLACE)
        if moves or not all_deleted:
            todo.append(FleetStep.DELETE_EARLIER)
        if moves or (history.fleet_id is None and history.place):
            todo.append(FleetStep.CREATE_FLEET)
        if to_terminate(history, record=record, now=now):
            todo.append(FleetStep.TERMINATE)
        return tuple(todo)
    if history.ending.training_goes_on and record is not None and not record.stop_requested:
        todo.append(FleetStep.ASK_TO_STOP)
    if history.fleet_id is not None and may_launch(history, seen, now):
        todo.append(FleetStep.DELETE_FLEET)
    if not all_deleted:
        todo.append(FleetStep.DELETE_EARLIER)
    if to_terminate(history, record=record, now=now):
        todo.append(FleetStep.TERMINATE)
    if not history.live and all_deleted and _launches_no_more(history, seen, now):
        todo.append(FleetStep.CLOSE)
    return tuple(todo)


def to_terminate(history: FleetHistory, *, record: FleetRecord | None, now: datetime) -> tuple[str, ...]:
    """Return the ids of the live instances that have nothing to save, had their time, or do not report.

    All nodes of a run may have something to save until their training is over, or until the leader of a run that is
    asked to stop has given its lease back. Those of an earlier place have saved.

    Args:
        history: The history after EC2's answer.
        record: The fleet record, which the instances write. None when it is missing or unreadable. Then each instance
            may have something to save.
        now: The time.
    """
    holder = None
    if record is not None and record.lease is not None and record.lease.expires_at > now.timestamp():
        holder = record.lease.holder
    strays = places.strays(history)
    if history.ending_at is None:
        if history.nodes is None and holder is not None:
            return ()  # While another one holds the lease, an instance waits for it and cannot say anything.
        booted = frozenset(() if record is None else record.booted)
        silent = (life.instance_id for life in history.live if _silent(life, now, booted=booted))
        return tuple(dict.fromkeys((*strays, *silent)))
    late = now - history.ending_at >= LEAVING_TAKES
    saving = {holder}
    if record is not None and not record.training.over and (record.lease is not None or not record.stop_requested):
        saving |= {*record.world, *(node.instance for node in record.nodes)}
    return tuple(
        life.instance_id
        for life in history.live
        if late or life.instance_id in strays or (record is not None and life.instance_id not in saving)
    )


def _silent(life: InstanceLife, now: datetime, *, booted: frozenset[str]) -> bool:
    if life.missing_since is not None:
        return now - life.missing_since >= BOOT_TAKES
    takes = PREPARES_WITHIN if life.instance_id in booted else BOOT_TAKES
    return life.heard_at is None and life.training_at is None and now - life.launched_at >= takes


def _launches_no_more(history: FleetHistory, seen: FleetReading, now: datetime) -> bool:
    """Return True if no instance launched just before the fleet's deletion can appear any more."""
    if may_launch(history, seen, now):
        return False
    deleted = seen.fleet is None or seen.fleet.state in _ENDED_FLEET_STATES
    return deleted or now - (history.ending_at or now) >= APPEARS_AFTER


T = TypeVar("T")
_JOB_NAME: Final = re.compile(r"(?P<run>.+)-(?P<attempt>[1-9][0-9]{0,5})")
_WRITTEN_BY_OTHERS: Final = (
    "Spotkeep writes no such thing, but a training script with its instance's role can: check the script. "
    "`spotkeep stop` ends the run; resumed, it goes on from its volume, or from S3"
)
_KEY_BYTES: Final = 16
_TEMPLATE_NOT_FOUND: Final = re.compile(r"LaunchTemplate.*NotFound")
_EVENTS_ARE_LATE: Final = timedelta(minutes=2)
"""A fleet's events can be described up to half a minute after they happened. Source: "EC2 Fleet events", EC2 guide."""


@dataclass(frozen=True, kw_only=True)
class _Observed:
    """An attempt as it is now, not written yet.

    Attributes:
        history: Its history.
        record: The fleet record, which its instances write. None when it is missing or unreadable.
        seen: EC2's answer. None for an attempt that is over.
        at: The time of the observation.
    """

    history: FleetHistory
    record: FleetRecord | None
    seen: FleetReading | None
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Settled:
    """An attempt after the steps that were due.

    Attributes:
        view: Its description. None for an attempt that has no fleet.
        unwritten: The writes of what EC2 has answered, which are left to the caller.
    """

    view: JobView | None
    unwritten: tuple[Write, ...] = ()


@dataclass(kw_only=True)
class FleetJobs:
    """Attempts on fleets, through the interface `Backend`.

    Attributes:
        ec2: The client for fleets.
        records: The table of fleet records.
        deployment: Value of the tag `spotkeep:deployment`.
        prices: On-demand US dollars per instance and hour, by instance type.
        launches: Returns the recorded launch of a run's attempt, or None.
        storage_prices: The prices of storage, as far as they are known by then.
        zones: The Availability Zones by subnet id, as far as they are known. People read them in the timeline.
        now: The time, aware.
    """

    ec2: Ec2Api
    records: FleetTable
    deployment: str
    prices: Mapping[str, float]
    launches: Callable[[str, int], FleetLaunch | None]
    storage_prices: Callable[[], StoragePrices] = StoragePrices
    zones: Mapping[str, str]
    now: Callable[[], datetime]

    def create(self, request: Mapping[str, Any], /) -> str:
        """Create an attempt's fleet. Returns its id. Where its nodes came to several places, it is the newest one's."""
        launch = launch_of(request)
        self._open_record(launch)
        history = self._open_history(launch, marks=request["Environment"])
        if history.fleet_id is not None or history.place:
            return history.job_id
        version = history.template_version
        if version is None:
            made = self.ec2.make_template_version(
                launch.template_id,
                run=launch.run,
                token=launch.token,
                tags=launch.tags,
                nodes=launch.nodes_template,
                instance_types=tuple(dict.fromkeys(each["InstanceType"] for each in launch.overrides)),
            )
            version = made.number
            # Recorded before the fleet: the end of this attempt deletes it, whatever becomes of the next call.
            history = self._change_history(
                history,
                lambda read: with_changes(
                    read, template_version=version, root_volume=made.root_volume, made_at=self.now()
                ),
            )
        try:
            fleet_id = self.ec2.create_fleet(self._fleet_request(launch, template_version=version))
        except AwsRefusedError as error:
            if _TEMPLATE_NOT_FOUND.search(error.code) and histories.just_made(history, now=self.now()):
                raise _busy("CreateFleet", f"{error.reason} It was made a moment ago; EC2 knows it soon") from error
            self.ec2.delete_template_version(launch.template_id, version)
            self._change_history(history, lambda read: with_changes(read, template_version=None))
            raise
        return self._change_history(
            history,
            lambda read: read if read.job_id else with_changes(read, fleet_id=fleet_id, made_at=self.now()),
        ).job_id

    def _fleet_request(self, launch: FleetLaunch, *, template_version: str, place: int = 0) -> dict[str, Any]:
        group = None
        if launch.in_cluster:
            subnet_id = place_of_nodes(launch, place=place)["SubnetId"]
            group = self.ec2.placement_group(deployment=self.deployment, subnet_id=subnet_id)
        return create_fleet_request(launch, template_version=template_version, place=place, placement_group=group)

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe an attempt by its record and EC2's present answer. Changes nothing."""
        history = self.records.history(*_named(job_name))
        observed = None if history is None else self._observe(history)
        if observed is None:
            return None
        following, record = observed.history, observed.record
        view = as_job_view(following, record)
        if observed.seen is None:
            return view
        has_more_to_do = following != history or bool(
            steps_due(following, seen=observed.seen, record=record, now=observed.at)
        )
        return replace(
            view,
            has_more_to_do=has_more_to_do,
            # `settle` follows where there is more to do, and counts the cost.
            cost_so_far=None if has_more_to_do else self._cost_so_far(following, record, now=observed.at),
            session_targets=_session_targets(observed.seen, record=record),
        )

    def settle(self, job_name: str, /) -> JobView | None:
        """Record EC2's answer about an attempt, and take the steps that are due.

        They delete its fleet or end its instance.
        """
        run, attempt = _named(job_name)

        def settle() -> JobView | None:
            history = self.records.history(run, attempt)
            return None if history is None else self._settle(history).view

        return _until_written("DescribeFleets", settle)

    def settle_within(self, job_name: str, /, *, items: Mapping[str, Item]) -> Settled:
        """Settle an attempt as a part of a decision about its run, with fewer calls.

        The history is taken from the run's items. Where no step is due, the caller writes what EC2 has answered, in the
        transaction of the run. A step follows only after its reason is written.

        Args:
            job_name: The attempt.
            items: The run's items by their sort keys, as they were read a moment ago.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        run, attempt = _named(job_name)
        as_read = [self.records.history_among(items, attempt)]

        def settle() -> Settled:
            history = as_read.pop() if as_read else self.records.history(run, attempt)
            return Settled(view=None) if history is None else self._settle(history, defers=True)

        return _until_written("DescribeFleets", settle)

    def stop(self, job_name: str, /) -> bool:
        """Ask an attempt to save and leave. Return False if it had stopped already."""
        run, attempt = _named(job_name)

        def stop() -> bool:
            history = self.records.history(run, attempt)
            if history is None:
                raise JobNotFoundError(operation="DeleteFleets", code="NotFound", reason=f"{job_name} is no fleet")
            if history.over_at is not None:
                return False
            record, _ = self._record(run)
            done = record is not None and record.training.over
            unwritten = None
            if history.ending is None and not done:
                history = with_changes(history, ending=FleetEnding.STOPPED, ending_at=self.now())
                try:
                    history = self.records.write_history(history)
                except RecordRefusedError as error:
                    unwritten = error
            self._settle(history, unwritten=unwritten)
            return True

        return _until_written("DeleteFleets", stop)

    def _open_record(self, launch: FleetLaunch) -> None:
        """Open the fleet record of a new run, or open it again for its next attempt, once."""

        def open_record() -> None:
            job = self.records.job(launch.run)
            if job is not None and job.attempt == launch.attempt:
                return
            if job is None:
                following = fleet_record.new_record(run=launch.run, volume=self._brought_volume(launch))
            else:
                record, _ = self._record(launch.run)
                following = fleet_record.reopened(record or self._rebuilt(launch.run))
            over = None if job is None else job.attempt
            job = launch.nodes_job(key=secrets.token_hex(_KEY_BYTES))
            self.records.write_with_job(following, job=job, over=over, now=self.now())

        _until_written("CreateFleet", open_record)

    def _brought_volume(self, launch: FleetLaunch) -> fleet_record.CurrentVolume | None:
        if launch.brought_volume is None:
            return None
        found = self.ec2.volume(launch.brought_volume)
        if found is None:
            raise AwsRefusedError(
                operation="DescribeVolumes",
                code="InvalidVolume.NotFound",
                reason=f"the volume {launch.brought_volume} is gone",
            )
        return brought(launch, zone=found.zone, size_gb=found.size_gb)

    def _open_history(self, launch: FleetLaunch, *, marks: Mapping[str, str]) -> FleetHistory:
        history = self.records.history(launch.run, launch.attempt)
        if history is not None:
            return history
        record = self._record(launch.run)[0] if launch.attempt > 1 else None
        new = histories.opened(
            run=launch.run,
            attempt=launch.attempt,
            job_name=f"{launch.run}-{launch.attempt}",
            marks=dict(marks),
            capacity=launch.capacity,
            nodes=launch.nodes,
            template_id=launch.template_id,
            output_uri=launch.instance_job.output_uri,
            max_run_seconds=launch.max_run_seconds,
            max_wait_seconds=launch.max_wait_seconds,
            has_max_cost=launch.has_max_cost,
            had_volume=record is not None and record.volume is not None,
            now=self.now(),
        )
        try:
            return self.records.write_history(new, new=True)
        except FleetRecordChangedError:
            return self._open_history(launch, marks=marks)

    def _change_history(self, history: FleetHistory, changed: Callable[[FleetHistory], FleetHistory]) -> FleetHistory:
        as_read = [history]

        def change() -> FleetHistory:
            read = as_read.pop() if as_read else self.records.history(history.run, history.attempt)
            return self.records.write_history(changed(read or history))

        return _until_written("CreateFleet", change)

    def _settle(
        self, history: FleetHistory, *, unwritten: RecordRefusedError | None = None, defers: bool = False
    ) -> Settled:
        """Write an attempt's history, and take the steps that are due. They are taken even where the write fails.

        Args:
            history: The history as it was read.
            unwritten: The error of an earlier try to write its ending. None where there was none.
            defers: True where the caller writes the history, unless a step is due.

        Raises:
            RecordRefusedError: A write failed, and the due steps were taken.
        """
        observed = self._observe(history)
        if observed is None:
            return Settled(view=None)
        following, record = observed.history, observed.record
        if observed.seen is None:
            return Settled(view=as_job_view(following, record))
        deferred: tuple[Write, ...] = ()
        ending_is_recorded = history.ending_at is not None and unwritten is None
        if following != history:
            following = self._folded(following, now=observed.at)
            if defers and not steps_due(following, seen=observed.seen, record=record, now=observed.at):
                deferred = (self.records.history_write(following),)
            else:
                try:
                    following = self.records.write_history(following)
                except RecordRefusedError as error:
                    unwritten = error
        if unwritten is not None and not ending_is_recorded and not may_launch(following, observed.seen, observed.at):
            # Since when it ends is recorded nowhere. The call that deleted the fleet gave its instance time to save.
            following = with_changes(following, ending_at=observed.at - LEAVING_TAKES)
        for step in steps_due(following, seen=observed.seen, record=record, now=observed.at):
            try:
                following, record = self._do(step, following, record, now=observed.at)
            except RecordRefusedError as error:
                unwritten = unwritten or error
        if unwritten is not None:
            raise unwritten
        cost = self._cost_so_far(following, record, now=observed.at)
        return Settled(view=replace(as_job_view(following, record), cost_so_far=cost), unwritten=deferred)

    def _folded(self, history: FleetHistory, *, now: datetime) -> FleetHistory:
        """Return a history of a size that DynamoDB takes, with sums for its old entries."""
        lives = to_fold(history, now=now)
        prices: tuple[SpotPrice, ...] = ()
        try:
            prices = self._spot_prices(lives, until=now)
        except AwsCallError:
            if not must_fold(history):
                lives = ()  # The next call asks again.
        return folded(history, lives, spot_prices=prices, now=now)

    def _observe(self, history: FleetHistory) -> _Observed | None:
        """Add EC2's answer and the record to the history. None for an attempt that has no fleet."""
        now = self.now()
        if history.over_at is not None:
            return _Observed(history=history, record=self._record(history.run)[0], seen=None, at=now)
        following = history
        if history.fleet_id is None:
            found = self.ec2.find_fleet(token_at(history.marks["SPOTKEEP_LAUNCH"], place=history.place))
            if found is None and not history.place:
                return None
            following = with_changes(history, fleet_id=found)
        seen = self._seen(following)
        # Read after EC2 was asked: what it says of an instance that EC2 did not show yet is recorded next time.
        record, problem = self._record(history.run)
        following = histories.absorb(following, seen=seen, record=record, now=now, unreadable=problem)
        following = places.without_ended_fleets(following, now=now)
        says_why = record is None or record.problem is not None
        if following.ending is FleetEnding.FUTILE and history.ending is None and not says_why:
            following = self._with_last_words(following)
        return _Observed(history=following, record=record, seen=seen, at=now)

    def _with_last_words(self, history: FleetHistory) -> FleetHistory:
        """Add the reason from the console output. An instance without an agent cannot write it into the record."""
        for life in reversed(futile_lives(history.lives, at_once=history.at_once)):
            words = last_words(self.ec2.console(life.instance_id))
            if words is not None:
                return with_changes(history, problem=words)
        return history

    def _seen(self, history: FleetHistory) -> FleetReading:
        since = max((life.launched_at for life in history.lives), default=history.created_at) - _EVENTS_ARE_LATE
        instances = self.ec2.instances(deployment=self.deployment, run=history.run)
        fleet = None if history.fleet_id is None else self.ec2.fleet(history.fleet_id)
        own = tuple(each for each in instances if each.tags.get(ATTEMPT_TAG) == str(history.attempt))
        asks = histories.asks_for_events(history, own)
        events = self.ec2.events(fleet.id, since=since) if fleet is not None and asks else ()
        return FleetReading(fleet=fleet, instances=own, events=events)

    def _do(
        self, step: FleetStep, history: FleetHistory, record: FleetRecord | None, *, now: datetime
    ) -> tuple[FleetHistory, FleetRecord | None]:
        match step:
            case FleetStep.ASK_TO_STOP:
                record = self._ask_to_stop(record, now=now)
            case FleetStep.DELETE_FLEET:
                self.ec2.delete_fleet(history.fleet_id or "")
            case FleetStep.NEXT_PLACE:
                launch = self.launches(history.run, history.attempt)
                history = self.records.write_history(places.left(history, launch, zones=self.zones, now=now))
            case FleetStep.DELETE_EARLIER:
                for fleet in history.earlier_fleets:
                    if not fleet.deleted:
                        self.ec2.delete_fleet(fleet.id, with_instances=True)
                history = places.all_deleted(history)
                if history.ending is not None:
                    history = self.records.write_history(history)
            case FleetStep.CREATE_FLEET:
                history = self._create_at_place(history)
            case FleetStep.TERMINATE:
                self.ec2.terminate(to_terminate(history, record=record, now=now))
            case FleetStep.CLOSE:
                record = self._end_record(history, record, now=now)
                if history.template_version is not None:
                    self.ec2.delete_template_version(history.template_id, history.template_version)
                charges = self._charges(history, record, until=now)
                history = histories.closed(history, charges=charges, now=now)
                history = self.records.write_history(history)
        return history, record

    def _create_at_place(self, history: FleetHistory) -> FleetHistory:
        """Create the fleet at the place that an attempt has moved to. Does nothing where the move was not recorded.

        EC2 may refuse a place, such as one without a type. The next pass then tries the next one.
        """
        version = history.template_version
        if history.fleet_id is not None or version is None:
            return history
        launch = self.launches(history.run, history.attempt)
        if launch is None:
            raise _busy("CreateFleet", f"the record of attempt {history.attempt} of {history.run} is not there")
        # Recorded before the fleet: it is looked for by its token until EC2 must show it.
        history = self.records.write_history(with_changes(history, made_at=self.now()))
        request = self._fleet_request(launch, template_version=version, place=history.place)
        try:
            fleet_id = self.ec2.create_fleet(request)
        except AwsRefusedError as error:
            # A refusal too may be our own doing: a call whose answer was lost has the fleet, and with it the quota.
            found = self.ec2.find_fleet(request["ClientToken"])
            if found is None:
                reason = f"{error.code}: {error.reason}"[:LONGEST_REASON]
                return self.records.write_history(places.refused(history, reason=reason))
            fleet_id = found
        now = self.now()
        return self.records.write_history(with_changes(history, fleet_id=fleet_id, short_since=now, made_at=now))

    def _ask_to_stop(self, record: FleetRecord | None, *, now: datetime) -> FleetRecord | None:
        """Write the stop into the record, in a few tries. One that keeps writing over it is terminated anyway."""
        if record is None or record.stop_requested:
            return record
        run, as_read = record.run, [record]

        def ask() -> FleetRecord | None:
            read = as_read.pop() if as_read else self._record(run)[0]
            if read is None or read.stop_requested:
                return read
            return self.records.write_record(replace(read, stop_requested=True), now=now)

        try:
            return until_written(ask, changed=FleetRecordChangedError)
        except FleetRecordChangedError:
            return self._record(run)[0]

    def _end_record(self, history: FleetHistory, record: FleetRecord | None, *, now: datetime) -> FleetRecord | None:
        """End the record over its present content, because no instance of the attempt lives.

        A later attempt's is left alone.
        """
        if record is not None and record.ended:
            return record
        job = self.records.job(history.run)
        if job is None or job.attempt != history.attempt:
            return record
        ended = replace(record or self._rebuilt(history.run), ended=True, lease=None)
        over = job.attempt
        try:
            return until_written(
                lambda: self.records.write_with_job(ended, job=job, over=over, now=now),
                changed=FleetRecordChangedError,
            )
        except FleetRecordChangedError:
            return record

    def _rebuilt(self, run: str) -> FleetRecord:
        """Make a record from EC2's description of a run without live instances."""
        stored = [found for found in self.ec2.stored(deployment=self.deployment) if found.tags.get(RUN_TAG) == run]
        volumes = [found.id for found in stored if found.kind == fleet_record.VOLUME]
        only = self.ec2.volume(volumes[0]) if len(volumes) == 1 else None
        return rebuilt(
            run=run,
            resources=[Resource(found.kind, found.id, operation_of(found.tags), found.attached) for found in stored],
            volume=None if only is None else fleet_record.CurrentVolume(only.id, only.zone, only.size_gb),
        )

    def _charges(self, history: FleetHistory, record: FleetRecord | None, *, until: datetime) -> Charges | None:
        if not history.lives and not history.had_volume:
            return None
        return charges_of(
            history.lives,
            spot_prices=self._spot_prices(history.lives, until=until),
            on_demand_usd_per_hour=self.prices,
            until=until,
            storage=self._storage(history, record, until=until),
            earlier=history.earlier_instances,
        )

    def _cost_so_far(self, history: FleetHistory, record: FleetRecord | None, *, now: datetime) -> CostSoFar | None:
        """Count the cost of a live attempt whose run has a max_cost. None for others."""
        if not history.has_max_cost or history.ending is not None:
            return None
        prices: tuple[SpotPrice, ...] = ()
        late = False
        try:
            prices = self._spot_prices(history.lives, until=now)
        except AwsBusyError:
            late = True  # The next pass asks again.
        except AwsRefusedError:
            pass  # The on-demand price is a ceiling.
        counted = cost_so_far(
            history.lives,
            spot_prices=prices,
            on_demand_usd_per_hour=self.prices,
            now=now,
            storage=self._storage(history, record, until=now),
            earlier=history.earlier_instances,
        )
        return replace(counted, prices_are_late=late)

    def _storage(self, history: FleetHistory, record: FleetRecord | None, *, until: datetime) -> AttemptStorage:
        """Return the storage of an attempt, from the record and the job that instances work on."""
        job = None if record is None or record.volume is None else self.records.job(history.run)
        volume, snapshot_gb_hours = None, 0.0
        if record is not None and record.volume is not None and job is not None:
            volume = ProvisionedVolume(
                size_gb=record.volume.size_gb,
                type=job.volume.type,
                iops=job.volume.iops,
                throughput_mib_s=job.volume.throughput_mib_s,
            )
            snapshot_gb_hours = snapshot_gib_hours(
                record, since=history.created_at.timestamp(), until=until.timestamp()
            )
        return AttemptStorage(
            volume=volume,
            volume_since=history.created_at if history.had_volume else None,
            root_volume=history.root_volume,
            snapshot_gb_hours=snapshot_gb_hours,
            prices=self.storage_prices(),
        )

    def _spot_prices(self, lives: Sequence[InstanceLife], *, until: datetime) -> tuple[SpotPrice, ...]:
        """Ask EC2 for the spot prices of instances, from their first launch on. Empty where none is on spot."""
        spot = [life for life in lives if life.spot]
        if not spot:
            return ()
        return self.ec2.spot_prices(
            instance_types=sorted({life.instance_type for life in spot}),
            zones=sorted({life.zone for life in spot}),
            start=min(life.launched_at for life in spot),
            end=until,
        )

    def _record(self, run: str) -> tuple[FleetRecord | None, str | None]:
        """Read the fleet record, or return None and its fault."""
        try:
            record = self.records.record(run)
        except DocumentError as error:
            return None, f"{error}\n{_WRITTEN_BY_OTHERS}"
        return record, f"the fleet record is missing. {_WRITTEN_BY_OTHERS}" if record is None else None


class NoFleets:
    """The backend of a deployment without EC2. It has no fleets, and creates none."""

    def create(self, request: Mapping[str, Any], /) -> str:
        """Refuse."""
        raise AwsRefusedError(
            operation="CreateFleet",
            code="NoFleets",
            reason=f"this deployment has no EC2 fleets ({launch_of(request).run}); set ec2_fleets and deploy again",
        )

    def observe(self, job_name: str, /) -> JobView | None:
        """Refuse to say."""
        raise _busy("DescribeFleets", f"{job_name} is on a fleet, and the setting ec2_fleets was turned off since")

    def settle(self, job_name: str, /) -> JobView | None:
        """Refuse to say."""
        return self.observe(job_name)

    def settle_within(self, job_name: str, /, *, items: Mapping[str, Item]) -> Settled:
        """Refuse to say."""
        del items
        return Settled(view=self.observe(job_name))

    def stop(self, job_name: str, /) -> bool:
        """Refuse."""
        raise _busy("DeleteFleets", f"{job_name} is on a fleet, and the setting ec2_fleets was turned off since")


class FleetOwners:
    """The attempts to which fleets belong, by the tags that EC2 describes.

    EC2's event of a fleet does not name the attempt, and it comes for every fleet of the account.
    """

    def __init__(self, ec2: Ec2Api | None, *, deployment: str) -> None:
        """Bind the parts.

        Args:
            ec2: The client of EC2. None in a deployment without fleets, which owns none.
            deployment: Value of the tag `spotkeep:deployment`.
        """
        self._ec2 = ec2
        self._deployment = deployment

    def jobs_of_fleets(self, fleet_ids: Sequence[str], /) -> Mapping[str, str]:
        """Ask EC2 for the tags of all the fleets in one call.

        Returns:
            The job names of the attempts of this deployment, by fleet id. Other fleets are left out.

        Raises:
            AwsCallError: EC2 refused or could not answer.
        """
        if self._ec2 is None:
            return {}
        return {
            fleet.id: f"{fleet.tags[RUN_TAG]}-{fleet.tags[ATTEMPT_TAG]}"
            for fleet in self._ec2.fleets_by_id(fleet_ids)
            if fleet.tags.get(DEPLOYMENT_TAG) == self._deployment and {RUN_TAG, ATTEMPT_TAG} <= fleet.tags.keys()
        }


def _session_targets(seen: FleetReading, *, record: FleetRecord | None) -> tuple[str, ...]:
    """Return the instances that take sessions. The first one holds the run, or else was launched last.

    Of nodes that train together, the others follow in the order of their ranks, and then those that wait for them.
    """
    running = sorted((each for each in seen.instances if each.state == "running"), key=lambda each: each.launched_at)
    ids = [each.id for each in running]
    holder = record.lease.holder if record is not None and record.lease is not None else None
    first = [each for each in ids if each == holder] or ids[-1:]
    if record is None or not record.nodes:
        return tuple(first)
    return tuple(dict.fromkeys((*first, *(each for each in record.world if each in ids), *ids)))


def _named(job_name: str) -> tuple[str, int]:
    match = _JOB_NAME.fullmatch(job_name)
    if match is None:
        raise JobNotFoundError(operation="DescribeFleets", code="NotFound", reason=f"{job_name} is no attempt")
    return match["run"], int(match["attempt"])


def _until_written(operation: str, attempt: Callable[[], T]) -> T:
    try:
        return until_written(attempt, changed=FleetRecordChangedError)
    except FleetRecordChangedError as error:
        raise _busy(operation, str(error)) from error


def _busy(operation: str, reason: str) -> AwsBusyError:
    return AwsBusyError(operation=operation, code="Conflict", reason=reason)
