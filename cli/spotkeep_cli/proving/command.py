"""Rehearses everything on one local AWS, has each permission taken away there, and reports what that showed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.aws.connection import LOCAL_STATE_VARIABLE, local_state_directory, project_directory
from spotkeep_cli.errors import LocalFailureError, RehearsalFailedError, UsageError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.proving.live import Flow, run_without
from spotkeep_cli.proving.verdict import judge_permissions
from spotkeep_cli.proving.view import verdict_document, verdict_view
from spotkeep_cli.rehearsal import engine
from spotkeep_cli.rehearsal.command import judged_app
from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
from spotkeep_cli.rehearsal.engine import RehearsalPlan
from spotkeep_cli.rehearsal.fleet import fleet_scenario
from spotkeep_cli.rehearsal.interruption_points import read_interruptions
from spotkeep_cli.rehearsal.permissions import is_of_deployment
from spotkeep_cli.rehearsal.pool import pool_scenario
from spotkeep_cli.rehearsal.spot import spot_scenario
from spotkeep_cli.rehearsal.view import RehearsalView, Stage
from spotkeep_cli.shell_path import activation
from spotkeep_cli.signals import unwinding_on_sigterm
from spotkeep_cli.terminal import NextStep
from spotkeep_local import lifecycle, permission_control
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.iam.withheld import WithheldGrant
from spotkeep_local.isolation import Isolation

if TYPE_CHECKING:
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.rehearsal.engine import Scenario
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal
    from spotkeep_local.lifecycle import LocalAws

FILE_NAME: Final = "proofs.json"
_POOL_FASTER: Final = 40.0
_FEW_STEPS: Final = "hyperparameters.steps=60"
_KEEP_ALIVE_SECONDS: Final = 20
_RECONCILED_AFTER_SECONDS: Final = 330.0
"""The schedule reconciles every five minutes: so long after the first rehearsal began, it has."""


@dataclass(frozen=True, kw_only=True)
class _Rehearsed:
    """What is rehearsed, and then run again with its permissions withheld.

    Attributes:
        scenario: What happens in the rehearsal.
        job_file: What is launched.
        overrides: `--set` values.
        fields: Fields of the job file that have another value where grants are withheld.
        quiet_seconds: As for `live.Flow`.
        after_seconds: As for `live.Flow`.
    """

    scenario: Scenario[Any]
    job_file: Path
    overrides: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    quiet_seconds: float
    after_seconds: float = 3.0

    def document(self, *overrides: str) -> JobDocument:
        """Return the job file as the scenario launches it."""
        read = read_job_file(self.job_file, overrides=(*self.overrides, *overrides))
        return read.with_fields(self.scenario.job_fields)


def prove_permissions(
    job_file: Path,
    fleet_job_file: Path,
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
        live_minutes: How long the flows run with their permissions withheld, at most.
        timeout_seconds: The longest that a rehearsal waits for anything.
        invocation: How the command was called.
        terminal: Where it shows what it does.

    Raises:
        JobFileError: A file cannot be read.
        RefusedError: A job file has problems.
        UsageError: There is no app to deploy, or the local AWS is not a new one.
        LocalFailureError: The local AWS or the CDK CLI failed.
        RehearsalNotJudgedError: A rehearsal could not be carried out.
        RehearsalFailedError: A rehearsal did not pass, a grant is without proof and reason, or a bound does not hold.
    """
    flows = (
        # The pool's settings are the deployment's: it comes first, and the others find what it deployed.
        _Rehearsed(
            scenario=pool_scenario(faster=_POOL_FASTER),
            job_file=job_file,
            overrides=(_FEW_STEPS,),
            # The schedule reminds of a pool, and watches for its end.
            fields={"keep_alive": _KEEP_ALIVE_SECONDS},
            quiet_seconds=60.0,
            after_seconds=_KEEP_ALIVE_SECONDS + 10.0,
        ),
        _Rehearsed(scenario=spot_scenario(read_interruptions((), notice=True)), job_file=job_file, quiet_seconds=40.0),
        _Rehearsed(scenario=fleet_scenario(isolation=Isolation.AUTO), job_file=fleet_job_file, quiet_seconds=60.0),
    )
    project_dir, *_ = [judged_app(flow.document(), invocation=invocation) for flow in flows]
    terminal.show("Proving the deployment's permissions by taking each away: the real app, nothing billed.\n")
    started = time.monotonic()
    try:
        with RehearsalView(terminal.people) as view, unwinding_on_sigterm(), _local_aws(flows) as local:
            for number, flow in enumerate(flows):
                document = flow.document()
                plan = RehearsalPlan(
                    scenario=flow.scenario,
                    project_dir=project_dir,
                    state_dir=local_state_directory(),
                    name=str(document.fields["name"]),
                    settings=flow.scenario.settings(document.fields),
                    deployment=invocation.options.deployment,
                    timeout_seconds=timeout_seconds,
                    deploy=number == 0,
                )
                _rehearse(plan, document, invocation=invocation, view=view)
            _run_without(flows, local=local, minutes=live_minutes, invocation=invocation, view=view)
            if (rest := started + _RECONCILED_AFTER_SECONDS - time.monotonic()) > 0:
                view.note(f"waiting {rest:.0f} s for the schedule that reconciles")
                time.sleep(rest)
            verdict = judge_permissions(permission_control.proofs(local), permission_control.missed(local))
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
    path = project_directory() / ".spotkeep" / "permissions" / FILE_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    found = verdict_document(verdict, seconds=time.monotonic() - started)
    path.write_text(json.dumps(found, indent=2) + "\n")
    if terminal.as_json:
        terminal.give_json(found)
    else:
        for part in (*verdict_view(verdict), "", f"Each proof, with AWS's message: {path}"):
            terminal.show(part)
    if not verdict.passed:
        raise RehearsalFailedError(
            f"{len(verdict.failed_grants)} grants are without proof and reason, "
            f"{len(verdict.failed_bounds)} bounds do not hold",
            hint="take what nothing needs out of constructs/, or give it a reason in rehearsal/kept_grants.py",
        )
    terminal.show_next(
        *activation(), NextStep(command="make rehearse", what="what the deployment does with these permissions")
    )


