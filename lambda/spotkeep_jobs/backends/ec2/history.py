"""The history of one attempt's fleets, with its instances in order and the reason for its end. Pure.

EC2 forgets an instance after an hour, and a fleet's events after 48 hours. So each answer of EC2 is absorbed into a
history that the run table keeps. The history only grows. A recorded fact of an instance never changes later, however
late or out of order EC2's answers come. Entries of long ago become sums (`attempt_view`). `jobs` decides about the next
steps. `attempt_view` describes a history in the terms of every job.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeFleetHistory.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from spotkeep_fleet.record import FAILED, FINISHED, INPUT_ERROR, TRAINING, FleetRecord
from spotkeep_jobs.backends.backend import WAITING_PHASES, JobPhase
from spotkeep_jobs.backends.ec2.facts import FleetEventKind, FleetReading, Instance, ProvisionedVolume
from spotkeep_jobs.record.fields import LONGEST_WORDS, Address, AtMost, Id, Label, Line, PriceNames, Words, with_changes
from spotkeep_jobs.record.record import Capacity, Charges, EarlierPhases, Record, UtcTime, in_utc_milliseconds


class Billed(Record):
    """The billed use of instances. It is time where a type has one price, and US dollars where the price moved."""

    time: Annotated[dict[Id, timedelta], AtMost(50)] = Field(default_factory=dict)
    """The billed time by instance type."""
    on_demand_time: Annotated[dict[Id, timedelta], AtMost(50)] = Field(default_factory=dict)
    """The part of it that was on demand."""
    spot_usd: float = 0.0
    unknown_spot: PriceNames = ()
    """The spot prices that are missing in it, such as `spot g5.xlarge in us-east-1a`."""
    unknown_spot_time: Annotated[dict[Id, timedelta], AtMost(50)] = Field(default_factory=dict)
    """The time on spot without a known price, by instance type."""


MAX_FUTILE_INSTANCES: Final = 5
"""The number of instances that may go in sequence before they train. After these, a next one would go too.

Instances that EC2 took back, or that left on its notice, do not count. Several nodes are launched at a time. So of an
attempt with nodes it is the number of rounds, with all nodes in each."""

PREPARES_WITHIN: Final = timedelta(hours=6)
"""The longest time for which an instance works on volume and data before it counts as training.

So `max_run` holds whatever a record says. The first snapshot of a large volume takes hours."""

VERSION_KNOWN_AFTER: Final = timedelta(minutes=1)
"""The time after its creation from which a version of a launch template that is NotFound is gone."""

KNOWN_AFTER: Final = timedelta(minutes=10)
"""The time after which EC2 shows a fleet or an instance in every answer.

A thing that EC2 does not show by then is gone.
Source: "Eventual consistency", EC2 API guide."""

_INTERRUPTED_BY_EC2: Final = "Server.Spot"
_NOT_BY_EC2: Final = "Client."
_SHUT_DOWN: Final = re.compile(rf"InitiatedShutdown$|^{_INTERRUPTED_BY_EC2}")
"""Codes of an end that implies nothing about the next instance. It came from inside, by a call or by EC2."""
_OUR_LINES: Final = "spotkeep: "
PLACE_LEFT: Final = "Spotkeep.PlaceLeft"
"""The code of the end of a node that went with its fleet, because not enough nodes came to its place."""
LONGEST_REASON: Final = LONGEST_WORDS


class FleetEnding(StrEnum):
    """The reason for the end of an attempt on a fleet."""

    # Set by the instance.
    FINISHED = "FINISHED"
    PAUSED = "PAUSED"
    """The training finished for now, because its script came to the step to pause at."""
    SCRIPT_FAILED = "SCRIPT_FAILED"
    INPUT_ERROR = "INPUT_ERROR"
    """The run's input (data, source, image, permissions) works on no instance."""

    # Set by a person.
    STOPPED = "STOPPED"
    FLEET_GONE = "FLEET_GONE"
    """A person deleted the fleet in EC2."""

    # Set by the controller.
    MAX_RUN = "MAX_RUN"
    MAX_WAIT = "MAX_WAIT"
    FUTILE = "FUTILE"
    """One instance after the other left before it trained."""

    @property
    def training_goes_on(self) -> bool:
        """True while the training does not know of the ending. It is then asked to save and leave."""
        return self not in (
            FleetEnding.FINISHED,
            FleetEnding.PAUSED,
            FleetEnding.SCRIPT_FAILED,
            FleetEnding.INPUT_ERROR,
        )


