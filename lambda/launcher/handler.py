"""The Lambda entry point: parses the payload, calls the use case, answers, and says what happened in logs and metrics.

The payload is the event of a direct invocation, or the body of a request to the function's URL (`invocation`): a job
document, or a word about a run, a sweep or a warm pool: `{"action": "validate" | "stop" | "resume" | "describe" |
"replay-notifications" | "pause" | "priority" | "shell" | "pools" | "extend-pool" | "stop-pool" | "remove-schedule",
...}`. The controller asks it to advance sweeps, and EventBridge Scheduler to launch what is scheduled.
Beside a job document there may be a `plan`, which the command line makes: what the run is forecast with and steered by.
What the user can correct is answered (`"ok": false`). What AWS could not do for certain is raised, so that an
asynchronous invocation is retried by Lambda, with the same request id and therefore the same token. At the URL Lambda
makes the status 502 of it.

No environment variable and no hyperparameter of a job is ever logged.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from launcher import answers
from launcher.invocation import came_by_url, http_answer, read_invocation
from launcher.plan import plan_of
from launcher.settings import LauncherSettings
from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.job_files import ParametersStore, TrainingBundleStore
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.backends.session_manager import SessionManager
from spotkeep_jobs.cost.known_prices import KnownPrices
from spotkeep_jobs.document.durations import parse_duration
from spotkeep_jobs.document.reading import nearest, outlined, shown
from spotkeep_jobs.errors import AwsCallError, DurationError, Problem, RequestRefusedError
from spotkeep_jobs.functions.fleet_wiring import fleet_parts
from spotkeep_jobs.functions.launcher_wiring import LauncherParts, launcher_parts
from spotkeep_jobs.functions.tracing import traced
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.run_table_errors import RunChangedError
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.runs.launch_outcome import LaunchUnfinishedError
from spotkeep_jobs.schedules.document import is_scheduled
from spotkeep_jobs.schedules.recurring_schedules import LAUNCH_SCHEDULED, RecurringSchedules
from spotkeep_jobs.sweeps.document import is_sweep
from spotkeep_jobs.sweeps.launcher_function import ADVANCE, LauncherFunction
from spotkeep_jobs.sweeps.search.tpe_function import TpeFunction, invocation_config
from spotkeep_jobs.temporary_errors import is_temporary

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_ssm import SSMClient

    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.pools.matching import PoolMatch
    from spotkeep_jobs.record.caller import Caller

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher"))
metrics = Metrics(
    namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"),
    service=os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher"),
)

_RUN_ACTIONS = ("stop", "resume", "describe", "replay-notifications")
_POOL_ACTIONS = ("pools", "extend-pool", "stop-pool")
_SHELL_ACTION = "shell"
_PRIORITY_ACTION = "priority"
_REMOVE_SCHEDULE = "remove-schedule"
_SWEEP_ACTIONS = ("stop", "pause", "resume", "describe")
ACTIONS = (
    "launch",
    "validate",
    *_RUN_ACTIONS,
    "pause",
    _PRIORITY_ACTION,
    _SHELL_ACTION,
    *_POOL_ACTIONS,
    _REMOVE_SCHEDULE,
)
_LONGEST_COMMAND = 4_000
_KEPT_FOR_ONE_RUN_MILLISECONDS = 15_000
"""What opening, resuming or stopping one run may take, its retries included."""
HasTime = Callable[[], bool]


@functools.cache
def made_once() -> tuple[LauncherParts, RunTable, KnownPrices]:
    """Make the parts on real clients, once for each execution environment; return them with table and prices."""
    settings = LauncherSettings.from_environment()
    dynamodb = boto3.client("dynamodb", config=client_config())
    sagemaker = boto3.client("sagemaker", config=client_config())
    prices = KnownPrices(settings.prices, region=sagemaker.meta.region_name)
    table = RunTable(client=dynamodb, table_name=settings.run_table)
    fleets = fleet_parts(settings, table=table, dynamodb=dynamodb, prices=prices, now=_now)
    s3 = functools.cache(lambda: boto3.client("s3", config=client_config()))
    bundle = TrainingBundleStore(
        s3,
        asset_uri=settings.training_bundle_asset_uri,
        uri=settings.training_bundle_uri,
    )
    jobs = SageMakerTrainingJobs(sagemaker)
    made = launcher_parts(
        table=table,
        jobs=jobs,
        queues=ServiceJobs(api=ServiceJobsApi(_batch), training_jobs=jobs, deployment=settings.deployment, now=_now),
        platform=settings.platform,
        defaults=replace(settings.defaults, prices=prices, region=sagemaker.meta.region_name),
        prices=prices,
        keep_bundle=bundle.keep,
        keep_parameters=ParametersStore(s3).keep,
        recurring=RecurringSchedules(_scheduler, target=settings.schedule_target),
        now=_now,
        fleets=fleets,
        callers=settings.callers,
        sessions=SessionManager(_systems_manager) if settings.shells else None,
        tpe=None if settings.tpe_search_function is None else _tpe(settings.tpe_search_function),
    )
    return made, table, prices


@functools.cache
def launcher_function() -> LauncherFunction:
    """Return this very function, to be invoked once more: for what of a sweep this invocation leaves undone."""
    client = functools.cache(lambda: boto3.client("lambda", config=client_config()))
    return LauncherFunction(client, function_name=os.environ["AWS_LAMBDA_FUNCTION_NAME"])


def _tpe(function: str) -> TpeFunction:
    client = functools.cache(lambda: boto3.client("lambda", config=invocation_config()))
    return TpeFunction(client, function=function)


@functools.cache
def _batch() -> Any:
    return boto3.client("batch", config=client_config())


@functools.cache
def _scheduler() -> EventBridgeSchedulerClient:
    return boto3.client("scheduler", config=client_config())


@functools.cache
def _systems_manager() -> SSMClient:
    return boto3.client("ssm", config=client_config())


def production_parts() -> LauncherParts:
    """Return the parts on real clients, with prices that were read within the hour."""
    parts, table, prices = made_once()
    prices.refresh(table, now=parts.now())
    return parts


def _now() -> datetime:
    return datetime.now(UTC)


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True, log_event=False)
def handler(event: object, context: LambdaContext) -> answers.Answer:
    """Answer one invocation.

    Args:
        event: the payload, of any JSON type.
        context: Lambda's; its request id is the token of a document without one.
    """

    def has_time() -> bool:
        return context.get_remaining_time_in_millis() > _KEPT_FOR_ONE_RUN_MILLISECONDS

    answer = _answer(event, request_id=context.aws_request_id, has_time=has_time)
    return http_answer(answer, status=200 if answer["ok"] else 400) if came_by_url(event) else answer


def _answer(event: object, *, request_id: str, has_time: HasTime) -> answers.Answer:
    payload = None
    logger.set_correlation_id(request_id)
    try:
        parts = production_parts()
        if isinstance(event, Mapping) and event.get("action") == ADVANCE:
            # It names no caller: it does what the record asks for, and nothing else.
            return _advance(event, parts=parts, has_time=has_time)
        if isinstance(event, Mapping) and event.get("action") == LAUNCH_SCHEDULED:
            # Neither does this: the record says what is launched, and in whose name.
            return _launch_scheduled(event, parts=parts, request_id=request_id, has_time=has_time)
        invocation = read_invocation(event, verify_callers=parts.access.verifies_callers)
        payload, caller = invocation.payload, invocation.caller
        logger.set_correlation_id(_correlation_id(payload, request_id=request_id))
        if caller is not None:
            logger.append_keys(caller=caller.arn, caller_verified=caller.verified)
        return answer_to(
            payload,
            parts=parts,
            request_id=request_id,
            caller=caller,
            has_time=has_time,
            go_on=_go_on,
        )
    except RequestRefusedError as error:
        # The fields only: the words about them may quote a document, and SageMaker's may quote its values.
        logger.info("refused", fields=[problem.field for problem in error.problems])
        _count("LaunchRefused")
        return answers.refused(error)
    except Exception as error:
        _count("LaunchUnfinished")
        if not _passes_by_itself(error):
            raise
        run = payload.get("run") or payload.get("name") if isinstance(payload, Mapping) else None
        raise LaunchUnfinishedError(run=str(run), doing="answering for", cause=error) from error


def answer_to(
    payload: object,
    *,
    parts: LauncherParts,
    request_id: str,
    caller: Caller | None = None,
    has_time: HasTime = lambda: True,
    go_on: Callable[[str], None] = lambda _sweep: None,
) -> answers.Answer:
    """Do what a payload asks for.

    Args:
        payload: of any JSON type.
        parts: the launcher's.
        request_id: the token of a document without one.
        caller: who asks, where that is known.
        has_time: asked before each run of a sweep is opened, resumed or stopped.
        go_on: invokes the function once more, for what is left to do about a sweep.

    Raises:
        RequestRefusedError: nothing was done; it carries every problem.
        LaunchUnfinishedError: AWS did not answer for certain.
    """
    action, document = _parsed(payload)
    if action == "pause" or (action in _SWEEP_ACTIONS and "sweep" in _fields_of(document)):
        return _act_on_sweep(action, document, parts=parts, caller=caller, has_time=has_time, go_on=go_on)
    if action in _RUN_ACTIONS:
        return _act(action, document, parts=parts, caller=caller)
    if action == _SHELL_ACTION:
        return _open_shell(document, parts=parts, caller=caller)
    if action == _PRIORITY_ACTION:
        return _change_priority(document, parts=parts, caller=caller)
    if action in _POOL_ACTIONS:
        return _act_on_pools(action, document, parts=parts, caller=caller)
    if action == _REMOVE_SCHEDULE:
        return _remove_schedule(document, parts=parts, caller=caller)
    if is_scheduled(document):
        return _schedule(action, document, parts=parts, request_id=request_id, caller=caller)
    if is_sweep(document):
        return _launch_sweep(action, document, parts=parts, request_id=request_id, caller=caller, go_on=go_on)
    document, plan, problems = plan_of(document)
    if problems:
        raise _refused_with(problems, document, parts=parts, caller=caller)
    if action == "validate":
        valid = parts.launcher.validate(document, caller=caller)
        _count("DocumentValidated")
        without_pools = valid.request.backend == "ec2" or valid.request.queue is not None
        matches, troubles = ((), ()) if without_pools else _matches(valid.request, parts=parts)
        return answers.valid(valid, troubles, matches=matches, now=parts.now())
    launch = parts.launcher.launch(document, default_token=request_id, plan=plan, caller=caller)
    for run in launch.runs:
        logger.append_keys(run=run.run, attempt=run.attempt)
        logger.info("replayed" if launch.replayed else "launched", job_arn=run.job_arn, owner=run.owner)
        _count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    return answers.launched(launch)


def _schedule(
    action: str, document: Any, *, parts: LauncherParts, request_id: str, caller: Caller | None
) -> answers.Answer:
    """Judge what a schedule would launch first, and record the schedule where that is asked for."""
    asked = parts.schedules.read(document, default_token=request_id, caller=caller)
    try:
        valid = answer_to({**asked.judged, "action": "validate"}, parts=parts, request_id=request_id, caller=caller)
    except RequestRefusedError as error:
        raise RequestRefusedError([*asked.problems, *error.problems], warnings=error.warnings) from None
    if asked.problems or asked.schedule is None:
        raise RequestRefusedError(asked.problems, warnings=valid["warnings"])
    if action == "validate":
        return {**valid, "schedule": answers.schedule_document(asked.schedule, next_firing=asked.first_firing)}
    schedule, replayed = parts.schedules.begin(asked.schedule)
    logger.info("replayed" if replayed else "scheduled", schedule=schedule.schedule, owner=schedule.owner)
    _count("LaunchReplayed" if replayed else "ScheduleAccepted")
    return answers.scheduled(schedule, now=parts.now(), replayed=replayed, warnings=valid["warnings"])


def _remove_schedule(document: Any, *, parts: LauncherParts, caller: Caller | None) -> answers.Answer:
    _only(document, ("schedule",))
    schedule = parts.schedules.known(str(document.get("schedule")))
    logger.append_keys(schedule=schedule.schedule)
    parts.access.authorize_for(schedule.schedule, owner=schedule.owner, team=schedule.team, caller=caller)
    parts.schedules.remove(schedule)
    logger.info(_REMOVE_SCHEDULE)
    _count("ScheduleRemoved")
    return {"ok": True, "schedule": schedule.schedule}


def _launch_scheduled(
    event: Mapping[str, Any], *, parts: LauncherParts, request_id: str, has_time: HasTime
) -> answers.Answer:
    firing = parts.schedules.firing(event.get("schedule"), event.get("firing"))
    if firing is None:
        return {"ok": True, "ignored": "no schedule of this deployment fires then"}
    logger.append_keys(schedule=firing.schedule.schedule)
    try:
        answer = answer_to(
            firing.document,
            parts=parts,
            request_id=request_id,
            caller=firing.caller,
            has_time=has_time,
            go_on=_go_on,
        )
    except RequestRefusedError as error:
        parts.schedules.keep(firing, refusal=str(error))
        _count("ScheduledLaunchRefused")
        raise
    parts.schedules.keep(firing, launched=str(answer.get("sweep") or answer.get("group") or answer["run"]))
    return answer


def _launch_sweep(
    action: str,
    document: Any,
    *,
    parts: LauncherParts,
    request_id: str,
    caller: Caller | None,
    go_on: Callable[[str], None],
) -> answers.Answer:
    if action == "validate":
        valid = parts.sweeps.launch.validate(document, caller=caller, default_token=request_id)
        _count("DocumentValidated")
        return answers.judged_sweep(valid, now=parts.now())
    launch = parts.sweeps.launch.launch(document, default_token=request_id, caller=caller)
    sweep = launch.advanced.sweep
    logger.append_keys(sweep=sweep.sweep)
    logger.info("replayed" if launch.replayed else "launched", owner=sweep.owner)
    _count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    if not sweep.state.ended:
        go_on(sweep.sweep)
    return answers.launched_sweep(launch)


def _act_on_sweep(
    action: str,
    document: Any,
    *,
    parts: LauncherParts,
    caller: Caller | None,
    has_time: HasTime,
    go_on: Callable[[str], None],
) -> answers.Answer:
    changes, document = _changes_of(document) if action == "resume" else ({}, document)
    sweep = _id_of(document, "sweep")
    logger.append_keys(sweep=sweep)
    item = parts.sweeps.actions.known(sweep)
    if action == "describe":
        _count("SweepDescribed")
        return answers.described_sweep(item, parts.sweeps.actions.trials(sweep))
    parts.access.authorize_for(sweep, owner=item.owner, team=item.team, caller=caller)
    if action == "resume":
        advanced = parts.sweeps.actions.resume(sweep, changes=changes, has_time=has_time)
        _count("ResumeAccepted")
    else:
        as_ = SweepState.PAUSED if action == "pause" else SweepState.STOPPED
        advanced = parts.sweeps.actions.stop(sweep, as_=as_, has_time=has_time)
        _count("StopRequested")
    logger.info(action, state=advanced.sweep.state)
    if advanced.waits_because is not None:
        go_on(sweep)
    return answers.sweep_stands(advanced.sweep)


def _advance(event: Mapping[str, Any], *, parts: LauncherParts, has_time: HasTime) -> answers.Answer:
    sweep, runs = event.get("sweep"), event.get("runs")
    if not isinstance(sweep, str) or not (runs is None or isinstance(runs, Collection)):
        problem = Problem(
            field="sweep", found=shown(sweep), problem="is no sweep to advance", fix="Name one by its id."
        )
        raise RequestRefusedError([problem])
    logger.append_keys(sweep=sweep)
    _count("SweepAdvanced")
    advanced = parts.sweeps.advance.advance(sweep, ended_runs=runs, has_time=has_time)
    if advanced is None:
        return {"ok": True, "ignored": "no sweep of this deployment"}
    logger.info(
        "advanced",
        state=advanced.sweep.state,
        opened=advanced.opened,
        resumed=advanced.resumed,
        stopped=advanced.stopped,
        refused=sorted(advanced.refused),
        waits_because=advanced.waits_because,
    )
    return answers.sweep_stands(advanced.sweep)


def _go_on(sweep: str) -> None:
    """Have the rest done by another invocation; where Lambda does not take it, by a pass of the controller."""
    try:
        launcher_function().advance(sweep)
    except AwsCallError as error:
        logger.warning("the controller's next pass advances the sweep", sweep=sweep, problem=str(error))


def _refused_with(
    problems: Sequence[Problem], document: object, *, parts: LauncherParts, caller: Caller | None
) -> RequestRefusedError:
    """Return a plan that cannot be used, and all that is wrong with the document beside it (I7)."""
    try:
        valid = parts.launcher.validate(document, caller=caller)
    except RequestRefusedError as error:
        return RequestRefusedError([*error.problems, *problems], warnings=error.warnings)
    return RequestRefusedError(problems, warnings=valid.warnings)


def _act(action: str, document: Any, *, parts: LauncherParts, caller: Caller | None) -> answers.Answer:
    if action == "describe":
        run = _id_of(document, "run")
        logger.append_keys(run=run)
        _count("RunDescribed")
        return answers.described(*parts.runs.describe(run))
    changes, document = _changes_of(document) if action == "resume" else ({}, document)
    run = _own_run(document, parts=parts, caller=caller)
    if action == "replay-notifications":
        notification_ids = parts.runs.replay_notifications(run)
        _count("NotificationsReplayed")
        logger.info(action, notification_ids=notification_ids)
        return answers.replayed(run, notification_ids)
    if action == "stop":
        answer = answers.acted_on(parts.runs.stop(run))
        _count("StopRequested")
    else:
        launch = parts.runs.resume(run, changes=changes)
        answer = answers.launched(launch)
        _count("ResumeReplayed" if launch.replayed else "ResumeAccepted")
    logger.info(action, state=answer["state"], attempt=answer["attempt"])
    return answer


def _own_run(document: Any, *, parts: LauncherParts, caller: Caller | None) -> str:
    """Return the run that a payload names and that its caller may act on; it names nothing else.

    Raises:
        RequestRefusedError: It names no run, or something else, or a run that the caller may not act on.
    """
    run = _id_of(document, "run")
    logger.append_keys(run=run)
    parts.access.authorize(run, caller=caller)
    return run


def _open_shell(document: Any, *, parts: LauncherParts, caller: Caller | None) -> answers.Answer:
    command, host = document.get("command"), document.get("host", 1)
    problems = []
    if not (command is None or (isinstance(command, str) and 0 < len(command) <= _LONGEST_COMMAND)):
        fix = f"Write 1 to {_LONGEST_COMMAND:,} characters as a shell reads them, or leave it out for a shell."
        problems.append(Problem(field="command", found=shown(command), problem="is no command", fix=fix))
    if type(host) is not int or host < 1:
        problems.append(
            Problem(field="host", found=shown(host), problem="is not a number from 1", fix="Give 1, or leave it out.")
        )
    if problems:
        raise RequestRefusedError(problems)
    run = _own_run(_without(document, "command", "host"), parts=parts, caller=caller)
    shell = parts.shells.open(run, command=command, host=host, asked_by=None if caller is None else caller.name)
    _count("ShellOpened")
    logger.info("shell", session=shell.session.id, target=shell.parameters["Target"])
    return answers.shell_opened(shell)


def _change_priority(document: Any, *, parts: LauncherParts, caller: Caller | None) -> answers.Answer:
    run = _own_run(_without(document, "priority"), parts=parts, caller=caller)
    answer = answers.acted_on(parts.priorities.change(run, priority=document.get("priority")))
    _count("PriorityChanged")
    logger.info("priority", queue=answer["queue"])
    return answer


def _act_on_pools(action: str, document: Any, *, parts: LauncherParts, caller: Caller | None) -> answers.Answer:
    if action == "pools":
        _only(document, ())
        _count("PoolsListed")
        return answers.pools(parts.pools.pools(), now=parts.now())
    if action == "stop-pool":
        pool = parts.pools.stop(run=_own_run(document, parts=parts, caller=caller))
        _count("PoolStopped")
    else:
        seconds = _seconds_of(document)
        run = _own_run(_without(document, "for"), parts=parts, caller=caller)
        pool = parts.pools.extend(run=run, seconds=seconds)
        _count("PoolExtended")
    logger.info(action, state=pool.state, kept_until=pool.kept_until.isoformat())
    return answers.pool_changed(pool, now=parts.now())


def _matches(request: JobRequest, *, parts: LauncherParts) -> tuple[Sequence[PoolMatch], tuple[str, ...]]:
    """Return the pools held against a job; a judgement of the job does not fail because they could not be read."""
    try:
        return parts.pools.match(request), ()
    except (AwsCallError, RunChangedError, ClientError, BotoCoreError) as error:
        logger.warning("warm pools not read", problem=str(error))
        return (), ("the warm pools could not be read; the job may take one all the same",)


def _seconds_of(document: Any) -> int:
    value = document.get("for")
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        raise RequestRefusedError(
            [Problem(field="for", found=shown(value), problem=error.problem, fix=error.fix)]
        ) from None
    if seconds < 1:
        problem = "is no time: it says by how much longer to keep the pool"
        fix = "Write a duration such as 30m; to end the pool, use stop-pool."
        raise RequestRefusedError([Problem(field="for", found=shown(value), problem=problem, fix=fix)])
    return seconds


def _passes_by_itself(error: Exception) -> bool:
    """Return whether the run table was throttled or out of reach (SageMaker's errors have types of their own)."""
    return isinstance(error, BotoCoreError) or (isinstance(error, ClientError) and is_temporary(error.response))


def _count(metric: str) -> None:
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)