@contextlib.contextmanager
def _local_aws(flows: tuple[_Rehearsed, ...]) -> Iterator[LocalAws]:
    """Give a local AWS on which nothing has happened yet, and which is as quick as each scenario asks for."""
    state_dir = local_state_directory()
    if state_dir.exists() and any(state_dir.iterdir()):
        raise UsageError(
            f"{state_dir} holds a local AWS: what was done there is not done again, and would be without proof",
            hint=f"name a directory that is not there: {LOCAL_STATE_VARIABLE}=DIRECTORY, or: make prove-permissions",
        )
    options = max((flow.scenario.server for flow in flows), key=lambda server: server.time_scale)
    local = lifecycle.start(state_dir, options=options)
    try:
        yield local
    finally:
        lifecycle.stop(state_dir)


def _rehearse(plan: RehearsalPlan[Any], document: JobDocument, *, invocation: Invocation, view: RehearsalView) -> None:
    report = engine.rehearse(plan, connect=partial(_deployment, document, invocation=invocation), view=view)
    if not report.passed:
        raise RehearsalFailedError(
            f"a rehearsal of {plan.name} did not pass, so that nothing is proven", hint=plan.scenario.failed_hint
        )


def _deployment(document: JobDocument, *, invocation: Invocation) -> RehearsedDeployment:
    options = replace(invocation.options, local=True)
    connected = invocation.seams.connect(options)
    return RehearsedDeployment(connected, document=document, new_token=invocation.seams.new_token)


def _run_without(
    flows: tuple[_Rehearsed, ...], *, local: LocalAws, minutes: float, invocation: Invocation, view: RehearsalView
) -> None:
    """Run the flows with everything withheld that the rehearsals needed, each for its part of the time."""
    end = time.monotonic() + minutes * 60
    # The first one waits longest after each run: it comes last, when the others have missed what they have in common.
    for left, rehearsed in zip(range(len(flows), 0, -1), (*flows[1:], flows[0]), strict=True):
        document = rehearsed.document(_FEW_STEPS)
        known = {each.grant for each in permission_control.missed(local)}
        # Each time anew: what a schedule does comes between.
        grants = [
            grant
            for each in permission_control.proofs(local).grants
            if each.denial is not None
            and is_of_deployment(each.identity)
            and (grant := WithheldGrant(identity=each.identity, statement=each.statement, action=each.action))
            not in known
        ]
        flow = Flow(
            connect=partial(_deployment, document, invocation=invocation),
            name=f"{document.fields['name']}-{len(flows) - left}-{time.strftime('%H%M%S')}-without",
            fields=rehearsed.fields,
            quiet_seconds=rehearsed.quiet_seconds,
            after_seconds=rehearsed.after_seconds,
        )
        began = time.monotonic()
        view.stage_started(Stage.WITHHELD)
        run_without(
            grants,
            flow,
            local=local,
            until=began + (end - began) / left,
            progress=lambda missed: view.note(f"{missed} withheld grants were missed"),
        )
        found = len(permission_control.missed(local)) - len(known)
        view.stage_finished(
            Stage.WITHHELD,
            seconds=time.monotonic() - began,
            text=f"{rehearsed.job_file.name}: {found} of {len(grants)} grants were missed",
        )
