"""What became of one attempt's fleet: its instances, one after the other, and how it comes to an end. Pure.

EC2 forgets: an instance after an hour, a fleet's events after 48 hours. So each answer of EC2 is absorbed into a
history that the run table keeps. It only grows: what was recorded of an instance once is not recorded differently
later, however late or out of order EC2's answers come.

Sources:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeFleetHistory.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from spotkeep_fleet.record import FAILED, FINISHED, TRAINING, FleetRecord
from spotkeep_jobs.backends.ec2.facts import FleetEventKind, FleetReading, Instance
from spotkeep_jobs.backends.job_view import JobPhase, JobView, PhaseChange
from spotkeep_jobs.record.record import Capacity, Charges, Record, UtcTime
from spotkeep_jobs.record.states import EndReason

LEAVING_TAKES: Final = timedelta(minutes=5)
"""Two minutes to save, the copy of the last checkpoint, unmount and detach; who takes longer is terminated."""

MAX_FUTILE_INSTANCES: Final = 5
"""So many instances since one last trained that went before they did, not counting those that EC2 took back or that
left on its notice: what follows them would go too."""

BOOT_TAKES: Final = timedelta(minutes=20)
"""How long an instance may run before its agent takes the run's lease. A virtual one needs one to three minutes, bare
metal five to fifteen; one that is silent for longer has no agent, and would bill for as long as its fleet is there."""

PREPARES_WITHIN: Final = timedelta(hours=6)
"""How long an instance may work on volume and data before it counts as training: max_run holds, whatever a record
says or does not say. The first snapshot of a large volume takes hours."""

VERSION_KNOWN_AFTER: Final = timedelta(minutes=1)
"""A version of a launch template that is NotFound for longer after it was made is gone."""

KNOWN_AFTER: Final = timedelta(minutes=10)
"""EC2 shows a fleet or an instance after a while ("Eventual consistency", EC2 API guide), and until then not in every
answer; what it does not show by then is gone."""

APPEARS_AFTER: Final = timedelta(minutes=2)
"""How long after the end of its fleet an instance may still appear."""

_ENDED_FLEET_STATES: Final = frozenset({"deleted", "failed"})
_INTERRUPTED_BY_EC2: Final = "Server.Spot"
_NOT_BY_EC2: Final = "Client."
_SHUT_DOWN: Final = re.compile(rf"InitiatedShutdown$|^{_INTERRUPTED_BY_EC2}")
"""Codes of an end that says nothing of why the next instance would not come: from inside, by a call, by EC2."""
_OUR_LINES: Final = "spotkeep: "
_LONGEST_REASON: Final = 1024
"""Characters, as of a training job's FailureReason."""


class FleetEnding(StrEnum):
    """Why an attempt on a fleet comes to an end."""

    # Set by the instance.
    FINISHED = "FINISHED"
    SCRIPT_FAILED = "SCRIPT_FAILED"

    # Set by a person.
    STOPPED = "STOPPED"
    FLEET_GONE = "FLEET_GONE"
    """A person deleted the fleet in EC2."""

    # Set by the controller.
    MAX_RUN = "MAX_RUN"
    MAX_WAIT = "MAX_WAIT"
    FUTILE = "FUTILE"
    """One instance after the other left before it trained."""


class Recorded(StrEnum):
    """How much of an instance the transitions hold."""

    NOTHING = "NOTHING"
    LAUNCHED = "LAUNCHED"
    TRAINING = "TRAINING"
    ENDED = "ENDED"


class InstanceLife(Record):
    """One instance of the fleet.

    Attributes are as EC2 says; `heard_at`, `training_at` and `noticed_at` as the fleet record says.
    """

    instance_id: str
    instance_type: str
    zone: str
    spot: bool
    launched_at: UtcTime
    heard_at: UtcTime | None = None
    """When its agent was first seen to hold the run's lease; None while nothing was heard of it."""
    training_at: UtcTime | None = None
    ended_at: UtcTime | None = None
    ended_by: str | None = None
    """The code of EC2's reason."""
    noticed_at: UtcTime | None = None
    """When its training had ended on a notice of EC2's; of one that then powered itself off, EC2 does not say so."""
    recorded: Recorded = Recorded.NOTHING

    @property
    def taken(self) -> bool:
        """Whether EC2 took it back."""
        return (self.ended_by or "").startswith(_INTERRUPTED_BY_EC2)

    @property
    def worked_until(self) -> datetime | None:
        """When its work ended: after a notice it may have waited for EC2; None while it goes on."""
        return self.ended_at and max(self.launched_at, min(self.noticed_at or self.ended_at, self.ended_at))