class Recorded(StrEnum):
    """The part of an instance's life that the transitions hold."""

    NOTHING = "NOTHING"
    LAUNCHED = "LAUNCHED"
    TRAINING = "TRAINING"
    ENDED = "ENDED"


class InstanceLife(Record):
    """One instance of the fleet.

    Its attributes come from EC2, but `heard_at`, `missing_since`, `training_at` and `noticed_at` come from the fleet
    record.
    """

    instance_id: Id
    instance_type: Id
    zone: Id
    spot: bool
    launched_at: UtcTime
    fleet: Id | None = None
    """The fleet that launched a node. None for an instance that trains alone."""
    heard_at: UtcTime | None = None
    """The time at which its agent first held the run's lease, or was a node of the run. None while it never was."""
    missing_since: UtcTime | None = None
    """The time since when the leader has no connection with a node that it had. None while it has."""
    training_at: UtcTime | None = None
    ended_at: UtcTime | None = None
    ended_by: Line | None = None
    """The code of EC2's reason."""
    noticed_at: UtcTime | None = None
    """The time at which its training ended on a notice of EC2's.

    EC2 does not show it if the instance then powers itself off.
    """
    recorded: Recorded = Recorded.NOTHING

    @property
    def taken(self) -> bool:
        """True if EC2 took it back."""
        return (self.ended_by or "").startswith(_INTERRUPTED_BY_EC2)

    @property
    def worked_until(self) -> datetime | None:
        """The time at which its work ended. After a notice it may have waited for EC2. None while it goes on."""
        return self.ended_at and max(self.launched_at, min(self.noticed_at or self.ended_at, self.ended_at))


class NodesWanted(Record):
    """The nodes that an attempt needs."""

    at_least: int
    """The fewest that train."""
    at_most: int
    """The most that train, which is the number that a fleet asks for."""
    wait_seconds: int
    """The longest time in seconds that nodes wait for the fewest."""


class EarlierFleet(Record):
    """A fleet at a place that the attempt has left."""

    id: Id
    left_at: UtcTime
    deleted: bool = False
    """True once EC2 was asked to delete it with its instances."""


class Transition(Record):
    """A phase that the attempt was in, or is in."""

    phase: JobPhase
    at: UtcTime
    message: Line = ""


class EarlierInstances(Record):
    """The instances that are not listed any more, added up."""

    count: int
    first_launched_at: UtcTime
    last_launched_at: UtcTime
    """An ended instance that was launched by then, and is not listed, is in these sums."""
    last_ended_at: UtcTime
    worked: timedelta
    """The sum as `time_worked` returns it."""
    trained: timedelta
    """The sum as `time_trained` returns it."""
    futile: int
    """The number as `futile_instances` returns it."""
    billed: Billed


