"""One engine for every rehearsal, from an empty machine to a report.

The order is the user's own. First come a local AWS, `cdk bootstrap`, `cdk deploy` and a subscriber. Then a scenario
launches its runs or its sweep and takes their capacity away. At last it waits for the outcome and reports it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from spotkeep_cli.aws.connection import local_state_directory
from spotkeep_cli.rehearsal.deployment import (
    QUICK_SYNC,
    RehearsedDeployment,
    deploy,
    local_aws,
    require_local_secrets,
    require_no_file_systems,
    secret_settings,
    with_local_secrets,
)
from spotkeep_cli.rehearsal.evidence import ENDINGS, ReceivedNotification, RehearsalTimeoutError
from spotkeep_cli.rehearsal.permissions import since
from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_jobs.progress.training_logs import LOG_GROUP, JobLogs
from spotkeep_local import control
from spotkeep_local.capacity import CallFaults, EventFaults
from spotkeep_local.control import LocalControl

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_sns import SNSClient
    from mypy_boto3_sqs import SQSClient

    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.rehearsal.report import Report
    from spotkeep_cli.rehearsal.view import RehearsalView, Stage
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import NextStep
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_local.options import ServerOptions

_NOTE = "rehearsed-runs"


_POLL_SECONDS = 0.2
_QUIET_SECONDS = 3.0
"""Seconds to listen on for messages that should not come.

One such message is a second notification from an event that was delivered twice.
"""
_ENDING_SECONDS = 60.0

WHOLE_TRAINING: Final[Mapping[str, Any]] = {"pause_at_step": None, "schedule": None}
"""The fields that every scenario takes out of a job file.

A scenario launches at once, without a schedule. It judges the end of an interrupted training, so no step pauses it.
"""


class Subscriber:
    """Receives every notification of a topic through a queue of its own.

    A queue sees duplicates that a mailbox would see too. Promise I4 becomes checkable this way.
    """

    def __init__(self, *, sns: SNSClient, sqs: SQSClient, queue_url: str, subscription_arn: str) -> None:
        self._sns, self._sqs = sns, sqs
        self._queue_url, self._subscription_arn = queue_url, subscription_arn

    @classmethod
    def subscribe(cls, *, sns: SNSClient, sqs: SQSClient, topic_arn: str, queue_name: str) -> Subscriber:
        """Make a queue and subscribes it to a topic.

        Args:
            sns: Client of the topic's account.
            sqs: Client of the same account.
            topic_arn: The topic of the notifications.
            queue_name: The queue's name.
        """
        queue_url = sqs.create_queue(QueueName=queue_name)["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]
        policy = _lets_deliver(queue_arn=attributes["QueueArn"], topic_arn=topic_arn)
        sqs.set_queue_attributes(QueueUrl=queue_url, Attributes={"Policy": json.dumps(policy)})
        subscription = sns.subscribe(
            TopicArn=topic_arn, Protocol="sqs", Endpoint=attributes["QueueArn"], ReturnSubscriptionArn=True
        )
        return cls(sns=sns, sqs=sqs, queue_url=queue_url, subscription_arn=subscription["SubscriptionArn"])

    def receive(self, *, wait_seconds: int) -> list[ReceivedNotification]:
        """Take the notifications that have arrived, waiting up to ``wait_seconds`` (0 to 20) for the first."""
        answer = self._sqs.receive_message(
            QueueUrl=self._queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=wait_seconds
        )
        notifications = []
        for message in answer.get("Messages", []):
            notifications.append(parse_notification(json.loads(message["Body"])))
            self._sqs.delete_message(QueueUrl=self._queue_url, ReceiptHandle=message["ReceiptHandle"])
        return notifications

    def close(self) -> None:
        """End the subscription and delete the queue."""
        self._sns.unsubscribe(SubscriptionArn=self._subscription_arn)
        self._sqs.delete_queue(QueueUrl=self._queue_url)


def _lets_deliver(*, queue_arn: str, topic_arn: str) -> dict[str, Any]:
    """Return the policy of a queue that a topic delivers to. Without a policy, SNS delivers nothing."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    return {"Version": "2012-10-17", "Statement": [statement]}