class Transition(Record):
    """A phase that the attempt was in, or is in."""

    phase: JobPhase
    at: UtcTime
    message: str = ""


class FleetHistory(Record):
    """One attempt on a fleet, as the run table keeps it.

    `version` counts the writes; every write names the version it was decided on.
    """

    run: str
    attempt: int
    job_name: str
    marks: dict[str, str]
    """What tells this launch from another one of the same name."""
    capacity: Capacity
    created_at: UtcTime
    max_run_seconds: int
    max_wait_seconds: int | None = None
    """For waiting and running; None on demand."""
    fleet_id: str | None = None
    template_id: str
    template_version: str | None = None
    """The version of the launch template that was made for this attempt."""
    output_uri: str | None = None
    """The S3 prefix that its instances send outputs to; None where they send none."""
    made_at: UtcTime | None = None
    """When EC2 last made something for this attempt: the version, then the fleet."""
    lives: tuple[InstanceLife, ...] = ()
    transitions: tuple[Transition, ...] = ()
    ending: FleetEnding | None = None
    ending_at: UtcTime | None = None
    problem: str | None = None
    """What the instances said last of why they do not train."""
    waits_because: str | None = None
    """What EC2 says of why it launches no instance; None while there is one."""
    over_at: UtcTime | None = None
    """When nothing was left that runs or bills by the hour."""
    charges: Charges | None = None
    """What it cost, once it is over."""
    version: int = 0

    @property
    def live(self) -> tuple[InstanceLife, ...]:
        """The instances that have not ended."""
        return tuple(life for life in self.lives if life.ended_at is None)