class FleetHistory(Record):
    """One attempt on fleets, as the run table keeps it.

    `version` counts the writes. Every write names the version on which the decision rests.
    """

    run: Id
    attempt: int
    job_name: Id
    marks: Annotated[dict[Id, Id], AtMost(8)]
    """The marks that distinguish this launch from another one of the same name."""
    capacity: Capacity
    created_at: UtcTime
    max_run_seconds: int
    max_wait_seconds: int | None = None
    """The limit in seconds for waiting and running. None on demand."""
    has_max_cost: bool = False
    """True where the run has a max_cost, from the launch. Each reading then counts the cost so far."""
    had_volume: bool = False
    """True where an earlier attempt left the run its volume. EBS bills it before the first instance."""
    nodes: NodesWanted | None = None
    """The nodes that train together. None for an attempt of one instance."""
    fleet_id: Label | None = None
    """The fleet at the present place. None before EC2 has made it."""
    place: int = 0
    """The number of the place in which an attempt with nodes looks for them, from 0. The places follow each other."""
    short_since: UtcTime | None = None
    """The time since when the present place has fewer nodes than train. None while it has enough."""
    earlier_fleets: Annotated[tuple[EarlierFleet, ...], AtMost(20)] = ()
    """The fleets of places before it, which may still have instances."""
    template_id: Id
    template_version: Id | None = None
    """The version of the launch template that was made for this attempt."""
    root_volume: ProvisionedVolume | None = None
    """The root volume of each instance, as the template's version says. None where it does not."""
    output_uri: Address | None = None
    """The S3 prefix to which its instances send outputs. None where they send none."""
    made_at: UtcTime | None = None
    """The time at which EC2 last created something for this attempt, the version first and then the fleet."""
    lives: Annotated[tuple[InstanceLife, ...], AtMost(121)] = ()
    """Its instances by their launch, either all of them or the last ones."""
    earlier_instances: EarlierInstances | None = None
    """The sums over the instances before them. None while all are listed."""
    worked_before: timedelta = timedelta(0)
    """The sum of the work of nodes, of the nodes or the phases that are not listed any more."""
    transitions: Annotated[tuple[Transition, ...], AtMost(153)] = ()
    """Its phases in their order, either all of them or the last ones."""
    earlier_phases: EarlierPhases = EarlierPhases()
    """The sums over the phases before them."""
    ending: FleetEnding | None = None
    ending_at: UtcTime | None = None
    problem: Words | None = None
    """The last reason that the instances gave for not training."""
    waits_because: Words | None = None
    """EC2's reason for launching no instance. None while there is one."""
    over_at: UtcTime | None = None
    """The time from which nothing runs or bills by the hour any more."""
    charges: Charges | None = None
    """The cost of the attempt, once it is over."""
    version: int = 0

    @property
    def live(self) -> tuple[InstanceLife, ...]:
        """Returns the instances that have not ended."""
        return tuple(life for life in self.lives if life.ended_at is None)

    @property
    def job_id(self) -> str:
        """The id of its newest fleet. Empty before EC2 has made one."""
        return self.fleet_id or next((fleet.id for fleet in reversed(self.earlier_fleets)), "")

    @property
    def at_once(self) -> int:
        """The most instances that it has at a time, beside those of places that it has left."""
        return 1 if self.nodes is None else self.nodes.at_most


def opened(
    *,
    run: str,
    attempt: int,
    job_name: str,
    marks: dict[str, str],
    capacity: Capacity,
    template_id: str,
    max_run_seconds: int,
    max_wait_seconds: int | None,
    now: datetime,
    nodes: NodesWanted | None = None,
    output_uri: str | None = None,
    has_max_cost: bool = False,
    had_volume: bool = False,
) -> FleetHistory:
    """Begin the history of an attempt before its fleet is created."""
    return FleetHistory(
        run=run,
        attempt=attempt,
        job_name=job_name,
        marks=marks,
        capacity=capacity,
        created_at=now,
        max_run_seconds=max_run_seconds,
        max_wait_seconds=max_wait_seconds,
        has_max_cost=has_max_cost,
        had_volume=had_volume,
        nodes=nodes,
        template_id=template_id,
        output_uri=output_uri,
        transitions=(Transition(phase=JobPhase.WAITING, at=now),),
    )


def absorb(
    history: FleetHistory,
    *,
    seen: FleetReading,
    record: FleetRecord | None,
    now: datetime,
    unreadable: str | None = None,
) -> FleetHistory:
    """Add an answer of EC2 to the history.

    Args:
        history: The present history.
        seen: EC2's answer.
        record: The fleet record, which the instances write. It is read after EC2's answer. None when it is missing or
            unreadable.
        now: The time.
        unreadable: The fault of the record, where it is missing or unreadable.
    """
    if history.over_at is not None:
        return history
    if record is None:
        # As if no instance had said anything: what follows from EC2 alone is decided all the same.
        record = FleetRecord(run=history.run, problem=unreadable)
    heard = _heard(_merged(history, seen, now), record, now)
    lives = _with_training(heard, record, now, together=history.nodes is not None)
    if history.nodes is not None:
        history = with_changes(history, short_since=_short_since(history, lives, seen, now))
    ending = history.ending or _ending(with_changes(history, lives=lives), seen, record, now)
    if ending is not None and ending.training_goes_on and record.training.state == FINISHED:
        ending = finished_or_paused(record)  # It was done before it heard that it should stop.
    over_since = None
    if record.training.over:
        over_since = _reported_at(record, now)
    elif ending is not None:
        over_since = history.ending_at or now
    if history.nodes is None:
        lives, transitions = _recorded(lives, history.transitions, over_since=over_since)
    else:
        lives, transitions = _with_worlds(history, lives, record, over_since=over_since, now=now)
    return with_changes(
        history,
        lives=lives,
        transitions=transitions,
        ending=ending,
        ending_at=history.ending_at or (now if ending else None),
        problem=(record.problem or history.problem or "")[:LONGEST_REASON] or None,
        waits_because=(unreadable or "")[:LONGEST_REASON] or _waits_because(history, lives, seen),
    )


