"""What the engine does when a rehearsal ends early: nothing that it launched trains on."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
from spotkeep_cli.rehearsal.engine import Rehearsal
from spotkeep_cli.rehearsal.errors import RehearsalTimeoutError
from spotkeep_cli.rehearsal.view import RehearsalView
from tests.spotkeep_cli.conftest import FakeDeployment, make_completed, make_run

LIVE, OVER, NEVER_LAUNCHED = "digits-1", "digits-1-untouched", "digits-1-again"


def rehearsal_of(deployment: FakeDeployment, job_file: Path, shown: io.StringIO) -> Rehearsal:
    """A rehearsal of three runs: one trains, one has completed, one was never launched."""
    deployment.dynamodb.add(make_run(LIVE))
    deployment.dynamodb.add(make_completed(OVER))
    local: Any = SimpleNamespace(session=lambda: None)
    no_subscriber: Any = None
    return Rehearsal(
        *(LIVE, OVER, NEVER_LAUNCHED),
        local=local,
        deployment=RehearsedDeployment(deployment, document=read_job_file(job_file), new_token=lambda: "token"),
        subscriber=no_subscriber,
        view=RehearsalView(Console(file=shown, width=120)),
        timeout_seconds=0,
    )


def test_when_it_ends_early_each_run_that_has_not_ended_is_stopped(deployment: FakeDeployment, job_file: Path) -> None:
    deployment.answers["stop"] = {"ok": True}
    shown = io.StringIO()
    rehearsal = rehearsal_of(deployment, job_file, shown)
    with (
        pytest.raises(RehearsalTimeoutError, match=f"{LIVE} is training, {OVER} is completed"),
        rehearsal.none_left_running(),
    ):
        rehearsal.follow(LIVE, OVER)
    assert deployment.invocations == [{"action": "stop", "run": LIVE}]
    assert f"stopping {LIVE}" in shown.getvalue()


def test_what_ended_it_is_reported_though_a_run_could_not_be_stopped(
    deployment: FakeDeployment, job_file: Path
) -> None:
    shown = io.StringIO()
    with pytest.raises(KeyboardInterrupt), rehearsal_of(deployment, job_file, shown).none_left_running():
        raise KeyboardInterrupt
    assert f"{LIVE} could not be stopped" in shown.getvalue()
