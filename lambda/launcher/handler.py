"""The Lambda entry point of the launcher. It parses the payload, runs the action, and answers.

The payload is the event of a direct invocation, or the body of a request to the function's URL. It is a job document,
or an action on a run, a sweep, a warm pool or a schedule (`payload`). The controller asks the launcher to advance
sweeps. EventBridge Scheduler asks it to launch the document of a schedule. The command line adds a `plan` to a job
document.

An error that the user can correct is answered with `ok` set to false. The handler raises an error if AWS gave no
certain answer. Lambda then retries an asynchronous invocation with the same request id, and therefore with the same
token. At the URL Lambda answers with the status 502.

An event of the URL names the caller that signed the request. A caller of the function itself can write the same event
by hand. So the event proves its caller only if no user may invoke the function (the setting `verify_callers`).

Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html#urls-payloads
"""

from __future__ import annotations

import base64
import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from launcher import actions, answers
from launcher.actions import ActionContext, answer_document, count, logger, metrics
from launcher.payload import (
    DocumentAction,
    PoolEnd,
    PoolExtension,
    PoolListing,
    PriorityChange,
    RunAction,
    ScheduleFiring,
    ScheduleRemoval,
    ShellOpening,
    SweepAction,
    SweepAdvance,
    read_action,
    read_own_event,
)
from spotkeep_jobs.deployment import Clients, Deployment
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import AwsCallError, Problem, RequestRefusedError, UnreadableRecordError
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.runs.callers import unknown_caller
from spotkeep_jobs.runs.launch_completion import CALL_AGAIN, LaunchUnfinishedError
from spotkeep_jobs.settings import LauncherSettings
from spotkeep_jobs.sweeps.launcher_function import LauncherFunction
from spotkeep_jobs.temporary_errors import is_temporary
from spotkeep_jobs.tracing import traced

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


_KEPT_FOR_ONE_RUN_SECONDS: Final = 15
"""The longest time for opening, resuming or stopping one run, its retries included."""


@functools.cache
def cached_deployment() -> Deployment[LauncherSettings]:
    """Return the deployment, which is made once for each execution environment."""
    return Deployment(settings=LauncherSettings.from_environment(), clients=Clients())


def current_deployment() -> Deployment[LauncherSettings]:
    """Return the deployment, with prices that were read within the hour."""
    deployment = cached_deployment()
    deployment.refresh_prices()
    return deployment


@functools.cache
def launcher_function() -> LauncherFunction:
    """Return this function, which is invoked once more for a sweep that has more to do."""
    clients = cached_deployment().clients
    return LauncherFunction(lambda: clients.functions, function_name=os.environ["AWS_LAMBDA_FUNCTION_NAME"])


@traced
@metrics.log_metrics(capture_cold_start_metric=True)
@logger.inject_lambda_context(clear_state=True, log_event=False)
def handler(event: object, context: LambdaContext) -> answers.Answer:
    """Answer one invocation.

    Args:
        event: The payload, of any JSON type.
        context: Lambda's. Its request id is the token of a document without one.
    """

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1_000 - _KEPT_FOR_ONE_RUN_SECONDS

    answer = answer_event(event, request_id=context.aws_request_id, seconds_left=seconds_left)
    return http_answer(answer, status=200 if answer["ok"] else 400) if came_by_url(event) else answer


def answer_event(event: object, *, request_id: str, seconds_left: Callable[[], float]) -> answers.Answer:
    """Answer one invocation with the launcher's own answer, from the URL as well as from a direct invocation.

    Args:
        event: The event of the invocation.
        request_id: Lambda's id of the invocation.
        seconds_left: Returns the seconds that the function still has, less the time that one run may need.

    Raises:
        LaunchUnfinishedError: AWS did not answer for certain.
        UnreadableRecordError: A sweep is to be advanced or a schedule fires, and a record of it cannot be read.
    """
    payload, own_event = None, None
    logger.set_correlation_id(request_id)
    try:
        deployment = current_deployment()
        context = ActionContext(deployment=deployment, request_id=request_id, seconds_left=seconds_left, go_on=_go_on)
        match own_event := read_own_event(event):
            case SweepAdvance() as asked:
                return actions.advance_sweep(asked, context)
            case ScheduleFiring() as asked:
                return actions.launch_scheduled(asked, context)
        invocation = read_invocation(event, verify_callers=deployment.settings.verify_callers)
        payload, caller = invocation.payload, invocation.caller
        logger.set_correlation_id(_correlation_id(payload, request_id=request_id))
        if caller is not None:
            logger.append_keys(caller=caller.arn, caller_verified=caller.verified)
        return answer_to(payload, replace(context, caller=caller))
    except RequestRefusedError as error:
        if own_event is not None and isinstance(error, UnreadableRecordError):
            # No user reads the answer: the function fails, and its alarm shows the record.
            count("LaunchUnfinished")
            raise
        # The fields only: the words about them may quote a document, and SageMaker's may quote its values.
        logger.info("refused", fields=[problem.field for problem in error.problems])
        count("LaunchRefused")
        return answers.refused(error)
    except Exception as error:
        count("LaunchUnfinished")
        if not _passes_by_itself(error):
            raise
        raise _unfinished(payload, request_id=request_id, cause=error) from error


