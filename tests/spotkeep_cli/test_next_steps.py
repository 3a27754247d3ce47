"""What is offered next is of use: a run that never began has no log to read."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.next_steps import steps_for_run
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, RunState


def steps_of(run: Run) -> list[NextStep]:
    seams = Seams(connect=lambda _: pytest.fail("no need"), spot_market=lambda _: pytest.fail("no need"))
    return steps_for_run(run, invocation=Invocation(options=ConnectionOptions(), seams=seams), after="launch")


def commands_after_failure(make: Any, **changes: Any) -> list[str]:
    return [step.command for step in steps_of(make.run(state=RunState.FAILED, **changes))]


@pytest.mark.parametrize("reason", [EndReason.LAUNCH_REFUSED, EndReason.QUOTA, EndReason.CAPACITY])
def test_after_a_launch_that_came_to_nothing_the_log_is_not_the_next_step(make: Any, reason: EndReason) -> None:
    found = commands_after_failure(make, started_at=None, end_reason=reason)
    assert found == ["spotkeep describe digits-1a2b3c4d", "spotkeep resume digits-1a2b3c4d"]


def test_after_a_script_that_failed_it_is(make: Any) -> None:
    found = commands_after_failure(make, started_at=make.now, end_reason=EndReason.SCRIPT_FAILED)
    assert found[0] == "spotkeep logs digits-1a2b3c4d"


@pytest.mark.parametrize(
    ("request_changes", "failure", "command"),
    [
        ({"source": {"uri": "s3://b/a.tar.gz", "sha256": "0" * 64}}, "ValueError: no", "--source ."),
        ({}, "ValueError: no", None),
        (
            {"source": {"uri": "s3://b/a.tar.gz", "sha256": "0" * 64}},
            "python train.py exited with code 2:\npython: can't open file 'train.py': [Errno 2] No such file",
            "--set 'command=python train.py'",
        ),
        (
            {"source": {"uri": "s3://b/a.tar.gz", "sha256": "0" * 64}},
            "ClientError: channel shared cannot be mounted (fs-1.efs.us-east-1.amazonaws.com:/a): no such directory",
            None,
        ),
        (
            {"source": {"uri": "s3://b/a.tar.gz", "sha256": "0" * 64}},
            "ClientError: checkpoints cannot be written to channel shared: [Errno 13] Permission denied: 'digits'",
            None,
        ),
        ({}, "trian exited with code 127", "--set 'command=python train.py'"),
    ],
)
def test_a_run_whose_script_failed_goes_on_with_what_its_failure_asks_for(
    make: Any, request_changes: dict[str, Any], failure: str, command: str | None
) -> None:
    request = {"name": "digits", "command": ["python", "train.py"], **request_changes}
    found = commands_after_failure(
        make,
        started_at=make.now,
        ended_at=make.now,
        end_reason=EndReason.SCRIPT_FAILED,
        failure_reason=failure,
        request=request,
    )
    assert found[1] == f"spotkeep resume digits-1a2b3c4d{'' if command is None else f' {command}'}"


@pytest.mark.parametrize(("minutes", "is_offered"), [(5, True), (31, False)])
def test_the_pool_of_a_warm_run_can_be_ended_while_it_waits(make: Any, minutes: int, is_offered: bool) -> None:
    run = make.completed(ended_at=make.now, request={"name": "digits", "command": ["true"], "keep_alive": 1800})
    invocation = Invocation(
        options=ConnectionOptions(),
        seams=Seams(
            connect=lambda _: pytest.fail("no need"),
            spot_market=lambda _: pytest.fail("no need"),
            now=lambda: make.now + timedelta(minutes=minutes),
        ),
    )
    found = [step.command for step in steps_for_run(run, invocation=invocation, after="launch")]
    assert ("spotkeep pool stop digits-1a2b3c4d" in found) == is_offered


@pytest.mark.parametrize(
    ("started", "request_changes", "effect"),
    [
        (True, {}, "go on from its last checkpoint"),
        (True, {"checkpoints": False}, "train again from zero"),
        (True, {"checkpoints": False, "backend": "ec2"}, "go on from its last checkpoint"),
        (False, {}, "start it again"),
    ],
)
def test_the_last_checkpoint_is_named_where_a_run_may_have_one(
    make: Any, started: bool, request_changes: dict[str, Any], effect: str
) -> None:
    request = {"name": "digits", "command": ["python", "train.py"], **request_changes}
    run = make.run(state=RunState.STOPPED, started_at=make.now if started else None, request=request)
    assert [step.what for step in steps_of(run) if "resume" in step.command] == [effect]