def parse_notification(envelope: Mapping[str, Any]) -> ReceivedNotification:
    """Read a notification from the JSON that SNS delivers to a queue.

    The JSON is an envelope. It contains the notification for programs.

    Source: https://docs.aws.amazon.com/sns/latest/dg/sns-message-and-json-formats.html
    """
    attributes = {name: value["Value"] for name, value in envelope.get("MessageAttributes", {}).items()}
    return ReceivedNotification(
        run=attributes.get("run") or attributes.get("sweep", ""),
        status=attributes.get("status", ""),
        subject=envelope.get("Subject", ""),
        body=json.loads(envelope["Message"])["text"],
        received_at=envelope["Timestamp"],
    )


def replace_earlier(local: LocalAws, table: RunTable, *, names: Sequence[str]) -> None:
    """Remove the resources of earlier rehearsals' runs, and note this rehearsal's runs for the next one.

    A run that has not ended keeps everything, and so does one of a rehearsal under way, which judges it still. Both are
    noted again.

    Args:
        local: Their local AWS.
        table: The run table.
        names: The ids of the rehearsal's runs, or of its sweep.
    """
    note = local.state_dir / _NOTE
    kept = []
    for line in note.read_text().splitlines() if note.exists() else ():
        name, _, process = line.partition(" ")
        sweep, trials = table.sweeps.with_trials(name)
        of_trials = (table.runs.trial_run(trial.sweep, trial.number) for trial in trials)
        found = [run for run in (table.runs.get(name), *of_trials) if run is not None]
        # A sweep that goes on resumes trials that have paused.
        has_ended = (sweep is None or sweep.state.ended) and all(run.state.ended for run in found)
        if has_ended and not _is_another_process(process):
            for run in found:
                _remove(local, run, job_names=[attempt.job_name for attempt in table.runs.attempts(run.run)])
        else:
            kept.append(line)
    note.write_text("".join(f"{line}\n" for line in (*kept, *map(_noted, names))))


def note_run(local: LocalAws, name: str) -> None:
    """Note one more run of the rehearsal under way, for the next rehearsal to remove.

    Args:
        local: The local AWS that it runs on.
        name: Its id.
    """
    with (local.state_dir / _NOTE).open("a") as note:
        note.write(f"{_noted(name)}\n")


def _noted(name: str) -> str:
    return f"{name} {os.getpid()}"


