"""An attempt on a fleet as a `JobView`, in the terms of every job. Pure.

Old entries of a fleet's history are added up, so that it never outgrows its item in the run table. A fleet launches
instances for as long as its run lives, and each leaves an entry and three phases. The newest are kept as they are. The
older ones become the sums that a bill, a limit or the next decision needs. The sums are exact. A folded history gives
the same bill as an unfolded one (I8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from spotkeep_fleet.record import FINISHED, FleetRecord
from spotkeep_jobs.backends.backend import ON_INSTANCES_PHASES, JobPhase, JobView, PhaseChange, with_phases
from spotkeep_jobs.backends.ec2.charges import billed
from spotkeep_jobs.backends.ec2.facts import SpotPrice
from spotkeep_jobs.backends.ec2.history import (
    KNOWN_AFTER,
    LONGEST_REASON,
    EarlierInstances,
    FleetEnding,
    FleetHistory,
    InstanceLife,
    Recorded,
    Transition,
    finished_or_paused,
    futile_instances,
    futile_lives,
    futile_so_far,
    is_a_world,
    time_trained,
    time_worked,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Nodes, Volume
from spotkeep_jobs.record.states import EndReason


def as_job_view(history: FleetHistory, record: FleetRecord | None) -> JobView:
    """Return an attempt on a fleet in the terms that everything else works with.

    Args:
        history: The attempt's history.
        record: The fleet record, which the instances write. None when it is gone.
    """
    outcome = _outcome(history, record)
    over = history.over_at is not None
    last = history.lives[-1] if history.lives else None
    until, earlier = history.over_at, history.earlier_instances
    used, together = None, None
    if until is not None and history.lives and history.nodes is None:
        used = time_worked(history.lives, until=until) + (timedelta(0) if earlier is None else earlier.worked)
    elif until is not None and history.lives:
        phases = phase_changes(history.transitions)
        lasted = with_phases(history.earlier_phases, phases, until=until).time
        used = sum((lasted.get(phase, timedelta(0)) for phase in ON_INSTANCES_PHASES), timedelta(0))
        together = time_worked_together(history.lives, phases, until=until) + history.worked_before
    phase = history.transitions[-1].phase
    if history.ending is not None and not over:
        phase = JobPhase.STOPPING
    return JobView(
        name=history.job_name,
        job_id=history.job_id,
        phase=phase,
        end_reason=_END_REASONS[outcome] if over else None,
        created_at=history.created_at,
        # Only EC2's description says what happened to it.
        last_modified_at=None,
        training_started_at=_first_launched_at(history),
        training_ended_at=history.over_at,
        training_seconds=None if used is None else round(used.total_seconds()),
        billable_seconds=None if history.charges is None else history.charges.billable_seconds,
        charges=history.charges,
        failure_reason=_failure_reason(history, outcome, record) if over else None,
        waits_because=None if over else history.waits_because,
        instance_type=None if last is None else last.instance_type,
        instance_count=history.at_once,
        instance_seconds=None if together is None else together.total_seconds(),
        nodes=_nodes(history, record),
        model_uri=None if record is None else _own_output(history, record),
        transitions=phase_changes(
            history.transitions, texts=_TEXTS if history.nodes is None else {**_TEXTS, **_TEXTS_OF_NODES}
        ),
        earlier_phases=history.earlier_phases,
        environment=history.marks,
        volume=_volume(record),
    )


def _nodes(history: FleetHistory, record: FleetRecord | None) -> Nodes | None:
    if history.nodes is None or record is None or not record.nodes:
        return None
    # A leader that is gone could not write which nodes went with it.
    live = {life.instance_id for life in history.live}
    trains = is_a_world(record, at_least=history.nodes.at_least, live=live)
    in_world = len(record.world) if trains else 0
    return Nodes(connected=sum(node.instance in live for node in record.nodes), in_world=in_world)


def time_worked_together(lives: Sequence[InstanceLife], phases: Sequence[PhaseChange], *, until: datetime) -> timedelta:
    """Return for how long nodes prepared or trained, all together.

    A node that waits for the others, or for its first world, does not work. An uninterrupted run would not pay for
    that.

    Args:
        lives: The nodes.
        phases: The phases of the attempt that count.
        until: The assumed end of nodes and phases without an end.
    """
    worked = timedelta(0)
    for phase in phases:
        if phase.phase not in ON_INSTANCES_PHASES:
            continue
        for life in lives:
            since = life.launched_at if phase.phase is JobPhase.LOADING else life.training_at
            if since is not None:
                began, ended = max(phase.started_at, since), min(phase.ended_at or until, life.worked_until or until)
                worked += max(timedelta(0), ended - began)
    return worked


def _volume(record: FleetRecord | None) -> Volume | None:
    if record is None or record.volume is None:
        return None
    return Volume(id=record.volume.id, is_for_a_person=record.volume.id in record.kept)


def _first_launched_at(history: FleetHistory) -> datetime | None:
    if history.earlier_instances is not None:
        return history.earlier_instances.first_launched_at
    return next((life.launched_at for life in history.lives), None)


def phase_changes(
    transitions: Sequence[Transition], *, texts: Mapping[JobPhase, str] | None = None
) -> tuple[PhaseChange, ...]:
    """Return the phases that a history lists, in the terms that everything else works with.

    Args:
        transitions: The phases.
        texts: The line in the timeline of each phase. None for phases that are only counted.
    """

    def text_of(entry: Transition, before: Transition | None) -> str:
        grew = texts and entry.phase is JobPhase.TRAINING and before is not None and before.phase is JobPhase.TRAINING
        return _MORE_NODES if grew else (texts or {}).get(entry.phase, "")

    return tuple(
        PhaseChange(
            phase=entry.phase,
            started_at=entry.at,
            ended_at=None if after is None else after.at,
            text=text_of(entry, before),
            detail=entry.message,
        )
        for before, entry, after in zip([None, *transitions[:-1]], transitions, [*transitions[1:], None], strict=True)
    )


def _own_output(history: FleetHistory, record: FleetRecord) -> str | None:
    """Return the model's address if it lies below the attempt's outputs. A fleet record may name any address."""
    prefix, said = history.output_uri, record.training.output_uri
    return said if said is not None and prefix is not None and said.startswith(prefix) and ".." not in said else None


def _outcome(history: FleetHistory, record: FleetRecord | None) -> FleetEnding:
    if record is not None and record.training.state == FINISHED:
        return finished_or_paused(record)
    return history.ending or FleetEnding.FLEET_GONE


def _failure_reason(history: FleetHistory, outcome: FleetEnding, record: FleetRecord | None) -> str | None:
    """Return the reason of an attempt's failure in SageMaker's form, with the class of the failure first."""
    if outcome is FleetEnding.SCRIPT_FAILED:
        training = record.training if record is not None else None
        code = "unknown" if training is None or training.exit_code is None else training.exit_code
        said = f": {training.failure}" if training is not None and training.failure else ""
        return f"AlgorithmError: the command ended with exit code {code}{said}"[:LONGEST_REASON]
    if outcome is FleetEnding.INPUT_ERROR:
        why = record.training.failure if record is not None else None
        return f"ClientError: {why or history.problem or 'the reason is not known'}"[:LONGEST_REASON]
    if outcome is FleetEnding.FUTILE:
        return _why_futile(history)[:LONGEST_REASON]
    if outcome is FleetEnding.FLEET_GONE:
        return "The fleet was deleted in EC2, not by Spotkeep"
    if outcome is FleetEnding.MAX_WAIT:
        return history.waits_because or history.problem
    return None


def _why_futile(history: FleetHistory) -> str:
    """Name the cause that ended the last instance, and its last message. The runbook lists the usual reasons."""
    futile = futile_lives(history.lives, at_once=history.at_once)
    last = futile[-1] if futile else None
    text = f"ClientError: {futile_so_far(history)} instances, one after the other, went before they trained"
    if last is not None:
        text += f". The last one: {last.instance_id}, ended by {last.ended_by or 'an unknown cause'}"
    if history.problem:
        text += f"; it said: {history.problem}"
    return f"{text}. What to do: spotkeep help runbook instances come and go"


_END_REASONS: Final = {
    FleetEnding.FINISHED: EndReason.COMPLETED,
    FleetEnding.PAUSED: EndReason.PAUSED,
    FleetEnding.SCRIPT_FAILED: EndReason.SCRIPT_FAILED,
    FleetEnding.INPUT_ERROR: EndReason.INPUT_ERROR,
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
_TEXTS_OF_NODES: Final = {
    JobPhase.LOADING: "Has enough nodes, which bring their data",
    JobPhase.INTERRUPTED: "Lost a node",
}
_MORE_NODES: Final = "Trains with more nodes"
"""The line of a training that follows a training."""


KEPT_INSTANCES: Final = 50
"""The number of the newest instances that stay listed."""
KEPT_PHASES: Final = 3 * KEPT_INSTANCES
"""The number of phases that stay listed. An instance loads, trains, and is lost."""
MOST_INSTANCES: Final = 120
"""The most instances that are ever listed, even where EC2 did not give a price.