def closed(history: FleetHistory, *, charges: Charges | None, now: datetime) -> FleetHistory:
    """End the history of an attempt when nothing of it runs any more.

    An attempt that was asked to end while it waited has waited until then.
    """
    ends = [life.ended_at for life in history.lives if life.ended_at]
    if history.ending_at is not None and (not ends or (history.ending or FleetEnding.FINISHED).training_goes_on):
        ends.append(history.ending_at)
    ended = max(ends, default=now)
    at = _in_order(history.transitions, ended)
    last = Transition(phase=JobPhase.ENDED, at=at)
    return with_changes(history, over_at=at, transitions=(*history.transitions, last), charges=charges)


def _merged(history: FleetHistory, seen: FleetReading, now: datetime) -> tuple[InstanceLife, ...]:
    lives, earlier = history.lives, history.earlier_instances
    known = {life.instance_id: life for life in lives}
    ended_at = {event.instance_id: event.at for event in seen.events if event.says_ended}
    left = {fleet.id: fleet.left_at for fleet in history.earlier_fleets}
    for instance in seen.instances:
        if instance.id not in known and _is_added_up(instance, earlier):
            continue  # EC2 still describes it.
        life = known.get(instance.id) or _life_of(instance, fleet=instance.fleet if history.nodes else None)
        if instance.ended and life.ended_at is None:
            at = max(ended_at.get(instance.id) or instance.ended_at or now, life.launched_at)
            with_fleet = life.fleet in left and at >= left[life.fleet]
            life = with_changes(life, ended_at=at, ended_by=PLACE_LEFT if with_fleet else instance.reason)
        known[instance.id] = life
    described = {instance.id for instance in seen.instances}
    for life in lives:
        if life.ended_at is None and life.instance_id not in described:
            said = ended_at.get(life.instance_id)
            if said is None and now - life.launched_at < KNOWN_AFTER:
                continue
            # EC2 forgets an instance an hour after its end.
            known[life.instance_id] = with_changes(life, ended_at=max(said or now, life.launched_at))
    return tuple(sorted(known.values(), key=lambda life: (life.launched_at, life.instance_id)))


def asks_for_events(history: FleetHistory, instances: Sequence[Instance]) -> bool:
    """Return True if EC2's events say more than its instances do, which is why none is launched, or when one ended.

    Args:
        history: The history before EC2's answer.
        instances: The instances of the attempt in EC2's answer.
    """
    live = {each.id for each in instances if not each.ended}
    known = {life.instance_id for life in history.lives}
    return (
        len(live) < (1 if history.nodes is None else history.nodes.at_least)
        or any(life.instance_id not in live for life in history.live)
        or any(
            each.ended and each.id not in known and not _is_added_up(each, history.earlier_instances)
            for each in instances
        )
    )


def _is_added_up(instance: Instance, earlier: EarlierInstances | None) -> bool:
    return earlier is not None and instance.ended and instance.launched_at <= earlier.last_launched_at


def _waits_because(history: FleetHistory, lives: Sequence[InstanceLife], seen: FleetReading) -> str | None:
    """Return EC2's reason for launching nothing, such as capacity, a quota, a price, a key or a bad specification."""
    live = [life for life in lives if life.ended_at is None]
    if len(live) >= (1 if history.nodes is None else history.nodes.at_least):
        return None
    since = max((life.launched_at for life in lives), default=history.created_at)
    kinds = (FleetEventKind.ERROR, FleetEventKind.INFORMATION)
    reasons = [event for event in seen.events if event.kind in kinds and event.at >= since]
    if reasons:
        last = max(reasons, key=lambda event: (event.launches_nothing, event.at))
        return ": ".join(filter(None, (last.sub_type, last.description)))[:LONGEST_REASON]
    if len(lives) == len(history.lives) and history.waits_because:
        return history.waits_because  # EC2 keeps events for 48 hours; what it said before still holds.
    failed = lives[-1] if lives and lives[-1].training_at is None else None
    if failed is None or not failed.ended_by or _SHUT_DOWN.search(failed.ended_by):
        return None
    return f"{failed.ended_by}: {failed.instance_id} went before it trained"