def _is_another_process(process: str) -> bool:
    """Return True if a process with this id lives, and is not this one."""
    if not process.isdigit() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _remove(local: LocalAws, run: Run, *, job_names: Sequence[str]) -> None:
    session = local.session()
    bucket = session.resource("s3").Bucket(urlsplit(run.output_prefix).netloc)
    for prefix in PREFIXES:
        bucket.object_versions.filter(Prefix=f"{prefix}{run.run}/").delete()
    logs = session.client("logs")
    with contextlib.suppress(logs.exceptions.ResourceNotFoundException):  # No job has written a log yet.
        for job_name in job_names:
            found = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job_name}/")
            for stream in found["logStreams"]:
                logs.delete_log_stream(logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The parts of one kind of rehearsal that differ from the other kinds.

    Attributes:
        command: The command that rehearses it, such as `rehearse-pool`.
        introduction: The text that the command prints first. `{job_file}` stands for the job file.
        job_fields: The fields of the job file that it replaces. None takes a field away.
        of_sweep: True for the job file of a sweep, False for that of a single job.
        suffixes: The endings of the ids of its runs, or of its sweep.
        settings: Settings of the deployment, besides its name, by the fields of the job file.
        server: Options of the local AWS, where the rehearsal starts one.
        perform: Launches, takes capacity away, and judges what came back.
        report_name: The report's file name.
        failed_hint: The page to read when the rehearsal did not pass.
        next_steps: The commands to use after a passed rehearsal, with `{job_file}` and a purpose for each.
    """

    command: str
    introduction: str
    job_fields: Mapping[str, Any] = field(default_factory=lambda: WHOLE_TRAINING)
    of_sweep: bool = False
    suffixes: tuple[str, ...] = ("", "-untouched")
    settings: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda _fields: {}
    server: ServerOptions = QUICK_SYNC
    perform: Callable[[Rehearsal], Report]
    report_name: str
    failed_hint: str
    next_steps: tuple[NextStep, ...]


@dataclass(frozen=True, kw_only=True)
class RehearsalPlan:
    """The scenario to rehearse, with its options.

    Attributes:
        scenario: The kind of rehearsal.
        document: The job file. The ids of its runs are made from its name.
        invocation: The command's own words, which name the deployment.
        project_dir: The checkout whose app is deployed.
        settings: Settings of the deployment, besides its name.
        timeout_seconds: The longest wait of a scenario for any one event, in seconds.
        deploy: True to deploy the app first. Otherwise the rehearsal uses the app that was deployed before.
        keep_running: True to keep the local AWS up afterwards, even if the rehearsal started it.
    """

    scenario: Scenario
    document: JobDocument
    invocation: Invocation
    project_dir: Path
    settings: Mapping[str, str]
    timeout_seconds: float
    deploy: bool = True
    keep_running: bool = False


def rehearse(plan: RehearsalPlan, *, view: RehearsalView) -> Report:
    """Deploy the app, perform the scenario, and return its report.

    Args:
        plan: The rehearsal's plan.
        view: Shows the progress.

    Raises:
        RehearsalTimeoutError: Something did not happen in time, so there is no verdict. The runs are stopped.
        UsageError: The local AWS lacks a secret that the job reads.
        spotkeep_local.errors.LocalAwsError: The local AWS or the CDK CLI failed.
    """
    started = time.monotonic()
    require_no_file_systems(plan.document.fields)
    plan = replace(plan, document=with_local_secrets(plan.document))
    view.seconds.clear()
    begin = f"{str(plan.document.fields['name'])[:28].rstrip('-')}-{time.strftime('%m%d-%H%M%S')}"
    names = tuple(f"{begin}{suffix}" for suffix in plan.scenario.suffixes)
    with local_aws(
        local_state_directory(), options=plan.scenario.server, keep_running=plan.keep_running, view=view
    ) as local:
        require_local_secrets(local, plan.document.fields)
        # Others have used a local AWS that ran already, perhaps before anything was deployed to it.
        earlier = control.permissions(local)
        if plan.deploy:
            name = plan.invocation.options.deployment
            settings = {**secret_settings(plan.document.fields), **plan.settings}
            deploy(local, project_dir=plan.project_dir, deployment=name, settings=settings, view=view)
        deployment = RehearsedDeployment.connect(plan.document, invocation=plan.invocation)
        replace_earlier(local, deployment.table, names=names)
        session = local.session()
        subscriber = Subscriber.subscribe(
            sns=session.client("sns"),
            sqs=session.client("sqs"),
            topic_arn=deployment.notification_topic_arn,
            queue_name=f"{names[0]}-notifications",
        )
        with contextlib.closing(subscriber):
            rehearsal = Rehearsal(
                *names,
                local=local,
                deployment=deployment,
                subscriber=subscriber,
                view=view,
                timeout_seconds=plan.timeout_seconds,
            )
            with rehearsal.none_left_running():
                report = plan.scenario.perform(rehearsal)
            permissions = since(control.permissions(local), earlier=earlier)
            judging = control.judging_time(local)
    seconds = {**view.seconds, "total": time.monotonic() - started}
    return replace(report, permissions=permissions, judging=judging, seconds=seconds)


class Rehearsal:
    """A rehearsal under way.

    It knows its runs, or its sweep, in the deployed app, with all facts about them so far.

    Args:
        names: The ids of its runs, or of its sweep.
        local: The local AWS.
        deployment: The deployed app, as a user of it sees it.
        subscriber: Receives the notifications of the deployment.
        view: Shows the progress.
        timeout_seconds: The longest wait for any one event, in seconds.
    """

    def __init__(
        self,
        *names: str,
        local: LocalAws,
        deployment: RehearsedDeployment,
        subscriber: Subscriber,
        view: RehearsalView,
        timeout_seconds: float,
    ) -> None:
        self.names = list(names)
        self.local, self.session = local, local.session()
        self.deployment, self.view = deployment, view
        self.timeout_seconds = timeout_seconds
        self.notifications: list[ReceivedNotification] = []
        """The notifications of these runs that the subscriber received, in the order of arrival."""
        self._subscriber = subscriber

    @cached_property
    def control(self) -> LocalControl:
        """The control of the local AWS."""
        return LocalControl(self.local)

    @cached_property
    def s3(self) -> S3Client:
        """The client of the S3 that holds checkpoints and models."""
        client: S3Client = self.session.client("s3")
        return client

    @cached_property
    def logs(self) -> JobLogs:
        """The output of training jobs."""
        return JobLogs(self.session.client("logs"))

    @property
    def first(self) -> str:
        """The id of its first run, or of its sweep."""
        return self.names[0]

    @property
    def second(self) -> str:
        """The id of its second run."""
        return self.names[1]

    def add_run(self, suffix: str) -> str:
        """Return the id of one more run, for the scenario to launch.

        The engine listens to it and stops it like the others.

        Args:
            suffix: The ending of its id.
        """
        name = f"{self.first}{suffix}"
        self.names.append(name)
        note_run(self.local, name)
        return name

    def run(self, name: str) -> Run:
        """Return the record of a run that was launched.

        Raises:
            KeyError: It is not in the run table.
        """
        run = self.deployment.table.runs.get(name)
        if run is None:
            raise KeyError(f"run {name} was launched and is not in the run table")
        return run

    def follow(
        self,
        *names: str,
        until: Callable[[], object] = lambda: False,
        meanwhile: Callable[[Mapping[str, Run]], None] = lambda _: None,
        standing: Callable[[Run], str] = lambda run: run.state.value,
    ) -> dict[str, Run]:
        """Wait until all of these runs have ended, or something else has happened, and return their records.

        Args:
            names: The ids of the runs.
            until: Returns True once it has happened.
            meanwhile: Called with the records each time that they were read.
            standing: Returns the state of a run, for the error.

        Raises:
            RehearsalTimeoutError: Neither happened in time.
        """
        deadline = time.monotonic() + self.timeout_seconds
        while True:
            runs = {name: self.run(name) for name in names}
            meanwhile(runs)
            if all(run.state.ended for run in runs.values()) or until():
                return runs
            if time.monotonic() > deadline:
                states = {name: standing(run) for name, run in runs.items()}
                raise RehearsalTimeoutError(seconds=self.timeout_seconds, states=states)
            time.sleep(_POLL_SECONDS)

    def received(self, run: str, statuses: Iterable[str], *, within_seconds: float) -> bool:
        """Wait for a notification of a run with one of these statuses. Return True if it came in time."""
        deadline = time.monotonic() + within_seconds
        while not any(each.run == run and each.status in statuses for each in self.notifications):
            if time.monotonic() > deadline:
                return False
            self._listen()
        return True

    def listen_on(self) -> None:
        """Take notifications until none has arrived for some seconds."""
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < _QUIET_SECONDS:
            if self._listen():
                quiet_since = time.monotonic()

    def collect_endings(self, stage: Stage) -> None:
        """Listen until each ending was notified, and a little longer for notifications that should not come."""
        with self.view.stage(stage) as outcome:
            deadline = time.monotonic() + _ENDING_SECONDS
            for name in self.names:
                self.received(name, ENDINGS, within_seconds=deadline - time.monotonic())
            self.listen_on()
            outcome.append(f"{len(self.notifications)} received")

    def _listen(self) -> bool:
        """Take the messages that have arrived. Wait up to a second for the first.

        Return True if a message of this rehearsal came.
        """
        arrived = [each for each in self._subscriber.receive(wait_seconds=1) if each.run in self.names]
        self.notifications += arrived
        for notification in arrived:
            self.view.notification_received(notification)
        return bool(arrived)

    @contextlib.contextmanager
    def faults(self, *, events: EventFaults, calls: CallFaults | None = None) -> Iterator[None]:
        """Have state-change events and calls of AWS meet these faults meanwhile."""
        self.control.event_faults(events)
        self.control.call_faults(calls or CallFaults())
        try:
            yield
        finally:
            self.control.event_faults(EventFaults())
            self.control.call_faults(CallFaults())

    @contextlib.contextmanager
    def none_left_running(self) -> Iterator[None]:
        """Stop the runs of a rehearsal that ends early.

        Otherwise the local AWS would train them on, now or after its next start. The runs are stopped through their
        record, and not through their processes. The record outlives the local AWS.
        """
        try:
            yield
        except BaseException:
            for name in self.names:
                try:
                    if self.deployment.stop(name):
                        self.view.note(f"stopping {name}")
                except Exception as problem:  # noqa: BLE001 - what ended the rehearsal is what its user must hear of
                    self.view.note(f"{name} could not be stopped: {problem}")
            raise
