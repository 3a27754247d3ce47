"""Runs on EC2 that train in a container: the deployed app, judged calls, instances from the deployed template."""

from __future__ import annotations

import pytest

from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState

from .conftest import OnEc2

pytestmark = pytest.mark.long

IN_ECR = "000000000000.dkr.ecr.us-east-1.amazonaws.com/team/training:7"


def test_a_run_in_a_container_is_interrupted_and_goes_on_to_its_end(on_ec2: OnEc2) -> None:
    app = on_ec2.app
    run = on_ec2.launch("400", image=IN_ECR, environment={"NOTE": 'two\nlines "quoted"'})
    on_ec2.wait_for(run, '"event":"saved"')
    (first,) = on_ec2.instances(run)
    on_ec2.control.interrupt(first["InstanceId"], notice_seconds=20)
    ended = app.wait_until_ended(run, passes=True)
    said = on_ec2.said(run)
    assert (ended.state, ended.end_reason) == (RunState.COMPLETED, EndReason.COMPLETED), said
    assert ended.request["image"] == IN_ECR
    assert said.count('"event":"image-pulled"') == 2, "each instance pulls it: none is on the volume"
    assert '"reason":"EC2 terminate","exit_code":75' in said, "the notice reached the script in its container"
    kinds = [each.kind for each in app.table.notifications.of_run(run)]
    assert kinds.count(NotificationKind.COMPLETED) == 1
    assert NotificationKind.INTERRUPTED in kinds
    assert on_ec2.live_fleets() == []
    on_ec2.wait_until_no_volume_is_left(run)