The bill then says that it is not known."""


def to_fold(history: FleetHistory, *, now: datetime) -> tuple[InstanceLife, ...]:
    """Return the instances that need not be listed any more, oldest first.

    Args:
        history: The history after EC2's newest answer.
        now: The time.
    """
    spare = history.lives[:-KEPT_INSTANCES]
    at_once = len(history.lives) > MOST_INSTANCES
    return tuple(
        life
        for life in spare
        if life.recorded is Recorded.ENDED and life.ended_at is not None and (at_once or _is_settled(life, now))
    )


def must_fold(history: FleetHistory) -> bool:
    """Return True if a history lists more instances than it may, even if prices of them are unknown."""
    return len(history.lives) > MOST_INSTANCES


def _is_settled(life: InstanceLife, now: datetime) -> bool:
    """Return True if EC2's answers cannot change the record of an instance any more, in its end or its existence."""
    return max(life.ended_at or now, life.launched_at) <= now - KNOWN_AFTER


def folded(
    history: FleetHistory, lives: Sequence[InstanceLife], *, spot_prices: Sequence[SpotPrice], now: datetime
) -> FleetHistory:
    """Return a history in which some instances, and the phases of long ago, are sums.

    Args:
        history: The history after EC2's newest answer.
        lives: Its instances to add up and list no more, as `to_fold` returns them.
        spot_prices: The prices of their types and zones, from before the first launch. None where they are not known.
        now: The time.
    """
    if lives:
        gone = {life.instance_id for life in lives}
        history = with_changes(
            history,
            lives=tuple(life for life in history.lives if life.instance_id not in gone),
            earlier_instances=_with_instances(history, lives, spot_prices, now),
            worked_before=_worked_before(history, lives, phase_changes(history.transitions), now),
        )
    spare = history.transitions[:-KEPT_PHASES]
    if spare:
        listed = history.transitions[len(spare) :]
        earlier = phase_changes(history.transitions)[: len(spare)]
        history = with_changes(
            history,
            transitions=listed,
            earlier_phases=with_phases(history.earlier_phases, earlier, until=listed[0].at),
            worked_before=_worked_before(history, history.lives, earlier, now),
        )
    return history