def _short_since(
    history: FleetHistory, lives: Sequence[InstanceLife], seen: FleetReading, now: datetime
) -> datetime | None:
    """Return the time since when fewer nodes than train live at the present place. None while enough do."""
    here = [life for life in lives if life.fleet == history.fleet_id]
    if sum(life.ended_at is None for life in here) >= (1 if history.nodes is None else history.nodes.at_least):
        return None
    made = history.made_at or history.created_at if seen.fleet is None else seen.fleet.created_at
    ends = [life.ended_at for life in here if life.ended_at is not None]
    return history.short_since or min(now, max([made or history.created_at, *ends]))


def _life_of(instance: Instance, *, fleet: str | None) -> InstanceLife:
    return InstanceLife(
        instance_id=instance.id,
        fleet=fleet,
        instance_type=instance.type,
        zone=instance.zone,
        spot=instance.spot,
        launched_at=instance.launched_at,
    )


def _heard(lives: Sequence[InstanceLife], record: FleetRecord, now: datetime) -> tuple[InstanceLife, ...]:
    """Record the time of each instance's first report, the loss of its connection, and its notice.

    The holder of the lease has an agent that works. It is not silent, however long it waits for a volume. So has each
    node that is connected with it.
    """
    holder = None if record.lease is None else record.lease.holder
    present = {holder, *(node.instance for node in record.nodes)}
    has_leader = record.lease is not None and record.lease.expires_at > now.timestamp()
    noticed = {each.instance: datetime.fromtimestamp(each.at, tz=UTC) for each in record.training.noticed}
    return tuple(
        with_changes(
            life,
            heard_at=life.heard_at or (now if life.instance_id in present else None),
            missing_since=_missing_since(life, record, now, present=life.instance_id in present, has_leader=has_leader),
            # EC2 announces to spot instances alone that it takes them.
            noticed_at=life.noticed_at or (noticed.get(life.instance_id) if life.spot else None),
        )
        for life in lives
    )


def _missing_since(
    life: InstanceLife, record: FleetRecord, now: datetime, *, present: bool, has_leader: bool
) -> datetime | None:
    """Return the time since when a node is missing. Only a leader knows of a node that it is."""
    if present or life.heard_at is None or not record.nodes or not has_leader:
        return None if present else life.missing_since
    return life.missing_since or now


def _with_training(
    lives: Sequence[InstanceLife], record: FleetRecord, now: datetime, *, together: bool
) -> tuple[InstanceLife, ...]:
    """Record the instances that train, which are the world, or the holder of the lease where it trains alone.

    Those alive at the end of the training have trained.
    """
    at = _reported_at(record, now)
    world = frozenset(record.world)
    if record.training.state == INPUT_ERROR and record.training.exit_code is None:
        return tuple(lives)  # No command has ended: none of them has come to train.
    if record.training.over:
        return tuple(
            with_changes(life, training_at=at)
            if life.training_at is None
            and life.launched_at <= at
            and (life.ended_at is None or life.ended_at >= at)
            and (not world or life.instance_id in world)
            else life
            for life in lives
        )
    if record.training.state != TRAINING or record.lease is None:
        return tuple(lives)
    trainers = world if together else {record.lease.holder}
    return tuple(
        with_changes(life, training_at=max(at, life.launched_at))
        if life.instance_id in trainers and life.training_at is None and at >= life.launched_at
        else life
        for life in lives
    )


def _reported_at(record: FleetRecord, now: datetime) -> datetime:
    """Return the time of the training's last report, as records keep it. For a finished training that is its end."""
    beat = record.training.heartbeat_at
    return in_utc_milliseconds(now if beat is None else min(now, datetime.fromtimestamp(beat, tz=UTC)))


