"""The Lambda entry point: parses the payload, calls the use case, answers, and says what happened in logs and metrics.

A payload is a job document, or a word about a run:
`{"action": "validate" | "stop" | "resume" | "describe" | "replay-notices", ...}`.
Beside a job document there may be a `plan`, which the command line makes: what the run is forecast with and steered by.
What the user can correct is answered (`"ok": false`). What AWS could not do for certain is raised, so that an
asynchronous invocation is retried by Lambda, with the same request id and therefore the same token.

No environment variable and no hyperparameter of a job is ever logged.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from botocore.exceptions import BotoCoreError, ClientError

from launcher import answers
from launcher.plan import plan_of
from launcher.settings import LauncherSettings
from spotkeep_jobs.aws_errors import is_temporary
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.launch import Launcher, LaunchUnfinishedError
from spotkeep_jobs.run_table import RunTable
from spotkeep_jobs.sagemaker_api import SageMakerTrainingJobs, client_config
from spotkeep_jobs.tracing import traced
from spotkeep_jobs.validation import nearest, shown

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher"))
metrics = Metrics(
    namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Spotkeep"),
    service=os.environ.get("POWERTOOLS_SERVICE_NAME", "launcher"),
)

_RUN_ACTIONS = ("stop", "resume", "describe", "replay-notices")
ACTIONS = ("launch", "validate", *_RUN_ACTIONS)


@functools.cache
def production_launcher() -> Launcher:
    """The launcher on real clients, made once for each execution environment."""
    settings = LauncherSettings.from_environment()
    return Launcher(
        table=RunTable(
            client=boto3.client("dynamodb", config=client_config()),
            table_name=settings.run_table,
            retention_days=settings.run_retention_days,
        ),
        jobs=SageMakerTrainingJobs(boto3.client("sagemaker", config=client_config())),
        platform=settings.platform,
        defaults=settings.defaults,
        prices=settings.prices,
        now=lambda: datetime.now(UTC),
    )


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True, log_event=False)
def handler(event: object, context: LambdaContext) -> answers.Answer:
    """Answer one invocation.

    Args:
        event: the payload, of any JSON type.
        context: Lambda's; its request id is the token of a document without one.
    """
    logger.set_correlation_id(_correlation_id(event, request_id=context.aws_request_id))
    try:
        return answer_to(event, launcher=production_launcher(), request_id=context.aws_request_id)
    except RequestRefusedError as error:
        # The fields only: the words about them may quote a document, and SageMaker's may quote its values.
        logger.info("refused", fields=[problem.field for problem in error.problems])
        _count("LaunchRefused")
        return answers.refused(error)
    except Exception as error:
        _count("LaunchUnfinished")
        if not _passes_by_itself(error):
            raise
        run = event.get("run") or event.get("name") if isinstance(event, Mapping) else None
        raise LaunchUnfinishedError(run=str(run), doing="answering for", cause=error) from error


def answer_to(event: object, *, launcher: Launcher, request_id: str) -> answers.Answer:
    """Do what a payload asks for.

    Args:
        event: the payload.
        launcher: does it.
        request_id: the token of a document without one.

    Raises:
        RequestRefusedError: nothing was done; it carries every problem.
        LaunchUnfinishedError: AWS did not answer for certain.
    """
    action, document = _parsed(event)
    if action in _RUN_ACTIONS:
        return _act(action, _run_of(document), launcher=launcher)
    document, plan, problems = plan_of(document)
    if problems:
        raise _refused_with(problems, document, launcher=launcher)
    if action == "validate":
        request, warnings = launcher.validate(document)
        _count("DocumentValidated")
        return answers.valid(request, warnings, usd_per_hour=launcher.usd_per_hour(request))
    launch = launcher.launch(document, default_token=request_id, plan=plan)
    logger.append_keys(run=launch.run.run, attempt=launch.run.attempt)
    logger.info("replayed" if launch.replayed else "launched", job_arn=launch.run.job_arn, owner=launch.run.owner)
    _count("LaunchReplayed" if launch.replayed else "LaunchAccepted")
    return answers.launched(launch)


def _refused_with(problems: Sequence[Problem], document: object, *, launcher: Launcher) -> RequestRefusedError:
    """A plan that cannot be used, and all that is wrong with the document beside it (I7)."""
    try:
        _, warnings = launcher.validate(document)
    except RequestRefusedError as error:
        return RequestRefusedError([*error.problems, *problems], warnings=error.warnings)
    return RequestRefusedError(problems, warnings=warnings)


def _act(action: str, run: str, *, launcher: Launcher) -> answers.Answer:
    logger.append_keys(run=run)
    if action == "describe":
        _count("RunDescribed")
        return answers.described(launcher.describe(run))
    if action == "replay-notices":
        notice_ids = launcher.replay_notices(run)
        _count("NoticesReplayed")
        logger.info(action, notice_ids=notice_ids)
        return answers.replayed(run, notice_ids)
    if action == "stop":
        answer = answers.stopping(launcher.stop(run))
        _count("StopRequested")
    else:
        launch = launcher.resume(run)
        answer = answers.launched(launch)
        _count("ResumeReplayed" if launch.replayed else "ResumeAccepted")
    logger.info(action, state=answer["state"], attempt=answer["attempt"])
    return answer


def _passes_by_itself(error: Exception) -> bool:
    """Whether the run table was throttled or out of reach (SageMaker's errors have types of their own)."""
    return isinstance(error, BotoCoreError) or (isinstance(error, ClientError) and is_temporary(error.response))


def _count(metric: str) -> None:
    metrics.add_metric(name=metric, unit=MetricUnit.Count, value=1)


def _correlation_id(event: object, *, request_id: str) -> str:
    """The token, which all tries of one launch share, or else the request id."""
    token = event.get("token") if isinstance(event, Mapping) else None
    return token[:128] if isinstance(token, str) else request_id


def _parsed(event: object) -> tuple[str, object]:
    if not isinstance(event, Mapping) or "action" not in event:
        return "launch", event
    action = event["action"]
    if action not in ACTIONS:
        problem = Problem(
            field="action",
            found=shown(action),
            problem=f"is not one of {', '.join(ACTIONS)}",
            fix=f"{nearest(action, ACTIONS)}",
        )
        raise RequestRefusedError([problem])
    return action, {field: value for field, value in event.items() if field != "action"}


def _run_of(document: Any) -> str:
    problems = [
        Problem(
            field=shown(field),
            found=shown(value),
            problem="is not a field of this action",
            fix="Remove it: an action on a run takes `run` alone.",
        )
        for field, value in list(document.items())[:100]
        if field != "run"
    ]
    run = document.get("run")
    if not isinstance(run, str) or not 1 <= len(run) <= 63:
        problems.append(
            Problem(field="run", found=shown(run), problem="is not a run id", fix="See the runs: spotkeep ps --all")
        )
        run = ""
    if problems:
        raise RequestRefusedError(problems)
    return run


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    production_launcher()  # In a real Lambda the clients are made while it initialises, which has a full CPU.