def _worked_before(
    history: FleetHistory, lives: Sequence[InstanceLife], phases: Sequence[PhaseChange], now: datetime
) -> timedelta:
    """Add the work of nodes in phases. Each pair of both counts once, when the first of them is no longer listed."""
    if history.nodes is None:
        return history.worked_before
    return history.worked_before + time_worked_together(lives, phases, until=now)


def _with_instances(
    history: FleetHistory, lives: Sequence[InstanceLife], spot_prices: Sequence[SpotPrice], now: datetime
) -> EarlierInstances:
    earlier = history.earlier_instances
    first, last = lives[0].launched_at, max(life.launched_at for life in lives)
    ended = max(life.ended_at or now for life in lives)
    return EarlierInstances(
        count=len(lives) + (0 if earlier is None else earlier.count),
        first_launched_at=first if earlier is None else min(first, earlier.first_launched_at),
        last_launched_at=last if earlier is None else max(last, earlier.last_launched_at),
        last_ended_at=ended if earlier is None else max(ended, earlier.last_ended_at),
        worked=time_worked(lives, until=now) + (timedelta(0) if earlier is None else earlier.worked),
        trained=time_trained(lives, now=now) + (timedelta(0) if earlier is None else earlier.trained),
        futile=futile_instances(lives, before=0 if earlier is None else earlier.futile, at_once=history.at_once),
        billed=billed(lives, spot_prices=spot_prices, until=now, earlier=None if earlier is None else earlier.billed),
    )
