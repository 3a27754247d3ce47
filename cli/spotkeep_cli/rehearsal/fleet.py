"""The scenario of `spotkeep rehearse-fleet`: a run on a spot fleet loses its instance twice.

The run is left alone once, to compare with. Then its capacity is taken with a notice, and there is room in other zones
only, so that its volume must move; then without one, and there is room in that zone only, so that the same volume is
taken by the next instance. Instances boot the deployed user data; EC2 is faster than it is, the training is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from spotkeep_cli.rehearsal.engine import WHOLE_TRAINING, Rehearsal, Scenario
from spotkeep_cli.rehearsal.fleet_evidence import FleetEvidence, ResourcesOfRun
from spotkeep_cli.rehearsal.fleet_on_ec2 import FleetOnEc2
from spotkeep_cli.rehearsal.fleet_verdict import judge_fleet
from spotkeep_cli.rehearsal.gathering import evidence_of_run
from spotkeep_cli.rehearsal.report import FleetReport
from spotkeep_cli.rehearsal.spot import CHECK_AND_LAUNCH, report_of_interruptions
from spotkeep_cli.rehearsal.staging import QUICK_SYNC
from spotkeep_cli.rehearsal.view import Stage
from spotkeep_local.fleet_control import FleetControl
from spotkeep_local.isolation import Isolation

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Run

TIME_SCALE = 20.0
_FIRST, _SECOND = 0.35, 0.70
_POLL_SECONDS = 0.2
_GONE_SECONDS = 60.0
_ENDED_BEFORE = "the run ended before that"


def fleet_scenario(*, isolation: Isolation) -> Scenario:
    """Return the scenario in which a run on a fleet loses its instance, first with a notice and then without.

    Args:
        isolation: What instances are: hosts with block devices, or process groups with directories.
    """
    return Scenario(
        introduction=(
            "Rehearsing {job_file} on a spot fleet on this machine: the real app, the real user data, nothing billed.\n"
        ),
        job_fields={**WHOLE_TRAINING, "backend": "ec2"},
        server=replace(QUICK_SYNC, time_scale=TIME_SCALE, isolation=isolation),
        perform=_perform,
        report_name="fleet-report.json",
        failed_hint="docs/volume-protocol.md says what should happen, docs/training-scripts.md what a script must do",
        next_steps=CHECK_AND_LAUNCH,
    )


def _perform(rehearsal: Rehearsal) -> FleetReport:
    control, ec2 = FleetControl(rehearsal.local), rehearsal.session.client("ec2")
    fleet, untouched = (FleetOnEc2(name, ec2=ec2, control=control) for name in (rehearsal.first, rehearsal.second))
    with fleet.market_as_it_was():
        with rehearsal.view.stage(Stage.LEFT_ALONE) as outcome:
            rehearsal.deployment.launch(run=untouched.run)
            ended = _follow(rehearsal, untouched)
            outcome.append(f"{untouched.run}: {ended.state.value.lower()}")
        fleet.seconds_alone = untouched.seconds_without_steps()
        before = fleet.resources()
        trained = _taken_twice(rehearsal, fleet)
        _complete(rehearsal, fleet)
        rehearsal.collect_endings(Stage.NOTIFICATIONS)
    evidence = FleetEvidence(
        lives=fleet.lives(),
        before=before,
        trained=trained,
        after=fleet.resources(),
        isolation=control.platform().isolation,
    )
    run, reference = (
        evidence_of_run(rehearsal, each.run, lives=[life.process for life in each.lives()])
        for each in (fleet, untouched)
    )
    found = report_of_interruptions(rehearsal, run, reference, planned_interruptions=2)
    return FleetReport(**{**vars(found), "checks": judge_fleet(evidence)}, evidence=evidence)


def _taken_twice(rehearsal: Rehearsal, fleet: FleetOnEc2) -> ResourcesOfRun:
    """Take the instance with a notice, then the next one without; return what is alive when the third trains.

    A run that ends before that is taken no further: the verdict says what is missing.
    """
    comes_to = partial(_comes_to, rehearsal, fleet)
    with rehearsal.view.stage(Stage.LAUNCH) as outcome:
        rehearsal.deployment.launch(run=fleet.run)
        trains = comes_to(lambda: fleet.trains(number=1))
        outcome.append(f"{fleet.run} trains in {fleet.zone(1)}" if trains else _ENDED_BEFORE)
    if not trains:
        return fleet.resources()
    with rehearsal.view.stage(Stage.MOVE) as outcome:
        trains = False
        if comes_to(lambda: fleet.share() >= _FIRST):
            rehearsal.view.note(f"notice for {fleet.id(1)}, and no room in {fleet.zone(1)} any more")
            fleet.take(notice=True)
            trains = comes_to(lambda: fleet.trains(number=2))
        outcome.append(_went_on(fleet, number=2) if trains else _ENDED_BEFORE)
    if not trains:
        return fleet.resources()
    with rehearsal.view.stage(Stage.RETURN) as outcome:
        trains = False
        if comes_to(lambda: fleet.share() >= _SECOND):
            rehearsal.view.note(f"{fleet.id(2)} is gone without notice; room in {fleet.zone(2)} only")
            fleet.take(notice=False)
            trains = comes_to(lambda: fleet.trains(number=3))
        outcome.append(_went_on(fleet, number=3) if trains else _ENDED_BEFORE)
        return fleet.resources()


def _comes_to(rehearsal: Rehearsal, fleet: FleetOnEc2, happens: Callable[[], object]) -> bool:
    """Wait until something happens to a run, and say whether it has: the run may have ended before."""
    return not _follow(rehearsal, fleet, happens).state.ended


def _went_on(fleet: FleetOnEc2, *, number: int) -> str:
    step = fleet.resumed(number)
    return f"goes on in {fleet.zone(number)}" + ("" if step is None else f", from step {step}")


def _complete(rehearsal: Rehearsal, fleet: FleetOnEc2) -> None:
    with rehearsal.view.stage(Stage.COMPLETION) as outcome:
        ended = _follow(rehearsal, fleet)
        deadline = time.monotonic() + _GONE_SECONDS
        while fleet.resources().fleets or fleet.resources().instances:
            if time.monotonic() > deadline:
                break  # the verdict says it
            time.sleep(_POLL_SECONDS)
        fleets = fleet.resources().fleets
        outcome.append(f"{ended.state.value.lower()}; the fleet is {'still there' if fleets else 'gone'}")


def _follow(rehearsal: Rehearsal, fleet: FleetOnEc2, until: Callable[[], object] = lambda: False) -> Run:
    """Wait until the run has ended, or something else has happened, and show its steps meanwhile."""

    def show(runs: Mapping[str, Run]) -> None:
        done, total = fleet.steps()
        rehearsal.view.progress(done=done, total=total, text=runs[fleet.run].state.value.lower())

    return rehearsal.follow(fleet.run, until=until, meanwhile=show, standing=fleet.standing)[fleet.run]