def _correlation_id(payload: object, *, request_id: str) -> str:
    """Return the token, which all tries of one launch share, or else the request id."""
    token = payload.get("token") if isinstance(payload, Mapping) else None
    return token[:128] if isinstance(token, str) else request_id


def _parsed(payload: object) -> tuple[str, object]:
    if not isinstance(payload, Mapping) or "action" not in payload:
        return "launch", payload
    action = payload["action"]
    if action not in ACTIONS:
        problem = Problem(
            field="action",
            found=shown(action),
            problem=f"is not one of {', '.join(ACTIONS)}",
            fix=f"{nearest(action, ACTIONS)}",
        )
        raise RequestRefusedError([problem])
    return action, _without(payload, "action")


def _without(document: Mapping[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in fields}


def _strangers(document: Any, known: tuple[str, ...]) -> list[Problem]:
    takes = " and ".join(f"`{name}`" for name in known) + " alone" if known else "nothing"
    return [
        Problem(
            field=shown(field),
            found=shown(value),
            problem="is not a field of this action",
            fix=f"Remove it: this action takes {takes}.",
        )
        for field, value in list(document.items())[:100]
        if field not in known
    ]


def _only(document: Any, known: tuple[str, ...]) -> None:
    if problems := _strangers(document, known):
        raise RequestRefusedError(problems)


def _changes_of(document: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the fields that a resume changes, and the rest of its payload."""
    changes = document.get("changes")
    if changes is not None and not (isinstance(changes, Mapping) and all(isinstance(name, str) for name in changes)):
        problem = "is no object of fields and their new values"
        fix = 'Write the fields as in a job document: {"source": {"uri": ..., "sha256": ...}}.'
        raise RequestRefusedError([Problem(field="changes", found=outlined(changes), problem=problem, fix=fix)])
    return dict(changes or {}), _without(document, "changes")


def _fields_of(document: object) -> Collection[Any]:
    return document.keys() if isinstance(document, Mapping) else ()


def _id_of(document: Any, what: Literal["run", "sweep"]) -> str:
    problems = _strangers(document, (what,))
    found = document.get(what)
    if not isinstance(found, str) or not 1 <= len(found) <= 63:
        fix = f"See the {what}s: spotkeep ps --all"
        problems.append(Problem(field=what, found=shown(found), problem=f"is not a {what} id", fix=fix))
    if problems:
        raise RequestRefusedError(problems)
    return str(found)


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    made_once()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
