"""FIS in the local AWS, with experiment templates, and experiments in a thread each.

An experiment acts in its template's role. A denied action ends it.

Source: "IAM roles for AWS FIS experiments" and "Troubleshooting AWS FIS" in the AWS Fault Injection Service user guide.
"""

from __future__ import annotations

import contextlib
import logging
import random
import secrets
import threading
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.latencies import NOTICE_SECONDS
from spotkeep_local.fis import rules
from spotkeep_local.iam.authorization import ServiceCall
from spotkeep_local.service_base.aws_service import AwsService, RestJsonProtocol, ServiceError
from spotkeep_local.service_base.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances
    from spotkeep_local.ec2.records import Instance

_LOG = logging.getLogger(__name__)
_ALARM_CHECK_SECONDS = 0.5


class NotFoundError(ServiceError):
    """A template or an experiment does not exist."""

    code = "ResourceNotFoundException"
    status = 404


class ExperimentStatus(StrEnum):
    """The status of an experiment."""

    RUNNING = "running"
    COMPLETED = "completed"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """An experiment. Times are epoch seconds.

    Attributes:
        template: The template's request as it was at the start.
        error_code: Why it failed.
    """

    experiment_id: str
    template_id: str
    template: dict[str, Any]
    client_token: str
    created_at: float
    status: ExperimentStatus = ExperimentStatus.RUNNING
    reason: str = ""
    error_code: str | None = None
    ended_at: float | None = None
    tags: dict[str, str] = field(default_factory=dict)


