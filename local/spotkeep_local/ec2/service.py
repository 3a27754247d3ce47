"""EC2 as the local AWS serves it by EC2's query protocol, with fleets, instances, volumes and snapshots.

ministack answers for the rest. Parameters come as a form and answers go as XML, as botocore's model describes both.

Source: botocore's `EC2Serializer` and `EC2QueryParser`, the counterparts of the protocol here.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from spotkeep_local.ec2 import records
from spotkeep_local.ec2.catalog import SpotPrices, describe_instance_types
from spotkeep_local.ec2.cloud import Cloud, Latencies
from spotkeep_local.ec2.errors import Ec2Error, invalid, missing
from spotkeep_local.ec2.fleets import FleetOperations
from spotkeep_local.ec2.instances import INTERRUPTED, Instances
from spotkeep_local.ec2.launch import delete_template_versions
from spotkeep_local.ec2.market import Market, SpotPoolChange
from spotkeep_local.ec2.networks import Networks
from spotkeep_local.ec2.records import AttachmentState, InstanceFacts, InstanceState, Platform
from spotkeep_local.ec2.surroundings import template_data
from spotkeep_local.ec2.tags import Tags, is_ours
from spotkeep_local.ec2.volumes import Snapshots, VolumeOperations
from spotkeep_local.hosts.clock import wrong_clock
from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.host_platform import host_platform
from spotkeep_local.service_base.aws_service import AwsService, HttpRequest
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.error_answers import ErrorForm, error_answer
from spotkeep_local.service_base.model_check import WrongTypeError, check
from spotkeep_local.service_base.query_parameters import (
    UnreadableParameterError,
    form_parameters,
    read_query_parameters,
)
from spotkeep_local.service_base.state_change_events import PublishEvent, StateChangeEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from botocore.model import OperationModel, Shape

    from spotkeep_local.ec2.records import LocalAttachment, LocalInstance, LocalVolume
    from spotkeep_local.ec2.surroundings import Surroundings
    from spotkeep_local.hosts.instance_host import InstanceHost
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.service_base.aws_service import Answer, Operation, ServiceError

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_HEADERS = {"Content-Type": "text/xml;charset=UTF-8"}
_PROTOCOL_PARAMETERS = frozenset({"Action", "Version"})


class Ec2QueryProtocol:
    """The `WireProtocol` of EC2."""

    def operation(self, request: HttpRequest) -> str:
        """Return the parameter Action."""
        return form_parameters(request).get("Action", "")

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:
        """Read and check the form's parameters. Timestamps become epoch seconds.

        Raises:
            Ec2Error: A parameter is unknown, missing, of the wrong type or breaks a constraint of the model.
        """
        form = {name: text for name, text in form_parameters(request).items() if name not in _PROTOCOL_PARAMETERS}
        shape = _model(operation).input_shape
        try:
            given, unread = read_query_parameters(shape, form, ec2=True) if shape else ({}, set(form))
        except UnreadableParameterError as error:
            raise invalid(str(error)) from error
        if unread:
            raise _unknown_parameters(unread)
        if shape is None:
            return {}
        for name in shape.required_members:
            if given.get(name) is None:
                raise missing(name)
        try:
            checked, problems = check(given, shape)
        except WrongTypeError as error:
            raise invalid(str(error)) from error
        if problems:
            raise invalid("; ".join(problems))
        assert isinstance(checked, dict)  # noqa: S101 - an input shape is a structure
        return checked

    def answer(self, operation: str, answer: Mapping[str, Any]) -> Answer:
        """Write an answer as XML. A field that the model does not know is an error of ours, and raise KeyError."""
        shape = _model(operation).output_shape
        inner = "<return>true</return>" if shape is None else _members(answer, shape)
        document = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{_NAMESPACE}">'
            f"<requestId>{uuid.uuid4()}</requestId>{inner}</{operation}Response>"
        )
        return 200, dict(_HEADERS), document.encode()

    def error(self, error: ServiceError) -> Answer:
        """Write an error as XML."""
        return error_answer(ErrorForm.EC2, code=error.code, message=error.message, status=error.status)

    def model(self, operation: str) -> OperationModel:
        """Return botocore's model of an operation."""
        return _model(operation)


def _model(operation: str) -> OperationModel:
    return service_model("ec2").operation_model(operation)


