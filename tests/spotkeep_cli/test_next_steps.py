"""What is offered next is of use: a run that never began has no log to read."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.next_steps import steps_for_run
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_jobs.record.states import EndReason, RunState


def commands_after_failure(make: Any, **changes: Any) -> list[str]:
    run = make.run(state=RunState.FAILED, **changes)
    seams = Seams(connect=lambda _: pytest.fail("no need"), spot_market=lambda _: pytest.fail("no need"))
    invocation = Invocation(options=ConnectionOptions(), seams=seams)
    return [step.command for step in steps_for_run(run, invocation=invocation, after="launch")]


@pytest.mark.parametrize("reason", [EndReason.LAUNCH_REFUSED, EndReason.QUOTA, EndReason.CAPACITY])
def test_after_a_launch_that_came_to_nothing_the_log_is_not_the_next_step(make: Any, reason: EndReason) -> None:
    found = commands_after_failure(make, started_at=None, end_reason=reason)
    assert found == ["spotkeep describe digits-1a2b3c4d", "spotkeep resume digits-1a2b3c4d"]


def test_after_a_script_that_failed_it_is(make: Any) -> None:
    found = commands_after_failure(make, started_at=make.now, end_reason=EndReason.SCRIPT_FAILED)
    assert found[0] == "spotkeep logs digits-1a2b3c4d"
