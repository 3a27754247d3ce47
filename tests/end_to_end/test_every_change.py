"""What each change is tried on in the deployed app: one job and one run on a fleet, both of them interrupted.

They are one file, so that they are one worker's, and one copy of the local AWS is enough.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_local.capacity import CapacityScript, EventFaults, Interruption

if TYPE_CHECKING:
    from conftest import DeployedApp, OnEc2


def test_doubled_and_shuffled_events_tell_an_ending_once(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting("100 --hurry", notify=["completed", "interrupted", "resumed"])
    deployed_app.control.script_capacity(
        run=job["run"],
        script=CapacityScript(
            interruptions=(Interruption(at_step=3, notice=False, capacity_returns_after_seconds=0.2),)
        ),
    )
    deployed_app.control.event_faults(EventFaults(duplicate=True, shuffle=True, seed=7))
    try:
        deployed_app.launch(**job)
        ended = deployed_app.wait_until_ended(job["run"])
        time.sleep(3)  # what is shuffled may still be on its way; a second notification would come of it
    finally:
        deployed_app.control.event_faults(EventFaults())
    assert ended.interruptions == 1
    kinds = [notification.kind.value for notification in deployed_app.table.notifications.of_run(job["run"])]
    assert sorted(kinds) == ["completed", "interrupted", "resumed"]


def test_a_run_goes_through_an_interruption_by_events_alone_and_leaves_nothing(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("300", tags={"team": "vision"})
    on_ec2.wait_for(run, '"event":"saved"')
    if on_ec2.control.platform().isolation == "namespace":
        assert "trained by spotkeep" in on_ec2.said(run), "a host of its own has the user that user data makes"
    (first,) = on_ec2.instances(run)
    (volume,) = on_ec2.ec2.describe_volumes(VolumeIds=on_ec2.volumes(run))["Volumes"]
    assert {"Key": "team", "Value": "vision"} in volume["Tags"], "as on the instance, for the bill"
    on_ec2.control.warn_of("i-0123456789abcdef0")  # Another account's: nothing may come of it (trap 13).
    on_ec2.control.interrupt(first["InstanceId"], notice=False)
    ended = app.wait_until_ended(run)
    assert (ended.state, ended.end_reason, ended.interruptions) == (RunState.COMPLETED, EndReason.COMPLETED, 1)
    kinds = [entry.kind for entry in app.table.runs.timeline(run)]
    assert kinds.index(TimelineKind.INTERRUPTED) < kinds.index(TimelineKind.RESUMED) < kinds.index(TimelineKind.ENDED)
    notified = [notification.kind for notification in app.table.notifications.of_run(run)]
    assert notified == [NotificationKind.INTERRUPTED, NotificationKind.RESUMED, NotificationKind.COMPLETED]
    assert on_ec2.live_fleets() == []
    assert {each["State"]["Name"] for each in on_ec2.instances(run)} <= {"shutting-down", "terminated"}
    on_ec2.wait_until_no_volume_is_left(run)