def _unknown_parameters(names: set[str]) -> Ec2Error:
    return Ec2Error("UnknownParameter", f"The parameter {', '.join(sorted(names))} is not recognized")


def _members(value: Mapping[str, Any], shape: Shape) -> str:
    written = []
    for name, item in value.items():
        if item is not None:
            member = shape.members[name]  # type: ignore[attr-defined]
            tag = member.serialization.get("name", name)
            written.append(f"<{tag}>{_write(item, member)}</{tag}>")
    return "".join(written)


def _write(value: Any, shape: Shape) -> str:
    if shape.type_name == "structure":
        return _members(value, shape)
    if shape.type_name == "list":
        member = shape.member  # type: ignore[attr-defined]
        tag = member.serialization.get("name", "item")
        return "".join(f"<{tag}>{_write(item, member)}</{tag}>" for item in value)
    if shape.type_name == "boolean":
        return "true" if value else "false"
    if shape.type_name == "timestamp":
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    return escape(str(value))


def read_template_data(form: Mapping[str, str]) -> dict[str, Any]:
    """Read the data of a launch template as a request has it.

    Args:
        form: The parameters of LaunchTemplateData, with their names from there on.

    Raises:
        Ec2Error: A value is not of its type, or a parameter is unknown.
    """
    shape = service_model("ec2").shape_for("RequestLaunchTemplateData")
    try:
        data, unread = read_query_parameters(shape, form, ec2=True)
    except UnreadableParameterError as error:
        raise invalid(str(error)) from error
    if unread:
        raise _unknown_parameters(unread)
    return data


def template_data_as_xml(data: Mapping[str, Any]) -> str:
    """Write the data of a launch template as an answer has it."""
    return _members(template_data(data), service_model("ec2").shape_for("ResponseLaunchTemplateData"))


_ON_OUR_RESOURCES = re.compile(r".*(Instance|Volume|Snapshot|Fleet|Spot|Console).*|DescribeTags")
"""ministack would answer these operations from resources of its own, which are not ours."""


_LOG = logging.getLogger(__name__)
_BUSY_CHECK_SECONDS = 0.1
"""The seconds between two checks while a volume is busy, because unmounting it sends no signal."""
_LONGEST_WAIT_SECONDS = 60.0


