"""The launcher's parts, put together on what they act on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from spotkeep_jobs.backends.backend import Backends
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.batch.parameters_file import ParametersFile
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_jobs.backends.sagemaker.request import JobPlatform
from spotkeep_jobs.backends.session_manager import SessionManager
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy, PoolRules
from spotkeep_jobs.document.times import MAX_KEEP_ALIVE_SECONDS
from spotkeep_jobs.functions.fleet_wiring import FleetParts
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.acceptance import Acceptance
from spotkeep_jobs.runs.callers import CallerRules
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import LaunchCompletion
from spotkeep_jobs.runs.launch_context import LaunchContext
from spotkeep_jobs.runs.launch_outcome import pause_after_conflicts
from spotkeep_jobs.runs.new_attempts import NewAttempts
from spotkeep_jobs.runs.priorities import Priorities
from spotkeep_jobs.runs.resume import Resumption
from spotkeep_jobs.runs.run_access import RunAccess
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.runs.shells import Shells
from spotkeep_jobs.schedules.recurring_schedules import RecurringSchedules
from spotkeep_jobs.schedules.scheduled_launches import ScheduledLaunches
from spotkeep_jobs.sweeps.actions import SweepActions
from spotkeep_jobs.sweeps.advance import SweepAdvance, Tpe
from spotkeep_jobs.sweeps.launch import SweepLaunch


@dataclass(frozen=True, kw_only=True)
class Sweeps:
    """What a user can ask for about sweeps.

    Attributes:
        launch: Launches them.
        actions: Stops, pauses and resumes them.
        advance: Begins their next trials, and ends them.
    """

    launch: SweepLaunch
    actions: SweepActions
    advance: SweepAdvance


@dataclass(frozen=True, kw_only=True)
class LauncherParts:
    """What a user can ask the launcher's function for.

    Attributes:
        launcher: Launches documents.
        runs: Acts on runs.
        pools: Acts on the warm pools that runs leave.
        shells: Opens shells in runs.
        sweeps: Launches sweeps and acts on them.
        priorities: Changes the priorities of runs in queues.
        schedules: Launches documents again and again.
        access: Refuses callers who may not act on a run.
        now: The time.
    """

    launcher: Launcher
    runs: RunActions
    pools: PoolActions
    shells: Shells
    sweeps: Sweeps
    priorities: Priorities
    schedules: ScheduledLaunches
    access: RunAccess
    now: Callable[[], datetime]


def launcher_parts(
    *,
    table: RunTable,
    jobs: SageMakerTrainingJobs,
    queues: ServiceJobs,
    platform: JobPlatform,
    defaults: DeploymentDefaults,
    prices: Mapping[str, float],
    keep_bundle: Callable[[], None],
    keep_parameters: Callable[[ParametersFile], None],
    recurring: RecurringSchedules,
    now: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
    fleets: FleetParts | None = None,
    callers: CallerRules | None = None,
    sessions: SessionManager | None = None,
    tpe: Tpe | None = None,
) -> LauncherParts:
    """Put the parts together.

    Args:
        table: Where runs are recorded.
        jobs: SageMaker's training jobs.
        queues: Those that wait in a queue for their turn.
        platform: What the deployment gives every job.
        defaults: What the deployment fills into a document and insists on.
        prices: On-demand US dollars per instance and hour, by instance type.
        keep_bundle: Makes sure that what jobs and instances start with is where they fetch it.
        keep_parameters: Keeps what a job in a queue reads beside its request.
        recurring: EventBridge Scheduler.
        now: The time, aware.
        sleep: Waits for so many seconds: between tries of a transaction that met another one, and for a trial's moment.
        fleets: Attempts on EC2; None for a deployment without.
        callers: What callers may name and act on; None for a deployment that does not verify who calls.
        sessions: Starts the sessions of shells; None for a deployment without.
        tpe: Chooses the trials of a search by tpe; None for a deployment without that function.
    """
    fleets = fleets or FleetParts()
    pause = pause_after_conflicts(sleep)
    context = LaunchContext(
        table=table,
        backends=Backends(sagemaker=jobs, ec2=fleets.jobs, queues=queues),
        deployment=DeploymentPolicy(name=platform.deployment, prices=prices, limits=defaults.limits),
        defaults=defaults,
        now=now,
        pause=pause,
    )
    completion = LaunchCompletion(
        table=table, backends=context.backends, deployment=context.deployment, keep_bundle=keep_bundle, now=now
    )
    new_attempts = NewAttempts(context, platform=platform, fleets=fleets.platform, keep_parameters=keep_parameters)
    # Reminders, limits and schedules are the controller's: it reconciles every pool.
    pools = PoolReconciler(
        table=table,
        jobs=jobs,
        schedules=None,
        deployment=replace(context.deployment, pool_rules=PoolRules(reminder_lead_seconds=0)),
        clock=now,
    )
    longest = defaults.max_keep_alive_seconds
    acceptance = Acceptance(context, callers=callers, checks=fleets.checks)
    launcher = Launcher(context, acceptance=acceptance, new_attempts=new_attempts, completion=completion)
    runs = RunActions(
        context,
        resumption=Resumption(context, new_attempts=new_attempts, checks=fleets.checks),
        completion=completion,
    )
    advance = SweepAdvance(
        table=table,
        launcher=launcher,
        acceptance=acceptance,
        runs=runs,
        deployment=platform.deployment,
        prices=prices,
        now=now,
        pause=pause,
        sleep=sleep,
        tpe=tpe,
    )
    return LauncherParts(
        launcher=launcher,
        runs=runs,
        pools=PoolActions(
            table=table,
            jobs=jobs,
            reconciler=pools,
            platform=platform,
            longest_seconds=MAX_KEEP_ALIVE_SECONDS if longest is None else longest,
            now=now,
        ),
        priorities=Priorities(context, queues=queues),
        shells=Shells(context, training_jobs=jobs, sessions=sessions),
        sweeps=Sweeps(
            launch=SweepLaunch(
                table=table,
                launcher=launcher,
                acceptance=acceptance,
                advance=advance,
                prices=prices,
                has_tpe=tpe is not None,
                verifies_callers=callers is not None,
                now=now,
                pause=pause,
            ),
            actions=SweepActions(
                table=table,
                acceptance=acceptance,
                advance=advance,
                prices=prices,
                has_tpe=tpe is not None,
                now=now,
                pause=pause,
            ),
            advance=advance,
        ),
        schedules=ScheduledLaunches(
            table=table,
            recurring=recurring,
            deployment=platform.deployment,
            verifies_callers=callers is not None,
            now=now,
            pause=pause,
        ),
        access=RunAccess(table=table, rules=callers),
        now=now,
    )