def _recorded(
    lives: Sequence[InstanceLife], transitions: Sequence[Transition], *, over_since: datetime | None
) -> tuple[tuple[InstanceLife, ...], tuple[Transition, ...]]:
    """Record new facts. An instance that follows another one shows that the other is over."""
    entries = list(transitions)
    following = list(lives)

    def record(phase: JobPhase, at: datetime, life: InstanceLife, *, also: str = "") -> None:
        entries.append(Transition(phase=phase, at=_in_order(entries, at), message=f"{_where(life)}{also}"))

    def record_end(life: InstanceLife, at: datetime) -> None:
        if _gave_up(life):
            # Nothing was interrupted, and no notification says so: the fleet tries to launch an instance again.
            record(JobPhase.WAITING, at, life, also=", went before it trained")
        else:
            record(JobPhase.INTERRUPTED, at, life, also=_by_whom(life))

    for place, life in enumerate(following):
        if life.recorded is Recorded.NOTHING:
            for before in range(place):
                if following[before].recorded is not Recorded.ENDED:
                    record_end(following[before], following[before].worked_until or life.launched_at)
                    following[before] = with_changes(following[before], recorded=Recorded.ENDED)
            record(JobPhase.LOADING, life.launched_at, life)
            life = with_changes(life, recorded=Recorded.LAUNCHED)
        if life.recorded is Recorded.LAUNCHED and life.training_at is not None:
            record(JobPhase.TRAINING, life.training_at, life)
            life = with_changes(life, recorded=Recorded.TRAINING)
        if life.recorded is not Recorded.ENDED and life.ended_at is not None:
            if over_since is None or life.ended_at < over_since:
                record_end(life, life.worked_until or life.ended_at)
            life = with_changes(life, recorded=Recorded.ENDED)
        following[place] = life
    return tuple(following), tuple(entries)


def _where(life: InstanceLife) -> str:
    return f"{life.instance_id}, {life.instance_type} in {life.zone}"


def _by_whom(life: InstanceLife) -> str:
    return "" if _interrupted(life) or life.ended_by is None else f", ended by {life.ended_by}"


def _with_worlds(
    history: FleetHistory,
    lives: Sequence[InstanceLife],
    record: FleetRecord,
    *,
    over_since: datetime | None,
    now: datetime,
) -> tuple[tuple[InstanceLife, ...], tuple[Transition, ...]]:
    """Record new facts about nodes. They load once enough are there, and train in worlds. A larger world is a phase.

    Each lost node of a world is an interruption. The loss of a node that waited for one is none, and neither is the end
    of the nodes at a place that the attempt leaves.
    """
    entries = list(history.transitions)
    at_least = 1 if history.nodes is None else history.nodes.at_least
    here = [life for life in lives if life.fleet == history.fleet_id]
    there = sum(life.recorded in (Recorded.LAUNCHED, Recorded.TRAINING) for life in here)

    def enter(phase: JobPhase, at: datetime, message: str) -> None:
        entries.append(Transition(phase=phase, at=_in_order(entries, at), message=message))

    def load(at: datetime) -> None:
        if entries[-1].phase in WAITING_PHASES:
            enter(JobPhase.LOADING, at, _counted(there, here))

    def train(at: datetime, count: int) -> None:
        if entries[-1].phase is not JobPhase.TRAINING:
            load(at)
            enter(JobPhase.TRAINING, at, _counted(count, here))

    for at, what, life in _happened(lives):
        own = life.fleet == history.fleet_id
        there += own * (1 if what is Recorded.LAUNCHED else -1 if what is Recorded.ENDED else 0)
        goes_on = over_since is None or at < over_since
        if what is Recorded.LAUNCHED and own and there >= at_least:
            load(at)
        elif what is Recorded.TRAINING and goes_on and _has_grown(entries[-1], lives, record, at=at):
            enter(JobPhase.TRAINING, at, _counted(len(record.world), here))
        elif what is Recorded.TRAINING:
            train(at, sum(each.training_at is not None and (each.ended_at or at) >= at for each in here))
        elif what is Recorded.ENDED and goes_on and life.ended_by != PLACE_LEFT:
            if life.training_at is not None and life.training_at <= at:
                enter(JobPhase.INTERRUPTED, at, f"{_where(life)}{_by_whom(life)}")
                if own and there >= at_least:
                    load(at)
            elif entries[-1].phase not in WAITING_PHASES and there < at_least:
                enter(JobPhase.WAITING, at, f"{_where(life)}, went before it trained")
    live, at = {life.instance_id for life in here if _left_at(life) is None}, _reported_at(record, now)
    trains = record.training.state == TRAINING and is_a_world(record, at_least=at_least, live=live)
    if trains and over_since is None and at >= entries[-1].at:
        train(at, len(record.world))
    return tuple(with_changes(life, recorded=_last_fact(life)) for life in lives), tuple(entries)