class Step(StrEnum):
    """Something that is to be done about a fleet. Each may be done twice."""

    ASK_TO_STOP = "ASK_TO_STOP"
    """Write into the fleet record that the training shall save and leave."""
    DELETE_FLEET = "DELETE_FLEET"
    """So that nothing is launched any more. Its instance stays: it saves first."""
    TERMINATE = "TERMINATE"
    """End the instances that hold no lease any more, or hold it for too long, or never said a word."""
    CLOSE = "CLOSE"
    """Nothing runs any more: mark the record as ended, count the cost, delete the template's version."""


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
    output_uri: str | None = None,
) -> FleetHistory:
    """The history of an attempt whose fleet is about to be created."""
    return FleetHistory(
        run=run,
        attempt=attempt,
        job_name=job_name,
        marks=marks,
        capacity=capacity,
        created_at=now,
        max_run_seconds=max_run_seconds,
        max_wait_seconds=max_wait_seconds,
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
    """Takes an answer of EC2 into account.

    Args:
        history: What is known.
        seen: What EC2 says.
        record: What the instances say; read after EC2 was asked. None when it is missing or unreadable.
        now: The time.
        unreadable: What is wrong with the record, where it is missing or unreadable.
    """
    if history.over_at is not None:
        return history
    if record is None:
        # As if no instance had said anything: what follows from EC2 alone is decided all the same.
        record = FleetRecord(run=history.run, problem=unreadable)
    lives = _with_training(_heard(_merged(history.lives, seen, now), record, now), record, now)
    ending = history.ending or _ending(history.model_copy(update={"lives": lives}), seen, record, now)
    if ending in _LEAVES and record.training.state == FINISHED:
        ending = FleetEnding.FINISHED  # It was done before it heard that it should stop.
    over_since = None
    if record.training.over:
        over_since = _reported_at(record, now)
    elif ending is not None:
        over_since = history.ending_at or now
    lives, transitions = _recorded(lives, history.transitions, over_since=over_since)
    return history.model_copy(
        update={
            "lives": lives,
            "transitions": transitions,
            "ending": ending,
            "ending_at": history.ending_at or (now if ending else None),
            "problem": (record.problem or history.problem or "")[:_LONGEST_REASON] or None,
            "waits_because": (unreadable or "")[:_LONGEST_REASON] or _waits_because(history, lives, seen),
        }
    )


_LEAVES: Final = frozenset(
    {FleetEnding.STOPPED, FleetEnding.FLEET_GONE, FleetEnding.MAX_RUN, FleetEnding.MAX_WAIT, FleetEnding.FUTILE}
)


def steps(history: FleetHistory, *, seen: FleetReading, record: FleetRecord | None, now: datetime) -> tuple[Step, ...]:
    """What is to be done now, in this order. Nothing for an attempt that goes on well, or is over.

    Args:
        history: With the answer already absorbed.
        seen: What EC2 says.
        record: What the instances say; None when it is missing or unreadable.
        now: The time.
    """
    if history.over_at is not None:
        return ()
    if history.ending is None:
        return (Step.TERMINATE,) if to_terminate(history, record=record, now=now) else ()
    todo: list[Step] = []
    if history.ending in _LEAVES and record is not None and not record.stop_requested:
        todo.append(Step.ASK_TO_STOP)
    if _may_launch(history, seen, now):
        todo.append(Step.DELETE_FLEET)
    if to_terminate(history, record=record, now=now):
        todo.append(Step.TERMINATE)
    if not history.live and _launches_no_more(history, seen, now):
        todo.append(Step.CLOSE)
    return tuple(todo)


def to_terminate(history: FleetHistory, *, record: FleetRecord | None, now: datetime) -> tuple[str, ...]:
    """The live instances that have nothing left to save, had their time, or never said a word. Their ids.

    Args:
        history: With the answer already absorbed.
        record: What the instances say; None when it is missing or unreadable: then each may have something to save.
        now: The time.
    """
    holder = None
    if record is not None and record.lease is not None and record.lease.expires_at > now.timestamp():
        holder = record.lease.holder
    if history.ending_at is None:
        # While another one holds the lease, an instance waits for it and cannot say anything.
        return () if holder is not None else tuple(life.instance_id for life in history.live if _silent(life, now))
    late = now - history.ending_at >= LEAVING_TAKES
    saves = (lambda _: True) if record is None else (lambda instance: instance == holder)
    return tuple(life.instance_id for life in history.live if late or not saves(life.instance_id))


def closed(history: FleetHistory, *, charges: Charges | None, now: datetime) -> FleetHistory:
    """The history of an attempt of which nothing runs any more."""
    ended = max((life.ended_at for life in history.lives if life.ended_at), default=history.ending_at) or now
    at = _in_order(history.transitions, ended)
    last = Transition(phase=JobPhase.ENDED, at=at)
    return history.model_copy(update={"over_at": at, "transitions": (*history.transitions, last), "charges": charges})


def as_job_view(history: FleetHistory, record: FleetRecord | None) -> JobView:
    """Returns an attempt on a fleet in the terms that everything else works with.

    Args:
        history: What is known.
        record: What the instances say; None when it is gone.
    """
    outcome = _outcome(history, record)
    over = history.over_at is not None
    last = history.lives[-1] if history.lives else None
    until = history.over_at
    used = (
        sum(((life.worked_until or until) - life.launched_at).total_seconds() for life in history.lives)
        if until
        else None
    )
    phase = history.transitions[-1].phase
    if history.ending is not None and not over:
        phase = JobPhase.STOPPING
    volume = record.volume.id if record is not None and record.volume is not None else None
    return JobView(
        name=history.job_name,
        arn=history.fleet_id or "",
        phase=phase,
        end_reason=_END_REASONS[outcome] if over else None,
        created_at=history.created_at,
        # Only EC2's description says what happened to it.
        last_modified_at=None,
        training_started_at=next((life.launched_at for life in history.lives), None),
        training_ended_at=history.over_at,
        training_seconds=None if used is None or not history.lives else round(used),
        billable_seconds=None if history.charges is None else history.charges.billable_seconds,
        charges=history.charges,
        failure_reason=_failure_reason(history, outcome, record) if over else None,
        waits_because=None if over else history.waits_because,
        instance_type=None if last is None else last.instance_type,
        model_uri=None if record is None else _own_output(history, record),
        transitions=_phase_changes(history.transitions),
        environment=history.marks,
        volume_id=volume,
        volume_is_for_a_person=record is not None and volume in record.kept,
    )


def _phase_changes(transitions: Sequence[Transition]) -> tuple[PhaseChange, ...]:
    return tuple(
        PhaseChange(
            phase=entry.phase,
            started_at=entry.at,
            ended_at=None if after is None else after.at,
            text=_TEXTS.get(entry.phase, ""),
            detail=entry.message,
        )
        for entry, after in zip(transitions, [*transitions[1:], None], strict=True)
    )


def _own_output(history: FleetHistory, record: FleetRecord) -> str | None:
    """Where the model is, as far as it is where the attempt's outputs go: a record may name any place there is."""
    prefix, said = history.output_uri, record.training.output_uri
    return said if said is not None and prefix is not None and said.startswith(prefix) and ".." not in said else None


def _merged(lives: Sequence[InstanceLife], seen: FleetReading, now: datetime) -> tuple[InstanceLife, ...]:
    known = {life.instance_id: life for life in lives}
    ended_at = {event.instance_id: event.at for event in seen.events if event.says_ended}
    for instance in seen.instances:
        life = known.get(instance.id) or _life_of(instance)
        if instance.ended and life.ended_at is None:
            at = ended_at.get(instance.id) or instance.ended_at or now
            life = life.model_copy(update={"ended_at": max(at, life.launched_at), "ended_by": instance.reason})
        known[instance.id] = life
    described = {instance.id for instance in seen.instances}
    for life in lives:
        if life.ended_at is None and life.instance_id not in described:
            said = ended_at.get(life.instance_id)
            if said is None and now - life.launched_at < KNOWN_AFTER:
                continue
            # EC2 forgets an instance an hour after its end.
            known[life.instance_id] = life.model_copy(update={"ended_at": max(said or now, life.launched_at)})
    return tuple(sorted(known.values(), key=lambda life: (life.launched_at, life.instance_id)))


def _waits_because(history: FleetHistory, lives: Sequence[InstanceLife], seen: FleetReading) -> str | None:
    """Why EC2 launches nothing: no capacity, a quota, a price, a key, a specification that it does not take."""
    if any(life.ended_at is None for life in lives):
        return None
    since = max((life.launched_at for life in lives), default=history.created_at)
    kinds = (FleetEventKind.ERROR, FleetEventKind.INFORMATION)
    reasons = [event for event in seen.events if event.kind in kinds and event.at >= since]
    if reasons:
        last = max(reasons, key=lambda event: (event.launches_nothing, event.at))
        return ": ".join(filter(None, (last.sub_type, last.description)))[:_LONGEST_REASON]
    if len(lives) == len(history.lives) and history.waits_because:
        return history.waits_because  # EC2 keeps events for 48 hours; what it said before still holds.
    failed = lives[-1] if lives and lives[-1].training_at is None else None
    if failed is None or not failed.ended_by or _SHUT_DOWN.search(failed.ended_by):
        return None
    return f"{failed.ended_by}: {failed.instance_id} went before it trained"


def _life_of(instance: Instance) -> InstanceLife:
    return InstanceLife(
        instance_id=instance.id,
        instance_type=instance.type,
        zone=instance.zone,
        spot=instance.spot,
        launched_at=instance.launched_at,
    )


def _heard(lives: Sequence[InstanceLife], record: FleetRecord, now: datetime) -> tuple[InstanceLife, ...]:
    """Who holds the lease has an agent that works; its instance is not silent, however long it waits for a volume."""
    holder = None if record.lease is None else record.lease.holder
    noticed = {each.instance: datetime.fromtimestamp(each.at, tz=UTC) for each in record.training.noticed}
    return tuple(
        life.model_copy(
            update={
                "heard_at": life.heard_at or (now if life.instance_id == holder else None),
                # EC2 announces to spot instances alone that it takes them.
                "noticed_at": life.noticed_at or (noticed.get(life.instance_id) if life.spot else None),
            }
        )
        for life in lives
    )


def _silent(life: InstanceLife, now: datetime) -> bool:
    return life.heard_at is None and life.training_at is None and now - life.launched_at >= BOOT_TAKES


def _with_training(lives: Sequence[InstanceLife], record: FleetRecord, now: datetime) -> tuple[InstanceLife, ...]:
    """Who holds the lease of a run that trains is who trains; who was there when it was done has trained."""
    at = _reported_at(record, now)
    if record.training.over:
        return tuple(
            life.model_copy(update={"training_at": at})
            if life.training_at is None and life.launched_at <= at and (life.ended_at is None or life.ended_at >= at)
            else life
            for life in lives
        )
    if record.training.state != TRAINING or record.lease is None:
        return tuple(lives)
    return tuple(
        life.model_copy(update={"training_at": max(at, life.launched_at)})
        if life.instance_id == record.lease.holder and life.training_at is None and at >= life.launched_at
        else life
        for life in lives
    )


def _reported_at(record: FleetRecord, now: datetime) -> datetime:
    """When the training reported last: of one that is over, its end."""
    beat = record.training.heartbeat_at
    return now if beat is None else min(now, datetime.fromtimestamp(beat, tz=UTC))


def _recorded(
    lives: Sequence[InstanceLife], transitions: Sequence[Transition], *, over_since: datetime | None
) -> tuple[tuple[InstanceLife, ...], tuple[Transition, ...]]:
    """Records what is not recorded yet. An instance that follows another one shows that the other is over."""
    entries = list(transitions)
    following = list(lives)

    def record(phase: JobPhase, at: datetime, life: InstanceLife, *, also: str = "") -> None:
        where = f"{life.instance_id}, {life.instance_type} in {life.zone}{also}"
        entries.append(Transition(phase=phase, at=_in_order(entries, at), message=where))

    def record_end(life: InstanceLife, at: datetime) -> None:
        if _gave_up(life):
            # Nothing was interrupted, and no notification says so: the fleet looks for an instance again.
            record(JobPhase.WAITING, at, life, also=", went before it trained")
        else:
            by_whom = "" if _interrupted(life) or life.ended_by is None else f", ended by {life.ended_by}"
            record(JobPhase.INTERRUPTED, at, life, also=by_whom)

    for place, life in enumerate(following):
        if life.recorded is Recorded.NOTHING:
            for before in range(place):
                if following[before].recorded is not Recorded.ENDED:
                    record_end(following[before], following[before].worked_until or life.launched_at)
                    following[before] = following[before].model_copy(update={"recorded": Recorded.ENDED})
            record(JobPhase.LOADING, life.launched_at, life)
            life = life.model_copy(update={"recorded": Recorded.LAUNCHED})
        if life.recorded is Recorded.LAUNCHED and life.training_at is not None:
            record(JobPhase.TRAINING, life.training_at, life)
            life = life.model_copy(update={"recorded": Recorded.TRAINING})
        if life.recorded is not Recorded.ENDED and life.ended_at is not None:
            if over_since is None or life.ended_at < over_since:
                record_end(life, life.worked_until or life.ended_at)
            life = life.model_copy(update={"recorded": Recorded.ENDED})
        following[place] = life
    return tuple(following), tuple(entries)


def _in_order(entries: Sequence[Transition], at: datetime) -> datetime:
    """Returns a time not before the last transition."""
    return max(at, entries[-1].at) if entries else at


def just_made(history: FleetHistory, *, now: datetime) -> bool:
    """Whether the attempt's version of the launch template is so new that EC2 may not know it yet."""
    return history.made_at is not None and now - history.made_at < VERSION_KNOWN_AFTER


def _may_launch(history: FleetHistory, seen: FleetReading, now: datetime) -> bool:
    """Whether the fleet may launch instances. One that EC2 does not show yet may."""
    if seen.fleet is None:
        return now - (history.made_at or history.created_at) < KNOWN_AFTER
    return seen.fleet.active


def _launches_no_more(history: FleetHistory, seen: FleetReading, now: datetime) -> bool:
    """Whether no instance can appear any more that was launched just before the fleet was deleted."""
    if _may_launch(history, seen, now):
        return False
    deleted = seen.fleet is None or seen.fleet.state in _ENDED_FLEET_STATES
    return deleted or now - (history.ending_at or now) >= APPEARS_AFTER


def _ending(history: FleetHistory, seen: FleetReading, record: FleetRecord, now: datetime) -> FleetEnding | None:
    if record.training.state == FINISHED:
        return FleetEnding.FINISHED
    if record.training.state == FAILED:
        return FleetEnding.SCRIPT_FAILED
    if record.stop_requested:
        return FleetEnding.STOPPED
    if not _may_launch(history, seen, now):
        return FleetEnding.FLEET_GONE
    if trained_seconds(history, now=now) > history.max_run_seconds:
        return FleetEnding.MAX_RUN
    if history.max_wait_seconds is not None and (now - history.created_at).total_seconds() > history.max_wait_seconds:
        return FleetEnding.MAX_WAIT
    return FleetEnding.FUTILE if len(futile_lives(history.lives)) >= MAX_FUTILE_INSTANCES else None


def trained_seconds(history: FleetHistory, *, now: datetime) -> float:
    """How long its instances trained, in wall-clock seconds."""
    since = [(life, life.training_at or life.launched_at + PREPARES_WITHIN) for life in history.lives]
    return sum(max(0.0, ((life.worked_until or now) - began).total_seconds()) for life, began in since)


def futile_lives(lives: Sequence[InstanceLife]) -> tuple[InstanceLife, ...]:
    """The instances since one last trained that went before they did, oldest first.

    Those that EC2 took back, or gave notice to, are left out: no run can do anything about them, and they say nothing
    of what comes next.
    """
    ended = [life for life in lives if life.ended_at is not None]
    trained = max((place for place, life in enumerate(ended) if life.training_at is not None), default=-1)
    return tuple(life for life in ended[trained + 1 :] if not _interrupted(life))


def _interrupted(life: InstanceLife) -> bool:
    """Whether EC2 took an instance back, or would have."""
    return life.taken or life.noticed_at is not None


def _gave_up(life: InstanceLife) -> bool:
    """Whether an instance went of its own accord, or by ours, before it trained."""
    return life.training_at is None and life.noticed_at is None and (life.ended_by or "").startswith(_NOT_BY_EC2)


def last_words(console: str) -> str | None:
    """What user data said last of why they gave up; None when they said nothing.

    Args:
        console: What the instance printed; lines of ours begin with `spotkeep: `.
    """
    said = [line.partition(_OUR_LINES)[2].strip() for line in console.splitlines() if _OUR_LINES in line]
    return next((words for words in reversed(said) if words), None)


def _outcome(history: FleetHistory, record: FleetRecord | None) -> FleetEnding:
    if record is not None and record.training.state == FINISHED:
        return FleetEnding.FINISHED
    return history.ending or FleetEnding.FLEET_GONE


def _failure_reason(history: FleetHistory, outcome: FleetEnding, record: FleetRecord | None) -> str | None:
    """In SageMaker's form: the class of the failure comes first."""
    if outcome is FleetEnding.SCRIPT_FAILED:
        training = record.training if record is not None else None
        code = "unknown" if training is None or training.exit_code is None else training.exit_code
        said = f": {training.failure}" if training is not None and training.failure else ""
        return f"AlgorithmError: the command ended with exit code {code}{said}"[:_LONGEST_REASON]
    if outcome is FleetEnding.FUTILE:
        return _why_futile(history)[:_LONGEST_REASON]
    if outcome is FleetEnding.FLEET_GONE:
        return "The fleet was deleted in EC2, not by Spotkeep"
    if outcome is FleetEnding.MAX_WAIT:
        return history.waits_because or history.problem
    return None


def _why_futile(history: FleetHistory) -> str:
    """Who ended the last one and what it said tell what to look at; the runbook lists what is usually behind it."""
    futile = futile_lives(history.lives)
    last = futile[-1] if futile else None
    text = f"ClientError: {len(futile)} instances, one after the other, went before they trained"
    if last is not None:
        text += f". The last one: {last.instance_id}, ended by {last.ended_by or 'an unknown cause'}"
    if history.problem:
        text += f"; it said: {history.problem}"
    return f"{text}. What to do: docs/runbook.md, 'Instances come and go'"


_END_REASONS: Final = {
    FleetEnding.FINISHED: EndReason.COMPLETED,
    FleetEnding.SCRIPT_FAILED: EndReason.SCRIPT_FAILED,
    FleetEnding.FUTILE: EndReason.INPUT_ERROR,
    FleetEnding.STOPPED: EndReason.STOPPED_BY_USER,
    FleetEnding.FLEET_GONE: EndReason.STOPPED_BY_USER,
    FleetEnding.MAX_RUN: EndReason.MAX_RUNTIME_EXCEEDED,
    FleetEnding.MAX_WAIT: EndReason.MAX_WAIT_EXCEEDED,
}
_TEXTS: Final = {
    JobPhase.WAITING: "Waits for capacity and starts",
    JobPhase.LOADING: "Has capacity, downloads its data",
    JobPhase.TRAINING: "Trains",
    JobPhase.INTERRUPTED: "Lost its capacity, waits for new",
}
