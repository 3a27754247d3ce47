"""Rehearses everything on one local AWS, takes each permission away there, and reports what that showed.

`make prove-permissions` runs it: ``python -m tests.permissions``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spotkeep.notices.notice import NOTICE_SECONDS_VARIABLE
from spotkeep_cli.aws.connection import (
    LOCAL_STATE_VARIABLE,
    app_to_deploy,
    connect,
    local_state_directory,
    project_directory,
    spot_market,
)
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import (
    CommandLineError,
    ExitCode,
    LocalFailureError,
    RehearsalFailedError,
    RehearsalNotJudgedError,
    UsageError,
)
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal import engine
from spotkeep_cli.rehearsal.command import activation, judged_here
from spotkeep_cli.rehearsal.deployment import RehearsedDeployment, secret_settings
from spotkeep_cli.rehearsal.engine import RehearsalPlan
from spotkeep_cli.rehearsal.fleet import fleet_scenario
from spotkeep_cli.rehearsal.interruption_points import read_interruptions
from spotkeep_cli.rehearsal.nodes import nodes_scenario
from spotkeep_cli.rehearsal.permissions import is_of_deployment
from spotkeep_cli.rehearsal.pool import pool_scenario
from spotkeep_cli.rehearsal.spot import spot_scenario
from spotkeep_cli.rehearsal.sweep import sweep_scenario
from spotkeep_cli.rehearsal.view import RehearsalView, Stage, drawn
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.signals import unwinding_on_sigterm
from spotkeep_cli.terminal import NextStep, Terminal
from spotkeep_local import lifecycle
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.hosts.isolation import Isolation
from tests.permissions import control
from tests.permissions.live import (
    FAILS_ONCE,
    ON_A_RUN_IN_A_QUEUE,
    ON_A_SCHEDULE,
    ON_A_SWEEP,
    Flow,
    Launch,
    act_out,
    run_without,
)
from tests.permissions.verdict import judge_permissions, verdict_document, verdict_view
from tests.permissions.withheld import WithheldGrant

if TYPE_CHECKING:
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.rehearsal.engine import Scenario
    from spotkeep_local.lifecycle import LocalAws
    from tests.permissions.verdict import PermissionVerdict

FILE_NAME: Final = "proofs.json"
_POOL_FASTER: Final = 40.0
_FEW_STEPS: Final = "hyperparameters.steps=60"
_SOON_OVER: Final = f"environment.{NOTICE_SECONDS_VARIABLE}='5'"
"""A job that is asked to stop waits so long before it ends, and not the 120 s that SageMaker gives it."""
_SHORT: Final = (_FEW_STEPS, _SOON_OVER)
_SECRET: Final = "rehearsal-token"
_CLOSE_TO_EACH_OTHER: Final = "network.placement=cluster"
_FEW_EPOCHS: Final = "hyperparameters.epochs=4"
_WITH_A_SECRET: Final = f"secrets.REHEARSAL_TOKEN={_SECRET}"
_KEEP_ALIVE_SECONDS: Final = 20
_SEED: Final = 1
_FEW_TRIALS_IN_A_QUEUE: Final = (
    "queue=cpu",
    "share=research",
    "sweep.trials=6",
    "sweep.parallel=3",
    "sweep.asha.max_steps=27",
    "hyperparameters.steps=27",
    # The other share's jobs come while trials have their instances.
    "hyperparameters.seconds-per-step=0.4",
)
_SLOW_TRIALS: Final = (
    _SOON_OVER,
    "sweep.trials=2",
    "sweep.parallel=2",
    "sweep.asha.min_steps=27",
    "sweep.asha.max_steps=81",
    "hyperparameters.steps=81",
    "hyperparameters.seconds-per-step=2",
)
"""Long enough to be acted on."""
_RECONCILED_AFTER_SECONDS: Final = 330.0
"""The schedule reconciles every five minutes: so long after the first rehearsal began, it has."""


@dataclass(frozen=True, kw_only=True)
class _Rehearsed:
    """What is rehearsed, and then run again with its permissions withheld.

    Attributes:
        scenario: What happens in the rehearsal.
        job_file: What is launched.
        overrides: `--set` values.
        launches: What is launched with grants withheld.
    """

    scenario: Scenario
    job_file: Path
    overrides: tuple[str, ...] = ()
    launches: tuple[Launch, ...]

    def document(self, *overrides: str) -> JobDocument:
        """Return the job file as the scenario launches it."""
        read = read_job_file(self.job_file, overrides=(*self.overrides, *overrides))
        return read.with_fields(self.scenario.job_fields)


def prove_permissions(
    job_file: Path,
    fleet_job_file: Path,
    nodes_job_file: Path,
    sweep_file: Path,
    *,
    live_minutes: float,
    timeout_seconds: float,
    invocation: Invocation,
    terminal: Terminal,
) -> None:
    """Prove the permissions of the deployment, show and write what was found.

    Args:
        job_file: A job for SageMaker.
        fleet_job_file: A job for a fleet.
        nodes_job_file: A job for several nodes.
        sweep_file: A sweep.
        live_minutes: Minutes that the flows run with their permissions withheld, at most.
        timeout_seconds: The longest that a rehearsal waits for anything.
        invocation: The root options of the commands that the rehearsals stand for.
        terminal: Where it shows what it does.

    Raises:
        JobFileError: A file cannot be read.
        RefusedError: A job file has problems.
        UsageError: There is no app to deploy, or the local AWS is not a new one.
        LocalFailureError: The local AWS or the CDK CLI failed.
        RehearsalNotJudgedError: A rehearsal could not be carried out.
        RehearsalFailedError: A rehearsal did not pass, a grant is without proof and reason, or a bound does not hold.
    """
    parts = _rehearsed(job_file, fleet_job_file, nodes_job_file, sweep_file)
    for part in parts:
        judged_here(part.document(), invocation=invocation)
    project_dir = app_to_deploy()
    terminal.show("Proving the deployment's permissions by taking each away: the real app, nothing billed.\n")
    started = time.monotonic()
    try:
        with RehearsalView(terminal.people) as view, unwinding_on_sigterm(), _local_aws(parts) as local:
            for number, part in enumerate(parts):
                plan = RehearsalPlan(
                    scenario=part.scenario,
                    document=part.document(),
                    invocation=invocation,
                    project_dir=project_dir,
                    settings=_settings(parts),
                    timeout_seconds=timeout_seconds,
                    deploy=number == 0,
                )
                _rehearse(plan, view=view, terminal=terminal)
            launches = [(part, launch) for part in (*parts[1:], parts[0]) for launch in part.launches]
            for number, (part, launch) in enumerate(launches):
                if launch.actions:
                    flow = _flow(part, launch, name=f"asked-{number}", invocation=invocation)
                    _act_out(flow, part.job_file, local=local, timeout_seconds=timeout_seconds, view=view)
            _run_without(launches, local=local, minutes=live_minutes, invocation=invocation, view=view)
            if (rest := started + _RECONCILED_AFTER_SECONDS - time.monotonic()) > 0:
                view.note(f"waiting {rest:.0f} s for the schedule that reconciles")
                time.sleep(rest)
            verdict = judge_permissions(control.proofs(local), control.missed(local))
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
    _report(verdict, seconds=time.monotonic() - started, terminal=terminal)
    if not verdict.passed:
        raise RehearsalFailedError(
            f"{len(verdict.failed_grants)} grants are without proof and reason, "
            f"{len(verdict.failed_bounds)} bounds do not hold",
            hint="take what nothing needs out of constructs/, or give it a reason in tests/permissions/kept_grants.py",
        )
    terminal.show_next(
        *activation(), NextStep(command="make rehearse", what="what the deployment does with these permissions")
    )


def _rehearsed(job_file: Path, fleet_job_file: Path, nodes_job_file: Path, sweep_file: Path) -> tuple[_Rehearsed, ...]:
    """Return all that is rehearsed: together it needs every permission that the deployment grants."""
    return (
        # A pool waits longest after each run. Its launch comes last: the others have missed what they have in common.
        _Rehearsed(
            scenario=pool_scenario(faster=_POOL_FASTER),
            job_file=job_file,
            overrides=(_FEW_STEPS, _WITH_A_SECRET),
            launches=(
                Launch(
                    overrides=_SHORT,
                    # The schedule reminds of a pool, and watches for its end.
                    fields={"keep_alive": _KEEP_ALIVE_SECONDS},
                    quiet_seconds=60.0,
                    after_seconds=_KEEP_ALIVE_SECONDS + 10.0,
                ),
            ),
        ),
        _Rehearsed(
            scenario=spot_scenario(read_interruptions((), notice=True)),
            job_file=job_file,
            launches=(
                Launch(overrides=_SHORT, quiet_seconds=40.0),
                # What is refused when it fires is launched a minute later.
                Launch(
                    overrides=_SHORT,
                    fields={"schedule": "rate(1 minute)"},
                    actions=ON_A_SCHEDULE,
                    quiet_seconds=90.0,
                ),
            ),
        ),
        _Rehearsed(
            scenario=fleet_scenario(isolation=Isolation.AUTO),
            job_file=fleet_job_file,
            overrides=(_WITH_A_SECRET,),
            launches=(Launch(overrides=(_FEW_STEPS,), quiet_seconds=60.0),),
        ),
        _Rehearsed(
            scenario=nodes_scenario(isolation=Isolation.AUTO),
            job_file=nodes_job_file,
            overrides=(_CLOSE_TO_EACH_OTHER,),
            launches=(Launch(overrides=(_FEW_EPOCHS,), quiet_seconds=60.0),),
        ),
        _Rehearsed(
            scenario=sweep_scenario(seed=_SEED),
            job_file=sweep_file,
            overrides=_FEW_TRIALS_IN_A_QUEUE,
            launches=(
                Launch(overrides=_SLOW_TRIALS, actions=ON_A_SWEEP, quiet_seconds=40.0),
                Launch(fields=FAILS_ONCE, actions=ON_A_RUN_IN_A_QUEUE, quiet_seconds=40.0),
            ),
        ),
    )


def _report(verdict: PermissionVerdict, *, seconds: float, terminal: Terminal) -> None:
    """Write each proof into a file, and show the verdict."""
    path = project_directory() / ".spotkeep" / "permissions" / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    found = verdict_document(verdict, seconds=seconds)
    path.write_text(json.dumps(found, indent=2) + "\n")
    if terminal.as_json:
        terminal.give_json(found)
    else:
        for shown in (*verdict_view(verdict), "", f"Each proof, with AWS's message: {path}"):
            terminal.show(shown)


def _settings(parts: Sequence[_Rehearsed]) -> dict[str, str]:
    """Return the settings of the one deployment in which all are rehearsed."""
    settings: dict[str, str] = {}
    for part in parts:
        fields = part.document().fields
        settings.update({**secret_settings(fields), **part.scenario.settings(fields)})
    return settings


@contextlib.contextmanager
def _local_aws(parts: Sequence[_Rehearsed]) -> Iterator[LocalAws]:
    """Give a local AWS on which nothing has happened yet, and which is as quick as each scenario asks for."""
    state_dir = local_state_directory()
    if state_dir.exists() and any(state_dir.iterdir()):
        raise UsageError(
            f"{state_dir} holds a local AWS: what was done there is not done again, and would be without proof",
            hint=f"name a directory that is not there: {LOCAL_STATE_VARIABLE}=DIRECTORY, or: make prove-permissions",
        )
    options = max((part.scenario.server for part in parts), key=lambda server: server.time_scale)
    local = control.start(state_dir, options=options)
    local.session().client("secretsmanager").create_secret(Name=_SECRET, SecretString="a value")
    try:
        yield local
    finally:
        lifecycle.stop(state_dir)


def _rehearse(plan: RehearsalPlan, *, view: RehearsalView, terminal: Terminal) -> None:
    report = engine.rehearse(plan, view=view)
    if not report.passed:
        for part in drawn(report):
            terminal.show(part)
        raise RehearsalFailedError(
            f"a rehearsal of {plan.document.fields['name']} did not pass, so that nothing is proven",
            hint=plan.scenario.failed_hint,
        )


def _act_out(flow: Flow, job_file: Path, *, local: LocalAws, timeout_seconds: float, view: RehearsalView) -> None:
    """Do what a flow's user asks for while everything is allowed.

    Raises:
        RehearsalNotJudgedError: Something of it had no effect.
    """
    began = time.monotonic()
    with view.stage(Stage.ACTIONS) as outcome:
        without_effect = act_out(flow, local=local, timeout_seconds=timeout_seconds)
        if without_effect:
            seconds = time.monotonic() - began
            raise RehearsalNotJudgedError(
                f"{flow.name}-1: after {seconds:.0f} s it is not so that {without_effect[0].effect}",
                hint="give it longer with --timeout, or see what spotkeep describe says of it on the local AWS",
            )
        outcome.append(f"{job_file.name}: {', '.join(action.effect for action in flow.launch.actions)}")


def _flow(part: _Rehearsed, launch: Launch, *, name: str, invocation: Invocation) -> Flow:
    document = part.document(*launch.overrides)
    return Flow(
        connect=partial(RehearsedDeployment.connect, document, invocation=invocation),
        name=f"{document.fields['name']}-{time.strftime('%H%M%S')}-{name}",
        launch=launch,
    )


def _run_without(
    launches: Sequence[tuple[_Rehearsed, Launch]],
    *,
    local: LocalAws,
    minutes: float,
    invocation: Invocation,
    view: RehearsalView,
) -> None:
    """Launch everything with all withheld that the rehearsals needed, each for its part of the time."""
    end = time.monotonic() + minutes * 60
    for number, (part, launch) in enumerate(launches):
        known = {each.grant for each in control.missed(local)}
        # Each time anew: what a schedule does comes between.
        grants = [
            grant
            for each in control.proofs(local).grants
            if each.denial is not None
            and is_of_deployment(each.identity)
            and (grant := WithheldGrant(identity=each.identity, statement=each.statement, action=each.action))
            not in known
        ]
        began = time.monotonic()
        with view.stage(Stage.WITHHELD) as outcome:
            run_without(
                grants,
                _flow(part, launch, name=f"without-{number}", invocation=invocation),
                local=local,
                until=began + (end - began) / (len(launches) - number),
                progress=lambda missed: view.note(f"{missed} withheld grants were missed"),
            )
            found = len(control.missed(local)) - len(known)
            outcome.append(f"{part.job_file.name}: {found} of {len(grants)} grants were missed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove the permissions.

    Returns:
        0 when each grant is proven or kept and each bound holds; else the exit code of a failed command.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.permissions", description=main.__doc__)
    parser.add_argument("job_file", type=Path, help="a job file of SageMaker")
    parser.add_argument("fleet_job_file", type=Path, help="a job file of the EC2 backend")
    parser.add_argument("nodes_job_file", type=Path, help="a job file of several nodes")
    parser.add_argument("sweep_file", type=Path, help="the job file of a sweep")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a rehearsal waits for anything, at most")
    parser.add_argument("--live-minutes", type=float, default=12.0, help="minutes of flows without grants, at most")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    given = parser.parse_args(arguments)
    terminal = Terminal(as_json=given.json)
    try:
        prove_permissions(
            given.job_file,
            given.fleet_job_file,
            given.nodes_job_file,
            given.sweep_file,
            live_minutes=given.live_minutes,
            timeout_seconds=given.timeout,
            invocation=Invocation(options=ConnectionOptions(), seams=Seams(connect=connect, spot_market=spot_market)),
            terminal=terminal,
        )
    except CommandLineError as error:
        terminal.show_error(error)
        return error.exit_code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