def _has_grown(last: Transition, lives: Sequence[InstanceLife], record: FleetRecord, *, at: datetime) -> bool:
    """Return True if a training goes on with more nodes than were in it. A node that is cut off counts as one."""
    before = sum(
        life.training_at is not None and life.training_at < at and (_left_at(life) or at) >= at for life in lives
    )
    return last.phase is JobPhase.TRAINING and last.at < at and len(record.world) > before


def is_a_world(record: FleetRecord, *, at_least: int, live: Set[str]) -> bool:
    """Return True if the world of a record is one that its leader has formed, and all of its nodes are there.

    A leader that leaves writes the others of its world, for the next leader to wait for.

    Args:
        record: The fleet record.
        at_least: The fewest nodes that train.
        live: The instances that run.
    """
    leader = None if record.lease is None else record.lease.holder
    return len(record.world) >= at_least and record.world[0] == leader and live >= set(record.world)


def _happened(lives: Sequence[InstanceLife]) -> list[tuple[datetime, Recorded, InstanceLife]]:
    """Return the facts of nodes that are not recorded yet, in the order in which they happened."""
    order = list(Recorded)
    found = []
    for life in lives:
        times = {
            Recorded.LAUNCHED: life.launched_at,
            Recorded.TRAINING: life.training_at,
            Recorded.ENDED: _left_at(life),
        }
        new = [(at, what) for what, at in times.items() if order.index(what) > order.index(life.recorded)]
        found += [(at, what, life) for at, what in new if at is not None]
    return sorted(found, key=lambda fact: (fact[0], order.index(fact[1]), fact[2].instance_id))


def _left_at(life: InstanceLife) -> datetime | None:
    """Return the time at which a node left the others. After a notice EC2 takes it later."""
    if life.ended_at is None and life.noticed_at is not None:
        return max(life.launched_at, life.noticed_at)
    return life.worked_until


def _last_fact(life: InstanceLife) -> Recorded:
    if _left_at(life) is not None:
        return Recorded.ENDED
    return Recorded.LAUNCHED if life.training_at is None else Recorded.TRAINING


def _counted(nodes: int, lives: Sequence[InstanceLife]) -> str:
    kind = f"{lives[-1].instance_type} in {lives[-1].zone}" if lives else "of a place that was left"
    return f"{nodes} {'node' if nodes == 1 else 'nodes'}, {kind}"


def _in_order(entries: Sequence[Transition], at: datetime) -> datetime:
    """Return a time not before the last transition."""
    return max(at, entries[-1].at) if entries else at


def just_made(history: FleetHistory, *, now: datetime) -> bool:
    """Return True if the attempt's version of the launch template is so new that EC2 may not know it yet."""
    return history.made_at is not None and now - history.made_at < VERSION_KNOWN_AFTER


def may_launch(history: FleetHistory, seen: FleetReading, now: datetime) -> bool:
    """Return True if the fleet may launch instances. A fleet that EC2 does not show yet may."""
    if seen.fleet is None:
        return now - (history.made_at or history.created_at) < KNOWN_AFTER
    return seen.fleet.active


def _ending(history: FleetHistory, seen: FleetReading, record: FleetRecord, now: datetime) -> FleetEnding | None:
    if record.training.state == FINISHED:
        return finished_or_paused(record)
    if record.training.state == FAILED:
        return FleetEnding.SCRIPT_FAILED
    if record.training.state == INPUT_ERROR:
        return FleetEnding.INPUT_ERROR
    if record.stop_requested:
        return FleetEnding.STOPPED
    if trained_seconds(history, now=now) > history.max_run_seconds:
        return FleetEnding.MAX_RUN
    if history.max_wait_seconds is not None and (now - history.created_at).total_seconds() > history.max_wait_seconds:
        return FleetEnding.MAX_WAIT
    if futile_so_far(history) >= MAX_FUTILE_INSTANCES * history.at_once:
        return FleetEnding.FUTILE
    # The last: where an end could not be recorded, the fleet was deleted all the same.
    goes_on = history.fleet_id is None or may_launch(history, seen, now)
    return None if goes_on else FleetEnding.FLEET_GONE


def finished_or_paused(record: FleetRecord) -> FleetEnding:
    """Return the ending that a finished training means for its attempt."""
    return FleetEnding.FINISHED if record.training.paused_step is None else FleetEnding.PAUSED