class Ec2Service:
    """The EC2 of one local AWS.

    Args:
        state_dir: The folder for the service's resources, images and hosts.
        file_systems: The folder of the account's file systems.
        endpoint_port: The port of the local AWS.
        options: The options of the local AWS.
        surroundings: The rest of the local AWS.
        publish_event: Puts an event on the default bus. Called from a thread of its own.
        ministack: Answers the operations on other resources.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        file_systems: Path,
        endpoint_port: int,
        options: ServerOptions,
        surroundings: Surroundings,
        publish_event: PublishEvent,
        ministack: Callable[..., Awaitable[Answer]],
    ) -> None:
        self._ministack = ministack
        self._events = StateChangeEvents(publish_event)
        self.cloud = Cloud(
            folder=state_dir,
            file_systems=file_systems,
            region=options.region,
            account_id=options.account_id,
            find_platform=lambda: host_platform(wanted=options.isolation, folder=state_dir / "images"),
            endpoint_port=endpoint_port,
            agent_time_scale=options.agent_time_scale,
            latencies=Latencies(options.time_scale),
            surroundings=surroundings,
            send_event=self._events.send,
            clock=time.time,
        )
        self._networks = Networks(self.cloud)
        self.instances = Instances(
            self.cloud,
            networks=self._networks,
            on_notice=lambda instance: fleets.note_notice(instance),
            on_leaving=lambda instance: fleets.wait_before_replacing(instance),
            on_ended=lambda instance: fleets.note_ended(instance),
        )
        fleets = FleetOperations(self.cloud, self.instances)
        self._background = Background(self.cloud, self.instances, fleets, self._networks)
        operations: dict[str, Operation] = {
            **self.instances.operations(),
            **fleets.operations(),
            **VolumeOperations(self.cloud).operations(),
            **Snapshots(self.cloud).operations(),
            **Tags(self.cloud).operations(),
            **SpotPrices(self.cloud).operations(),
            "DescribeInstanceTypes": describe_instance_types,
            "DeleteLaunchTemplateVersions": delete_template_versions,
        }
        self.api = AwsService(Ec2QueryProtocol(), self._locked(operations))
        self.control_operations = self._locked(Ec2Control(self.cloud, self.instances, self._networks).operations())

    def start(self) -> None:
        """Start with the state that the last server saved. Volumes are free, and fleets launch instances again."""
        self._events.start()
        self._background.start()

    def stop(self) -> None:
        """End every instance and save. The fleets launch others at the next start."""
        self._background.stop()
        self.instances.end_all()
        self._networks.close()
        self._events.stop()
        with self.cloud.lock:
            self.cloud.save()

    def has_instances_in(self, network_id: str) -> bool:
        """Return whether an instance that is not terminated yet has a subnet, a security group or a placement group.

        Args:
            network_id: The id of the subnet or the security group, or the name of the placement group.
        """
        return any(
            network_id
            in (
                instance.subnet_id,
                instance.placement_group,
                *(group for each in instance.interfaces for group in each.groups),
            )
            for instance in self.cloud.instances
            if instance.state is not InstanceState.TERMINATED
        )

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Answer:
        """Answer one request of EC2's query protocol, or let ministack answer it."""
        request = HttpRequest(method=method, path=path, headers=headers, body=body, query=query_params)
        if self._is_ours(request):
            return await self.api.handle_request(method, path, headers, body, query_params)
        try:
            answer = await self._ministack(method, path, headers, body, query_params)
        except Ec2Error as error:
            return self.api.protocol.error(error)
        if "SecurityGroup" in self.api.protocol.operation(request):
            self.cloud.wake()  # The networks follow the rules of the groups.
        return answer

    def _is_ours(self, request: HttpRequest) -> bool:
        operation = self.api.protocol.operation(request)
        if operation in ("CreateTags", "DeleteTags"):
            named = (value for name, value in form_parameters(request).items() if name.startswith("ResourceId."))
            return any(is_ours(resource) for resource in named)
        return operation in self.api.operations or _ON_OUR_RESOURCES.fullmatch(operation) is not None

    def _locked(self, operations: Mapping[str, Operation]) -> dict[str, Operation]:
        """Return operations that hold the lock, and answer a host's refusal as EC2 does."""

        def locked(operation: Operation, request: dict[str, Any]) -> Mapping[str, Any]:
            if request.pop("DryRun", False):
                raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
            with self.cloud.lock:
                try:
                    return operation(request)
                except HostRefusedError as error:
                    raise Ec2Error("InternalError", str(error), status=500) from error

        return {name: functools.partial(locked, operation) for name, operation in operations.items()}