def answer_to(payload: object, context: ActionContext) -> answers.Answer:
    """Run the action that a user asks for.

    Args:
        payload: The payload, of any JSON type.
        context: The deployment, the caller and the time of the action.

    Raises:
        RequestRefusedError: Nothing was done. It carries every problem.
        LaunchUnfinishedError: AWS did not answer for certain.
    """
    match read_action(payload):
        case DocumentAction() as asked:
            return answer_document(asked, context)
        case RunAction() as asked:
            return actions.act_on_run(asked, context)
        case SweepAction() as asked:
            return actions.act_on_sweep(asked, context)
        case PriorityChange() as asked:
            return actions.change_priority(asked, context)
        case ShellOpening() as asked:
            return actions.open_shell(asked, context)
        case PoolListing():
            return actions.list_pools(context)
        case PoolExtension() as asked:
            return actions.extend_pool(asked, context)
        case PoolEnd() as asked:
            return actions.stop_pool(asked, context)
        case ScheduleRemoval() as asked:
            return actions.remove_schedule(asked, context)


def _go_on(asked: SweepAdvance) -> None:
    """Have another invocation do the rest. If Lambda refuses the call, a pass of the controller does it."""
    try:
        launcher_function().advance(asked.sweep, ended_runs=asked.ended_runs, in_a_row=asked.in_a_row)
    except AwsCallError as error:
        logger.warning("the controller's next pass advances the sweep", sweep=asked.sweep, problem=str(error))


def _passes_by_itself(error: Exception) -> bool:
    """Return whether the run table was throttled or out of reach (SageMaker's errors have types of their own)."""
    return isinstance(error, BotoCoreError) or (isinstance(error, ClientError) and is_temporary(error.response))


def _unfinished(payload: object, *, request_id: str, cause: Exception) -> LaunchUnfinishedError:
    """Return the error of an action at any of its reads and writes of the run table."""
    asked: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    named = asked.get("run") or asked.get("sweep") or asked.get("schedule") or asked.get("name")
    doing = "the answer" if named is None else f"the answer for {named!r}"
    again = CALL_AGAIN
    if asked and "action" not in asked:
        again = f"Call again with the same document and token {asked.get('token') or request_id}"
    then = f"It is not known if the request was recorded. {again}. The controller goes on with all that is recorded"
    return LaunchUnfinishedError(doing, cause=cause, then=then)


def _correlation_id(payload: object, *, request_id: str) -> str:
    """Return the token, which all tries of one launch share, or else the request id."""
    token = payload.get("token") if isinstance(payload, Mapping) else None
    return token[:128] if isinstance(token, str) else request_id


MOST_BODY_BYTES: Final = 1_048_576
"""A size larger than any document that fits into a run's record. DynamoDB takes 400 kB an item."""


@dataclass(frozen=True, kw_only=True)
class LauncherInvocation:
    """The payload and the caller of an invocation.

    Attributes:
        payload: A job document or an action, of any JSON type.
        caller: The caller, or None if the event does not name one.
    """

    payload: object
    caller: Caller | None


def came_by_url(event: object) -> bool:
    """Return whether an event has the shape of those that AWS makes for a function URL."""
    return isinstance(event, Mapping) and isinstance(_inside(event, "requestContext", "http"), Mapping)


def read_invocation(event: object, *, verify_callers: bool) -> LauncherInvocation:
    """Read an event.

    Args:
        event: The event of the invocation, of any JSON type.
        verify_callers: True if users reach the function by its URL alone.

    Raises:
        RequestRefusedError: It holds no payload, or names no caller where one is needed.
    """
    caller = None
    if came_by_url(event):
        arn = _inside(event, "requestContext", "authorizer", "iam", "userArn")
        caller = Caller.of(arn, verified=verify_callers)
    if verify_callers and caller is None:
        raise RequestRefusedError([unknown_caller()])
    payload = _read_body(event) if came_by_url(event) else event
    return LauncherInvocation(payload=payload, caller=caller)


def http_answer(answer: Mapping[str, Any], *, status: int) -> dict[str, Any]:
    """Return the value from which a function URL makes an HTTP answer."""
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json", "cache-control": "no-store"},
        "body": json.dumps(answer),
    }


def _read_body(event: Any) -> object:
    method = _inside(event, "requestContext", "http", "method")
    if method != "POST":
        raise _refused("(method)", shown(method), "is not POST", "Send the document as the body of a POST.")
    body = event.get("body")
    if not isinstance(body, str) or not body:
        raise _refused("(body)", "nothing", "is required", "Send the document, as JSON.")
    if len(body) > MOST_BODY_BYTES:
        raise _refused("(body)", f"{len(body):,} characters", "is larger than any document", "Send less than 1 MiB.")
    try:
        return json.loads(base64.b64decode(body, validate=True) if event.get("isBase64Encoded") is True else body)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        problem = f"is not JSON that can be read: {reason}"
        raise _refused("(body)", f"{len(body):,} characters", problem, "Send the document, as JSON.") from None


def _refused(field: str, found: str, problem: str, fix: str) -> RequestRefusedError:
    return RequestRefusedError([Problem(field=field, found=found, problem=problem, fix=fix)])


def _inside(value: object, *path: str) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


if "AWS_LAMBDA_INITIALIZATION_TYPE" in os.environ:
    # In a real Lambda the clients are made while it initialises, which has a full CPU.
    _ = cached_deployment().table, cached_deployment().training_jobs
