"""FIS as the local AWS serves it: templates, and experiments that one thread leads."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import secrets
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import TypeAdapter

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.latencies import NOTICE_SECONDS
from spotkeep_local.fis import rest_protocol, rules
from spotkeep_local.fis.errors import ConflictError, FisError, NotFoundError
from spotkeep_local.fis.records import ActionState, Experiment, Status, Template
from spotkeep_local.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances
    from spotkeep_local.ec2.records import Instance

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN_SECONDS = 0.5
_TEMPLATES = TypeAdapter(list[Template])
_EXPERIMENTS = TypeAdapter(list[Experiment])
_EMPTY_TARGET = "Target resolution returned empty set"


class FisService:
    """Experiments of one local AWS.

    Args:
        state_dir: Where the service keeps its templates and experiments.
        cloud: The EC2 whose spot instances are taken away; its clock, lock and time scale are FIS's too.
        instances: Interrupts them.
    """

    def __init__(self, *, state_dir: Path, cloud: Cloud, instances: Instances) -> None:
        self._cloud = cloud
        self._instances = instances
        self._saved = StateFile(state_dir / "experiments.json")
        saved = self._saved.read()
        templates, experiments = (saved.get(name, []) for name in ("templates", "experiments"))
        self._templates = {item.template_id: item for item in _TEMPLATES.validate_python(templates)}
        self._experiments = {item.experiment_id: item for item in _EXPERIMENTS.validate_python(experiments)}
        self._chance = random.Random()  # noqa: S311 - which instances are meant is no secret
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fis-experiments", daemon=True)
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "CreateExperimentTemplate": self._create_template,
            "GetExperimentTemplate": lambda request: self._described(self._template(request["id"])),
            "UpdateExperimentTemplate": self._update_template,
            "DeleteExperimentTemplate": self._delete_template,
            "ListExperimentTemplates": self._list_templates,
            "StartExperiment": self._start,
            "GetExperiment": lambda request: self._described_experiment(self._experiment(request["id"])),
            "StopExperiment": self._stop_experiment,
            "ListExperiments": self._list_experiments,
            "ListTagsForResource": lambda request: {"tags": self._tagged(request["resourceArn"]).tags},
            "TagResource": self._tag,
            "UntagResource": self._untag,
        }

    def start(self) -> None:
        """Begins to lead experiments; those of an earlier server are over, since its instances are."""
        with self._cloud.lock:
            for experiment in self._experiments.values():
                if not experiment.status.ended:
                    reason = "The local AWS ended while the experiment ran"
                    self._put(replace(experiment, status=Status.FAILED, reason=reason, ended_at=self._cloud.now()))
        self._thread.start()

    def stop(self) -> None:
        """Ends, and saves experiments as they are."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        self._saved.write(
            {
                "templates": _TEMPLATES.dump_python(list(self._templates.values()), mode="json"),
                "experiments": _EXPERIMENTS.dump_python(list(self._experiments.values()), mode="json"),
            }
        )

    async def handle_request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],  # noqa: ARG002 - the signature is the router's
        body: bytes,
        query_params: Mapping[str, list[str]],
    ) -> rest_protocol.Answer:
        """Answers one request of the REST protocol."""
        return await asyncio.to_thread(self.answer, method, path, query_params, body)

    def answer(self, method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> rest_protocol.Answer:
        """Answers one request."""
        try:
            operation, request = rest_protocol.parse_request(method, path, query, body)
            return rest_protocol.write_answer(self.call(operation, request))
        except FisError as error:
            return rest_protocol.write_error(error)

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Carries one operation out.

        Raises:
            FisError: It is refused.
        """
        checked = rest_protocol.check_request(operation, request)
        if operation not in self._operations:
            raise FisError(f"The local AWS does not have {operation}")
        with self._cloud.lock:
            return self._operations[operation](checked)

    # Templates.

    def _create_template(self, request: dict[str, Any]) -> dict[str, Any]:
        for template in self._templates.values():
            if template.request["clientToken"] == request["clientToken"]:
                if template.request != request:
                    raise ConflictError("The client token was used before, with another request")
                return self._described(template)
        _refuse(request)
        now = self._cloud.now()
        template_id = f"EXT{secrets.token_hex(7)}"
        template = Template(
            template_id=template_id,
            arn=self._arn("experiment-template", template_id),
            request=request,
            created_at=now,
            updated_at=now,
            tags=request.get("tags", {}),
        )
        return self._described(self._put_template(template))

    def _update_template(self, request: dict[str, Any]) -> dict[str, Any]:
        template = self._template(request["id"])
        changed = template.request | {name: value for name, value in request.items() if name != "id"}
        _refuse(changed)
        return self._described(self._put_template(replace(template, request=changed, updated_at=self._cloud.now())))

    def _delete_template(self, request: dict[str, Any]) -> dict[str, Any]:
        template = self._template(request["id"])
        del self._templates[template.template_id]
        return self._described(template)

    def _list_templates(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - one page holds all
        known = ("id", "arn", "description", "creationTime", "lastUpdateTime", "tags")
        described = [self._described(template)["experimentTemplate"] for template in self._templates.values()]
        return {"experimentTemplates": [{name: item[name] for name in known} for item in described]}

    # Experiments.

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        for experiment in self._experiments.values():
            if experiment.client_token == request["clientToken"]:
                if experiment.template_id != request["experimentTemplateId"]:
                    raise ConflictError("The client token was used before, with another template")
                return self._described_experiment(experiment)
        if (request.get("experimentOptions") or {}).get("actionsMode") == "skip-all":
            raise FisError("The local AWS does not have actionsMode skip-all")
        template = self._template(request["experimentTemplateId"])
        experiment_id = f"EXP{secrets.token_hex(7)}"
        experiment = Experiment(
            experiment_id=experiment_id,
            arn=self._arn("experiment", experiment_id),
            template_id=template.template_id,
            template=template.request,
            client_token=request["clientToken"],
            created_at=self._cloud.now(),
            started_at=self._cloud.now(),
            status=Status.INITIATING,
            actions={name: ActionState() for name in template.request["actions"]},
            tags=request.get("tags", {}),
        )
        self._put(experiment)
        self._wake()
        return self._described_experiment(experiment)

    def _stop_experiment(self, request: dict[str, Any]) -> dict[str, Any]:
        experiment = self._experiment(request["id"])
        if experiment.status.ended:
            raise ConflictError(f"The experiment is {experiment.status.value}")
        stopped = self._put(self._stopped(experiment, "Experiment stopped by its user"))
        return self._described_experiment(stopped)

    def _list_experiments(self, request: dict[str, Any]) -> dict[str, Any]:
        wanted = request.get("experimentTemplateId")
        known = ("id", "arn", "experimentTemplateId", "state", "creationTime", "tags")
        described = [
            self._described_experiment(item)["experiment"]
            for item in self._experiments.values()
            if wanted in (None, item.template_id)
        ]
        return {"experiments": [{name: item[name] for name in known} for item in described]}

    def _run(self) -> None:
        while True:
            with self._cloud.lock:
                for experiment in list(self._experiments.values()):
                    if not experiment.status.ended:
                        self._lead(experiment)
                busy = any(not experiment.status.ended for experiment in self._experiments.values())
            with self._changed:
                if self._stopping:
                    return
                pause_seconds = self._cloud.latencies.scaled(_LOOK_AGAIN_SECONDS * 10) if busy else None
                self._changed.wait(min(pause_seconds, _LOOK_AGAIN_SECONDS) if pause_seconds is not None else None)
                if self._stopping:
                    return

    def _lead(self, experiment: Experiment) -> None:
        try:
            self._put(self._led_on(experiment))
        except (BotoCoreError, ClientError) as error:
            _LOG.warning("the stop condition of the experiment %s is not known: %s", experiment.experiment_id, error)

    def _led_on(self, experiment: Experiment) -> Experiment:
        """An experiment after what is due in it was done."""
        for condition in experiment.template.get("stopConditions") or []:
            if condition["source"] != "none" and self._cloud.surroundings.alarm_rings(condition["value"]):
                return self._stopped(experiment, f"Experiment halted by stop condition {condition['value']}")
        experiment = replace(experiment, status=Status.RUNNING)
        for name, state in experiment.actions.items():
            if not state.status.ended and self._may_start(experiment, name):
                led = self._action_led_on(experiment, name, state)
                experiment = replace(experiment, actions=experiment.actions | {name: led})
        states = [state.status for state in experiment.actions.values()]
        if any(status is Status.FAILED for status in states):
            reason = next(state.reason for state in experiment.actions.values() if state.status is Status.FAILED)
            return replace(experiment, status=Status.FAILED, reason=reason, ended_at=self._cloud.now())
        if all(status.ended for status in states):
            done = "Experiment completed."
            return replace(experiment, status=Status.COMPLETED, reason=done, ended_at=self._cloud.now())
        return experiment

    @staticmethod
    def _may_start(experiment: Experiment, name: str) -> bool:
        before = experiment.template["actions"][name].get("startAfter") or []
        return all(experiment.actions[other].status.ended for other in before)

    def _action_led_on(self, experiment: Experiment, name: str, state: ActionState) -> ActionState:
        now = self._cloud.now()
        if state.started_at is None:
            return self._action_started(experiment, name, now)
        if state.notice_at is not None and now >= state.notice_at and not state.noticed:
            for instance_id in state.instance_ids:
                with _gone_is_fine(instance_id):
                    self._instances.announce_interruption(
                        instance_id, notice_seconds=max(0.0, (state.ends_at or now) - now)
                    )
            state = replace(state, noticed=True)
        if state.ends_at is not None and now >= state.ends_at:
            return replace(state, status=Status.COMPLETED, reason="Action was completed.")
        return state

    def _action_started(self, experiment: Experiment, name: str, now: float) -> ActionState:
        action = experiment.template["actions"][name]
        target = experiment.template["targets"][action["targets"]["SpotInstances"]]
        meant = self._meant(target)
        options = experiment.template.get("experimentOptions") or {}
        if not meant:
            skip = options.get("emptyTargetResolutionMode") == "skip"
            status = Status.SKIPPED if skip else Status.FAILED
            return ActionState(status=status, reason=_EMPTY_TARGET, started_at=now)
        if len(meant) > rules.MOST_INSTANCES:
            reason = f"The action takes at most {rules.MOST_INSTANCES} instances, and {len(meant)} are meant"
            return ActionState(status=Status.FAILED, reason=reason, started_at=now)
        for instance in meant:
            with _gone_is_fine(instance.instance_id):
                self._instances.recommend_rebalance(instance.instance_id)
        seconds = 60.0 * rules.minutes_before_interruption(action)
        ends_at = now + self._cloud.latencies.scaled(seconds)
        return ActionState(
            status=Status.RUNNING,
            instance_ids=tuple(instance.instance_id for instance in meant),
            started_at=now,
            notice_at=ends_at - self._cloud.latencies.scaled(NOTICE_SECONDS),
            ends_at=ends_at,
        )

    def _meant(self, target: Mapping[str, Any]) -> list[Instance]:
        arns = target.get("resourceArns") or []
        wanted_tags = target.get("resourceTags") or {}
        found = [
            instance
            for instance in self._cloud.instances
            if instance.spot
            and instance.state.live
            and (not arns or self._cloud.arn("instance", instance.instance_id) in arns)
            and all(instance.tags.get(key) == value for key, value in wanted_tags.items())
            and all(_value(instance, item["path"]) in item["values"] for item in target.get("filters") or [])
        ]
        return self._chance.sample(found, rules.how_many(target["selectionMode"], len(found)))

    def _stopped(self, experiment: Experiment, reason: str) -> Experiment:
        actions = {
            name: state if state.status.ended else replace(state, status=Status.STOPPED, reason=reason)
            for name, state in experiment.actions.items()
        }
        return replace(experiment, status=Status.STOPPED, reason=reason, ended_at=self._cloud.now(), actions=actions)

    # Tags.

    def _tagged(self, arn: str) -> Template | Experiment:
        resources: list[Template | Experiment] = [*self._templates.values(), *self._experiments.values()]
        for resource in resources:
            if resource.arn == arn:
                return resource
        raise NotFoundError(f"The resource {arn} does not exist")

    def _tag(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._retag(request["resourceArn"], lambda tags: tags | request["tags"])

    def _untag(self, request: dict[str, Any]) -> dict[str, Any]:
        gone = request.get("tagKeys")
        return self._retag(
            request["resourceArn"],
            lambda tags: {key: value for key, value in tags.items() if gone and key not in gone},
        )

    def _retag(self, arn: str, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, Any]:
        resource = self._tagged(arn)
        if isinstance(resource, Template):
            self._put_template(replace(resource, tags=change(resource.tags)))
        else:
            self._put(replace(resource, tags=change(resource.tags)))
        return {}

    # What they share.

    def _arn(self, kind: str, resource_id: str) -> str:
        return f"arn:aws:fis:{self._cloud.region}:{self._cloud.account_id}:{kind}/{resource_id}"

    def _template(self, template_id: str) -> Template:
        if template_id not in self._templates:
            raise NotFoundError(f"The experiment template {template_id} does not exist")
        return self._templates[template_id]

    def _experiment(self, experiment_id: str) -> Experiment:
        if experiment_id not in self._experiments:
            raise NotFoundError(f"The experiment {experiment_id} does not exist")
        return self._experiments[experiment_id]

    def _put_template(self, template: Template) -> Template:
        self._templates[template.template_id] = template
        return template

    def _put(self, experiment: Experiment) -> Experiment:
        self._experiments[experiment.experiment_id] = experiment
        return experiment

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    @staticmethod
    def _described(template: Template) -> dict[str, Any]:
        return {
            "experimentTemplate": {
                **{name: value for name, value in template.request.items() if name not in ("clientToken", "tags")},
                "id": template.template_id,
                "arn": template.arn,
                "creationTime": template.created_at,
                "lastUpdateTime": template.updated_at,
                "tags": template.tags,
            }
        }

    @staticmethod
    def _described_experiment(experiment: Experiment) -> dict[str, Any]:
        actions = {}
        for name, action in experiment.template["actions"].items():
            state = experiment.actions[name]
            described = {**action, "state": {"status": state.status.value, "reason": state.reason}}
            if state.started_at is not None:
                described["startTime"] = state.started_at
            if state.ends_at is not None and state.status.ended:
                described["endTime"] = state.ends_at
            actions[name] = described
        kept = ("roleArn", "targets", "stopConditions", "logConfiguration", "experimentOptions")
        described = {
            **{name: experiment.template[name] for name in kept if name in experiment.template},
            "id": experiment.experiment_id,
            "arn": experiment.arn,
            "experimentTemplateId": experiment.template_id,
            "state": {"status": experiment.status.value, "reason": experiment.reason},
            "actions": actions,
            "creationTime": experiment.created_at,
            "startTime": experiment.started_at,
            "tags": experiment.tags,
        }
        if experiment.ended_at is not None:
            described["endTime"] = experiment.ended_at
        return {"experiment": described}


@contextlib.contextmanager
def _gone_is_fine(instance_id: str) -> Iterator[None]:
    """An instance that ended by itself since it was chosen is no failure of the experiment."""
    try:
        yield
    except Ec2Error as error:
        _LOG.info("an experiment found the instance %s gone: %s", instance_id, error)


def _refuse(request: Mapping[str, Any]) -> None:
    if problems := list(rules.problems(request)):
        raise FisError("; ".join(problems))


def _value(instance: Instance, path: str) -> str:
    return {
        "State.Name": instance.state.value,
        "Placement.AvailabilityZone": instance.zone,
        "InstanceType": instance.instance_type,
        "SubnetId": instance.subnet_id,
        "VpcId": instance.vpc_id,
    }[path]