class FisService:
    """The FIS of one local AWS.

    Args:
        state_dir: The folder where the service keeps its templates.
        cloud: The EC2 of the interrupted spot instances. FIS shares its clock, lock and time scale.
        instances: Interrupts them.
        is_allowed: Decides by the policies if an experiment may act.
    """

    def __init__(
        self, *, state_dir: Path, cloud: Cloud, instances: Instances, is_allowed: Callable[[ServiceCall], bool]
    ) -> None:
        self._cloud = cloud
        self._instances = instances
        self._is_allowed = is_allowed
        self._saved = StateFile(state_dir / "templates.json")
        self._templates: dict[str, dict[str, Any]] = self._saved.read().get("templates", {})
        self._experiments: dict[str, Experiment] = {}
        self._stopping = threading.Event()
        self._protocol = RestJsonProtocol("fis")
        self.api = AwsService(
            self._protocol,
            {
                "CreateExperimentTemplate": self._create_template,
                "StartExperiment": self._start_experiment,
                "GetExperiment": self._get_experiment,
            },
        )

    def stop(self) -> None:
        """End and forget experiments, and save the templates."""
        self._stopping.set()
        with self._cloud.lock:
            self._saved.write({"templates": self._templates})

    def put_template(self, request: dict[str, Any], *, template_id: str | None = None) -> str:
        """Create a template, or replace one.

        Args:
            request: As CreateExperimentTemplate takes it.
            template_id: The template to replace. None for a new one.

        Returns:
            The template's id.

        Raises:
            ServiceError: The template cannot be carried out. The message names every problem.
        """
        request = self._protocol.check("CreateExperimentTemplate", request)
        if problems := list(rules.problems(request)):
            raise ServiceError("; ".join(problems))
        template_id = template_id or f"EXT{secrets.token_hex(7)}"
        with self._cloud.lock:
            self._templates[template_id] = request
        return template_id

    def delete_template(self, template_id: str) -> None:
        """Delete a template, if it exists."""
        with self._cloud.lock:
            self._templates.pop(template_id, None)

    def tags_of(self, resource_id: str) -> Mapping[str, str]:
        """Return the tags of a template or an experiment, by its id. A missing one has none."""
        with self._cloud.lock:
            if (template := self._templates.get(resource_id)) is not None:
                return template.get("tags") or {}
            experiment = self._experiments.get(resource_id)
            return {} if experiment is None else experiment.tags

    # The API.

    def _create_template(self, request: dict[str, Any]) -> dict[str, Any]:
        described = {name: value for name, value in request.items() if name != "clientToken"}
        return {"experimentTemplate": {**described, "id": self.put_template(request)}}

    def _start_experiment(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._cloud.lock:
            for experiment in self._experiments.values():
                if experiment.client_token == request["clientToken"]:
                    return _described(experiment)
            template_id = request["experimentTemplateId"]
            if template_id not in self._templates:
                raise NotFoundError(f"The experiment template {template_id} does not exist")
            experiment = Experiment(
                experiment_id=f"EXP{secrets.token_hex(7)}",
                template_id=template_id,
                template=self._templates[template_id],
                client_token=request["clientToken"],
                created_at=self._cloud.now(),
                tags=request.get("tags", {}),
            )
            self._experiments[experiment.experiment_id] = experiment
        threading.Thread(target=self._run, args=[experiment], name=experiment.experiment_id, daemon=True).start()
        return _described(experiment)

    def _get_experiment(self, request: dict[str, Any]) -> dict[str, Any]:
        experiment_id = request["id"]
        if experiment_id not in self._experiments:
            raise NotFoundError(f"The experiment {experiment_id} does not exist")
        return _described(self._experiments[experiment_id])

    # An experiment.

    def _run(self, experiment: Experiment) -> None:
        """Recommend a rebalance, give notice two minutes before the end, and wait for the end."""
        latencies = self._cloud.latencies
        ends_at = experiment.created_at + latencies.scaled(rules.seconds_before_interruption(experiment.template))
        if not self._wait_until(experiment.created_at, experiment):
            return
        if not self._may(experiment, "ec2:DescribeInstances", "*"):
            return
        instances = self._selected(experiment)
        if not instances:
            self._fail(experiment, "InvalidTarget", "Target resolution returned empty set")
            return
        interrupt = "ec2:SendSpotInstanceInterruptions"
        if not all(
            self._may(experiment, interrupt, self._cloud.arn("instance", instance.instance_id))
            for instance in instances
        ):
            return
        for instance in instances:
            with self._lock_and_allow_gone(instance):
                self._instances.recommend_rebalance(instance.instance_id)
        if not self._wait_until(ends_at - latencies.scaled(NOTICE_SECONDS), experiment):
            return
        for instance in instances:
            with self._lock_and_allow_gone(instance):
                notice_seconds = max(0.0, ends_at - self._cloud.now())
                self._instances.announce_interruption(instance.instance_id, notice_seconds=notice_seconds)
        if self._wait_until(ends_at, experiment):
            self._end(experiment, ExperimentStatus.COMPLETED, "Experiment completed.")

    def _may(self, experiment: Experiment, action: str, resource: str) -> bool:
        """Return whether the template's role allows an action. Otherwise the experiment has failed."""
        arn = f"arn:aws:fis:{self._cloud.region}:{self._cloud.account_id}:experiment/{experiment.experiment_id}"
        role = experiment.template["roleArn"]
        call = ServiceCall(
            service="fis.amazonaws.com", actions=(action,), resource=resource, source_arn=arn, role_arn=role
        )
        allowed = self._is_allowed(call)
        if not allowed:
            reason = f"{role} does not let fis.amazonaws.com {action} on {resource} for {arn}"
            self._fail(experiment, "AuthorizationFailure", reason)
        return allowed

    def _wait_until(self, moment: float, experiment: Experiment) -> bool:
        """Wait, and check the stop conditions at least once.

        Returns:
            Whether the experiment goes on.
        """
        while True:
            for arn in rules.alarms(experiment.template):
                if self._rings(arn):
                    self._end(experiment, ExperimentStatus.STOPPED, f"Experiment halted by stop condition {arn}")
                    return False
            left = moment - self._cloud.now()
            if left <= 0:
                return True
            if self._stopping.wait(min(left, _ALARM_CHECK_SECONDS)):
                return False

    def _rings(self, arn: str) -> bool:
        try:
            return self._cloud.surroundings.alarm_rings(arn)
        except (BotoCoreError, ClientError) as error:
            _LOG.warning("the state of the alarm %s is not known: %s", arn, error)
            return False

    def _selected(self, experiment: Experiment) -> list[Instance]:
        target = rules.the_target(experiment.template)
        states = [set(item["values"]) for item in target.get("filters") or []]
        with self._cloud.lock:
            found = [
                instance
                for instance in self._cloud.instances
                if instance.spot
                and instance.state.live
                and target["resourceTags"].items() <= instance.tags.items()
                and all(instance.state.value in wanted for wanted in states)
            ]
        # FIS takes them at random; which is no secret.
        return random.sample(found, rules.how_many(target["selectionMode"], len(found)))

    @contextlib.contextmanager
    def _lock_and_allow_gone(self, instance: Instance) -> Iterator[None]:
        """Ignore that an instance ended by itself after its selection. That is no failure of the experiment."""
        with self._cloud.lock:
            try:
                yield
            except Ec2Error as error:
                _LOG.info("an experiment found the instance %s gone: %s", instance.instance_id, error)

    def _fail(self, experiment: Experiment, code: str, reason: str) -> None:
        self._end(replace(experiment, error_code=code), ExperimentStatus.FAILED, reason)

    def _end(self, experiment: Experiment, status: ExperimentStatus, reason: str) -> None:
        ended = replace(experiment, status=status, reason=reason, ended_at=self._cloud.now())
        with self._cloud.lock:
            self._experiments[experiment.experiment_id] = ended


def _described(experiment: Experiment) -> dict[str, Any]:
    error = {} if experiment.error_code is None else {"error": {"code": experiment.error_code}}
    return {
        "experiment": {
            "id": experiment.experiment_id,
            "experimentTemplateId": experiment.template_id,
            "state": {"status": experiment.status.value, "reason": experiment.reason, **error},
            "creationTime": experiment.created_at,
            "startTime": experiment.created_at,
            "endTime": experiment.ended_at,
            "tags": experiment.tags,
        }
    }
