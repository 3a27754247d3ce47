"""FIS in the local AWS, with experiment templates, and experiments in a thread each.

An experiment acts in its template's role. A denied action ends it.

Source: "IAM roles for AWS FIS experiments" and "Troubleshooting AWS FIS" in the AWS Fault Injection Service user guide.
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
import secrets
import threading
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_local.ec2.cloud import NOTICE_SECONDS
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.principals import ServiceCall
from spotkeep_local.service_base.aws_service import AwsService, RestJsonProtocol, ServiceError
from spotkeep_local.service_base.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances
    from spotkeep_local.ec2.records import LocalInstance

_INTERRUPT_SPOT = "aws:ec2:send-spot-instance-interruptions"
_SPOT_INSTANCE = "aws:ec2:spot-instance"
_TARGET_KEY = "SpotInstances"
_DURATION = re.compile(r"PT(\d+)M")
_SHORTEST_MINUTES, _LONGEST_MINUTES = 2, 15
_SELECTION = re.compile(r"ALL|COUNT\(([1-9]\d*)\)")
_SOURCES = ("none", "aws:cloudwatch:alarm")


_LOG = logging.getLogger(__name__)
_ALARM_CHECK_SECONDS = 0.5


def problems_of(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason to refuse a template."""
    actions, targets = template.get("actions") or {}, template.get("targets") or {}
    if len(actions) != 1:
        yield f"actions must hold one action in the local AWS, found {len(actions)}"
    for name, action in actions.items():
        yield from _action_problems(name, action, targets)
    for name, target in targets.items():
        yield from _target_problems(name, target)
    for condition in template.get("stopConditions") or []:
        if condition["source"] not in _SOURCES:
            yield f"a stop condition's source must be one of {', '.join(_SOURCES)}, found {condition['source']!r}"
        elif condition["source"] != "none" and not condition.get("value"):
            yield "a stop condition of source aws:cloudwatch:alarm needs the alarm's ARN as its value"


def the_action(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a checked template's action."""
    (action,) = template["actions"].values()
    assert isinstance(action, dict)  # noqa: S101 - the model says so
    return action


def the_target(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a checked template's action."""
    target: Mapping[str, Any] = template["targets"][the_action(template)["targets"][_TARGET_KEY]]
    return target


def seconds_before_interruption(template: Mapping[str, Any]) -> float:
    """Return the time from the start of a checked template's action to the interruption."""
    match = _DURATION.fullmatch(the_action(template)["parameters"]["durationBeforeInterruption"])
    assert match is not None  # noqa: S101 - `problems` refused everything else
    return 60.0 * int(match[1])


def how_many(selection_mode: str, found: int) -> int:
    """Return the number of found instances that a checked selection mode takes."""
    match = _SELECTION.fullmatch(selection_mode)
    assert match is not None  # noqa: S101 - `problems` refused everything else
    return min(int(match[1]), found) if match[1] else found


def alarms(template: Mapping[str, Any]) -> list[str]:
    """Return the ARNs of the alarms that stop an experiment."""
    return [item["value"] for item in template.get("stopConditions") or [] if item["source"] != "none"]


def _action_problems(name: str, action: Mapping[str, Any], targets: Mapping[str, Any]) -> Iterator[str]:
    if action["actionId"] != _INTERRUPT_SPOT:
        yield f"action {name}: the local AWS has {_INTERRUPT_SPOT} alone, found {action['actionId']!r}"
        return
    duration = (action.get("parameters") or {}).get("durationBeforeInterruption", "")
    match = _DURATION.fullmatch(duration)
    if match is None or not _SHORTEST_MINUTES <= int(match[1]) <= _LONGEST_MINUTES:
        yield (
            f"action {name}: durationBeforeInterruption must be from PT{_SHORTEST_MINUTES}M to "
            f"PT{_LONGEST_MINUTES}M, found {duration!r}"
        )
    named = (action.get("targets") or {}).get(_TARGET_KEY)
    if named not in targets:
        yield f"action {name}: targets.{_TARGET_KEY} must name one of the template's targets, found {named!r}"


def _target_problems(name: str, target: Mapping[str, Any]) -> Iterator[str]:
    if target["resourceType"] != _SPOT_INSTANCE:
        yield f"target {name}: the local AWS has {_SPOT_INSTANCE} alone, found {target['resourceType']!r}"
    if not target.get("resourceTags"):
        yield f"target {name}: needs resourceTags; the local AWS finds instances by nothing else"
    if _SELECTION.fullmatch(target["selectionMode"]) is None:
        yield f"target {name}: selectionMode must be ALL or COUNT(n) here, found {target['selectionMode']!r}"
    for item in target.get("filters") or []:
        if item["path"] != "State.Name":
            yield f"target {name}: the local AWS filters by State.Name alone, found {item['path']!r}"


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
        error_code: The code of its failure.
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
            request: The request as CreateExperimentTemplate takes it.
            template_id: The template to replace. None for a new one.

        Returns:
            The template's id.

        Raises:
            ServiceError: The template cannot be carried out. The message names every problem.
        """
        request = self._protocol.check("CreateExperimentTemplate", request)
        if problems := list(problems_of(request)):
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
        ends_at = experiment.created_at + latencies.scaled(seconds_before_interruption(experiment.template))
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
            for arn in alarms(experiment.template):
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

    def _selected(self, experiment: Experiment) -> list[LocalInstance]:
        target = the_target(experiment.template)
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
        return random.sample(found, how_many(target["selectionMode"], len(found)))

    @contextlib.contextmanager
    def _lock_and_allow_gone(self, instance: LocalInstance) -> Iterator[None]:
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