def trained_seconds(history: FleetHistory, *, now: datetime) -> float:
    """Return the time that it trained, in wall-clock seconds. Nodes that train together train once."""
    if history.nodes is not None:
        return _trained_together(history, now=now).total_seconds()
    earlier = history.earlier_instances
    trained = time_trained(history.lives, now=now) + (timedelta(0) if earlier is None else earlier.trained)
    return trained.total_seconds()


def _trained_together(history: FleetHistory, *, now: datetime) -> timedelta:
    """Return the time in which worlds trained, and the time beyond PREPARES_WITHIN in which nodes prepared."""
    trained = history.earlier_phases.time.get(JobPhase.TRAINING, timedelta(0))
    for entry, after in zip(history.transitions, [*history.transitions[1:], None], strict=True):
        lasted = max(timedelta(0), (now if after is None else after.at) - entry.at)
        if entry.phase is JobPhase.TRAINING:
            trained += lasted
        elif entry.phase is JobPhase.LOADING:
            trained += max(timedelta(0), lasted - PREPARES_WITHIN)
    return trained


def time_trained(lives: Sequence[InstanceLife], *, now: datetime) -> timedelta:
    """Return the sum of the time that instances trained."""
    since = [(life, life.training_at or life.launched_at + PREPARES_WITHIN) for life in lives]
    return sum((max(timedelta(0), (life.worked_until or now) - began) for life, began in since), timedelta(0))


def time_worked(lives: Sequence[InstanceLife], *, until: datetime) -> timedelta:
    """Return for how long there were instances, all together.

    Args:
        lives: The instances.
        until: The assumed end of instances without a recorded end.
    """
    return sum(((life.worked_until or until) - life.launched_at for life in lives), timedelta(0))


def futile_so_far(history: FleetHistory) -> int:
    """Return how many instances of an attempt, since one last trained, went before they did."""
    earlier = history.earlier_instances
    before = 0 if earlier is None else earlier.futile
    return futile_instances(history.lives, before=before, at_once=history.at_once)


def futile_instances(lives: Sequence[InstanceLife], *, before: int = 0, at_once: int = 1) -> int:
    """Return how many instances since one last trained went before they did.

    Args:
        lives: The instances by their launch.
        before: The number of such instances before them.
        at_once: The most instances at a time.
    """
    trained = any(life.training_at is not None for life in lives if life.ended_at is not None or at_once > 1)
    return len(futile_lives(lives, at_once=at_once)) + (0 if trained else before)


def futile_lives(lives: Sequence[InstanceLife], *, at_once: int = 1) -> tuple[InstanceLife, ...]:
    """Return the instances that went before they trained, since one last trained. Oldest first.

    Instances that EC2 took back, or gave notice to, are left out. No run can prevent that, and it implies nothing about
    the next instance. Of nodes, those are left out that went with their place, and all that were launched while another
    one still trained.

    Args:
        lives: The instances by their launch.
        at_once: The most instances at a time.
    """
    ended = [life for life in lives if life.ended_at is not None]
    if at_once == 1:
        trained = max((place for place, life in enumerate(ended) if life.training_at is not None), default=-1)
        return tuple(life for life in ended[trained + 1 :] if not _interrupted(life))
    worked = [life.worked_until for life in lives if life.training_at is not None]
    return tuple(
        life
        for life in ended
        if life.training_at is None
        and not _interrupted(life)
        and life.ended_by != PLACE_LEFT
        and all(until is not None and life.launched_at >= until for until in worked)
    )


def _interrupted(life: InstanceLife) -> bool:
    """Return True if EC2 took an instance back, or would have."""
    return life.taken or life.noticed_at is not None


def _gave_up(life: InstanceLife) -> bool:
    """Return True if an instance was shut down before it trained, by itself or by Spotkeep."""
    return life.training_at is None and life.noticed_at is None and (life.ended_by or "").startswith(_NOT_BY_EC2)


def last_words(console: str) -> str | None:
    """Return the last message in which user data gave a reason to give up. None when there is none.

    Args:
        console: The console output of the instance. Spotkeep's lines begin with `spotkeep: `.
    """
    said = [line.partition(_OUR_LINES)[2].strip() for line in console.splitlines() if _OUR_LINES in line]
    return next((words for words in reversed(said) if words), None)