class Ec2Control:
    """The operations of the control plane, each from a JSON object to a JSON object.

    Args:
        cloud: The local EC2.
        instances: Interrupts instances.
        networks: Cuts instances off.
    """

    def __init__(self, cloud: Cloud, instances: Instances, networks: Networks) -> None:
        self._cloud = cloud
        self._instances = instances
        self._networks = networks

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by name."""
        return {
            "InterruptInstance": self._interrupt,
            "WarnOfInstance": self._warn,
            "ChangePool": self._change_pool,
            "ScriptMarket": self._script_market,
            "Consistency": self._consistency,
            "Clock": self._clock,
            "FirstWorlds": self._first_worlds,
            "CutOff": self._cut_off,
            "Freeze": self._freeze,
            "Thaw": self._thaw,
            "InstanceFacts": self._instance_facts,
            "Platform": self._platform,
        }

    def _interrupt(self, request: dict[str, Any]) -> dict[str, Any]:
        instance_id = _text(request, "instance_id")
        if not request.get("notice", True):
            self._instances.interrupt_now(instance_id)
            return {"interrupted_at": self._cloud.now()}
        notice_seconds = request.get("notice_seconds")
        if notice_seconds is None:
            notice_seconds = self._cloud.latencies.notice_seconds
        interruption = self._instances.announce_interruption(
            instance_id,
            notice_seconds=_seconds(notice_seconds, "notice_seconds"),
            takes_place=bool(request.get("takes_place", True)),
        )
        return {"interrupted_at": interruption.at}

    def _warn(self, request: dict[str, Any]) -> dict[str, Any]:
        zone = f"{self._cloud.region}a"
        self._cloud.send_event(*records.interruption_warning(instance_id=_text(request, "instance_id"), zone=zone))
        return {}

    def _change_pool(self, request: dict[str, Any]) -> dict[str, Any]:
        change = SpotPoolChange.from_document(request)
        self._cloud.market = self._cloud.market.with_change(change, now=self._cloud.now())
        return {}

    def _script_market(self, request: dict[str, Any]) -> dict[str, Any]:
        changes = request.get("changes")
        if not isinstance(changes, list):
            raise invalid(f"changes must be a list, found {changes!r}")
        self._cloud.market = Market(
            self._cloud.now(), tuple(SpotPoolChange.from_document(change) for change in changes)
        )
        return {}

    def _consistency(self, request: dict[str, Any]) -> dict[str, Any]:
        self._cloud.unseen_seconds = _seconds(request.get("unseen_seconds", 0), "unseen_seconds")
        return {}

    def _clock(self, request: dict[str, Any]) -> dict[str, Any]:
        ahead = request.get("seconds_ahead")
        if type(ahead) is not int:
            raise invalid(f"seconds_ahead must be a whole number of seconds, found {ahead!r}")
        self._cloud.clock = wrong_clock(self._cloud.hosts_folder, seconds=ahead) if ahead else None
        return {}

    def _first_worlds(self, request: dict[str, Any]) -> dict[str, Any]:
        seconds = request.get("wait_seconds")
        self._cloud.first_world_seconds = None if seconds is None else _seconds(seconds, "wait_seconds")
        return {}

    def _cut_off(self, request: dict[str, Any]) -> dict[str, Any]:
        instance_id, others, aws = _text(request, "instance_id"), request.get("instances"), request.get("aws")
        host = self._host(instance_id)
        if (refusal := self._cloud.platform.network_refusal) is not None:
            raise Ec2Error("UnsupportedOperation", f"The instance {instance_id} cannot be cut off: {refusal}")
        if not isinstance(aws, bool):
            raise invalid(f"aws must be true or false, found {aws!r}")
        if others is not None and not (isinstance(others, list) and all(isinstance(each, str) for each in others)):
            raise invalid(f"instances must be a list of ids, or null for every instance, found {others!r}")
        self._networks.cut(instance_id, others)
        host.connect_to_aws(connected=not aws)
        return {}

    def _freeze(self, request: dict[str, Any]) -> dict[str, Any]:
        self._host(_text(request, "instance_id")).freeze()
        return {}

    def _thaw(self, request: dict[str, Any]) -> dict[str, Any]:
        self._host(_text(request, "instance_id")).thaw()
        return {}

    def _host(self, instance_id: str) -> InstanceHost:
        instance = self._cloud.instances[instance_id]
        if instance_id not in self._cloud.hosts:
            raise Ec2Error("IncorrectState", f"The instance {instance_id} is {instance.state.value}")
        return self._cloud.hosts[instance_id]

    def _instance_facts(self, request: dict[str, Any]) -> dict[str, Any]:
        instance = self._cloud.instances[_text(request, "instance_id")]
        host = self._cloud.hosts.get(instance.instance_id)
        return InstanceFacts(
            instance_id=instance.instance_id,
            fleet_id=instance.fleet_id,
            zone=instance.zone,
            spot=instance.spot,
            state=instance.state.value,
            launched_at=instance.launched_at,
            running_at=instance.running_at,
            ended_at=instance.ended_at,
            reason_code=instance.reason_code,
            interruption=instance.interruption,
            process_id=host.process_id if host else None,
            user_data_exit_code=host.user_data_exit_code if host else instance.user_data_exit_code,
            console=str(self._cloud.hosts_folder / f"{instance.instance_id}.console"),
        ).to_document()

    def _platform(self, request: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - every operation has one
        platform = self._cloud.platform
        return Platform(
            isolation=platform.isolation.value, reason=platform.reason, network_refusal=platform.network_refusal
        ).to_document()


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise missing(name)
    return value


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise invalid(f"{name} must be a number of seconds from 0, found {value!r}")
    return float(value)


class Background:
    """Boots and interrupts instances, attaches and detaches volumes, and lets fleets keep their capacity.

    Args:
        cloud: The local EC2.
        instances: Boots and ends instances.
        fleets: Keeps fleets.
        networks: Let through what the groups allow.
    """

    def __init__(self, cloud: Cloud, instances: Instances, fleets: FleetOperations, networks: Networks) -> None:
        self._cloud = cloud
        self._instances = instances
        self._fleets = fleets
        self._networks = networks
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ec2-background", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Return when it has ended."""
        with self._cloud.changed:
            self._stopping = True
            self._cloud.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> float:
        """Do all due work, with the lock held.

        Returns:
            The time when something is due next, in epoch seconds.
        """
        self._networks.settle()
        for instance in self._cloud.instances:
            self._advance_instance(instance)
        for volume in self._cloud.volumes:
            if volume.attachment is not None:
                self._advance_attachment(volume, volume.attachment)
        self._reclaim()
        for fleet in self._cloud.fleets:
            self._fleets.keep(fleet)
        self._instances.forget_the_old()
        return min(self._moments())

    def _run(self) -> None:
        with self._cloud.changed:
            while not self._stopping:
                try:
                    next_at = self.step()
                except Exception:  # noqa: BLE001 - without it nothing would ever happen again
                    _LOG.exception("the local EC2 could not do what was due; trying again")
                    next_at = self._cloud.now() + 1.0
                seconds = next_at - self._cloud.now()
                if seconds > 0:
                    self._cloud.changed.wait(seconds)

    def _advance_instance(self, instance: LocalInstance) -> None:
        now = self._cloud.now()
        if instance.state is InstanceState.PENDING and now >= instance.due_at:
            self._instances.boot(instance)
        elif instance.state is not InstanceState.RUNNING:
            return
        elif (interruption := instance.interruption) is not None and now >= interruption.at:
            if interruption.takes_place:
                self._instances.end(instance.instance_id, reason=INTERRUPTED, power_off=True)
            else:
                self._cloud.instances.put(replace(instance, interruption=None))

    def _advance_attachment(self, volume: LocalVolume, attachment: LocalAttachment) -> None:
        if self._cloud.now() < attachment.due_at:
            return
        host = self._cloud.hosts.get(attachment.instance_id)
        if attachment.state is AttachmentState.ATTACHING:
            if host is not None:
                host.attach(volume.volume_id)
            attached = replace(attachment, state=AttachmentState.ATTACHED)
            self._cloud.volumes.put(replace(volume, attachment=attached))
        elif attachment.state in (AttachmentState.DETACHING, AttachmentState.BUSY):
            if host is None or host.detach(volume.volume_id, force=attachment.force):
                self._cloud.volumes.put(replace(volume, attachment=None))
            elif attachment.state is AttachmentState.DETACHING:
                busy = replace(attachment, state=AttachmentState.BUSY)
                self._cloud.volumes.put(replace(volume, attachment=busy))

    def _reclaim(self) -> None:
        """Interrupt spot instances that their pool has no room for any more. The youngest first."""
        pools: dict[tuple[str, str], list[LocalInstance]] = {}
        for instance in self._cloud.instances:
            if instance.spot and instance.state.live:
                pools.setdefault((instance.instance_type, instance.zone), []).append(instance)
        for (instance_type, zone), running in pools.items():
            pool = self._cloud.market.pool(instance_type=instance_type, zone=zone, now=self._cloud.now())
            if pool.capacity is None:
                continue
            staying = [i for i in running if i.interruption is None or not i.interruption.takes_place]
            for instance in sorted(staying, key=lambda instance: instance.launched_at)[pool.capacity :]:
                if pool.notice:
                    notice_seconds = self._cloud.latencies.notice_seconds
                    self._instances.announce_interruption(instance.instance_id, notice_seconds=notice_seconds)
                else:
                    self._instances.interrupt_now(instance.instance_id)

    def _moments(self) -> Iterator[float]:
        now = self._cloud.now()
        yield now + _LONGEST_WAIT_SECONDS
        for instance in self._cloud.instances:
            if instance.state is InstanceState.PENDING:
                yield instance.due_at
            if instance.state is InstanceState.RUNNING and instance.interruption is not None:
                yield instance.interruption.at
        for volume in self._cloud.volumes:
            if volume.attachment is not None and volume.attachment.state is not AttachmentState.ATTACHED:
                yield max(volume.attachment.due_at, now + _BUSY_CHECK_SECONDS)
        for fleet in self._cloud.fleets:
            if fleet.try_at > now:
                yield fleet.try_at
        if (change_at := self._cloud.market.next_change_at(now)) is not None:
            yield change_at
