"""EC2 as the local AWS serves it: what this package keeps is answered here, everything else by ministack."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.capacity import CapacityScriptError
from spotkeep_local.ec2 import query_protocol
from spotkeep_local.ec2.cloud import Cloud
from spotkeep_local.ec2.control import Control
from spotkeep_local.ec2.controller import Controller
from spotkeep_local.ec2.errors import Ec2Error, invalid
from spotkeep_local.ec2.filters import matches
from spotkeep_local.ec2.fleets import Fleets
from spotkeep_local.ec2.instance_types import InstanceTypes
from spotkeep_local.ec2.instances import Instances
from spotkeep_local.ec2.latencies import Latencies
from spotkeep_local.ec2.market import MarketError
from spotkeep_local.ec2.snapshots import Snapshots
from spotkeep_local.ec2.spot_prices import SpotPrices
from spotkeep_local.ec2.tags import Tags, is_ours
from spotkeep_local.ec2.template_versions import TemplateVersions
from spotkeep_local.ec2.throttling import Throttle
from spotkeep_local.ec2.volumes import Volumes
from spotkeep_local.hosts.errors import HostRefusedError
from spotkeep_local.hosts.isolation import host_platform
from spotkeep_local.state_change_events import PublishEvent, StateChangeEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from spotkeep_local.ec2.cloud import Surroundings
    from spotkeep_local.options import ServerOptions

Answer = tuple[int, dict[str, str], bytes]
_LOG = logging.getLogger(__name__)
_START_SECONDS = 20.0
_JSON = {"Content-Type": "application/x-amz-json-1.1"}


class Ec2Service:
    """The EC2 of one local AWS.

    Args:
        state_dir: Where the service keeps its resources, images and hosts.
        endpoint_port: Where the local AWS listens.
        options: Of the local AWS.
        surroundings: The rest of the local AWS.
        publish_event: Puts an event on the default bus; called from a thread of its own.
        ministack: Answers what this package does not keep.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        endpoint_port: int,
        options: ServerOptions,
        surroundings: Surroundings,
        publish_event: PublishEvent,
        ministack: Callable[..., Awaitable[Answer]],
    ) -> None:
        self._ministack = ministack
        self._images_folder = state_dir / "images"
        self._events = StateChangeEvents(publish_event)
        self._started = threading.Event()
        self._throttle = Throttle()
        self.cloud = Cloud(
            folder=state_dir,
            region=options.region,
            account_id=options.account_id,
            find_platform=lambda: host_platform(wanted=options.isolation, folder=self._images_folder),
            endpoint_port=endpoint_port,
            agent_time_scale=options.agent_time_scale,
            latencies=Latencies(options.time_scale),
            surroundings=surroundings,
            send_event=self._events.send,
            clock=time.time,
        )
        self.instances = Instances(
            self.cloud,
            on_notice=lambda instance: self._fleets.note_notice(instance),
            on_leaving=lambda instance: self._fleets.wait_before_replacing(instance),
            on_ended=lambda instance: self._fleets.note_ended(instance),
        )
        self._fleets = Fleets(self.cloud, self.instances)
        self.volumes = Volumes(self.cloud)
        self.snapshots = Snapshots(self.cloud)
        self.tags = Tags(self.cloud)
        self._controller = Controller(self.cloud, self.instances, self._fleets)
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            **self.instances.operations(),
            **self._fleets.operations(),
            **self.volumes.operations(),
            **self.snapshots.operations(),
            **SpotPrices(self.cloud).operations(),
            **InstanceTypes().operations(),
            **TemplateVersions().operations(),
        }
        self._control = Control(
            self.cloud,
            instances=self.instances,
            fleets=self._fleets,
            snapshots=self.snapshots,
            controller=self._controller,
            throttle=self._throttle,
            set_event_faults=self._events.set_faults,
        ).operations()

    def start(self) -> None:
        """Takes up what an earlier server left: its hosts are gone, its volumes are free, its fleets replenish."""
        self._events.start()
        with self.cloud.lock:
            self.instances.end_what_a_dead_server_left()
            if self._images_folder.exists():
                if not self.cloud.platform.images.wait_until_unused(seconds=_START_SECONDS):
                    _LOG.warning("a loop device of an earlier server still uses a volume's image")
                self._remove_stray_images()
        self._controller.start()
        self._started.set()

    def stop(self) -> None:
        """Powers every host off and saves. Instances end at the next `start`, and fleets replenish them then."""
        self._controller.stop()
        with self.cloud.lock:
            hosts = list(self.cloud.hosts.values())
        for host in hosts:
            host.power_off()
        self._events.stop()
        with self.cloud.lock:
            self.cloud.save()

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Answer:
        """Answers one request of EC2's query protocol."""
        parameters = query_protocol.form_parameters(body, query_params)
        action = parameters.get("Action", "")
        if action in self._operations:
            return await asyncio.to_thread(self.answer, action, parameters)
        if action in ("CreateTags", "DeleteTags", "DescribeTags"):
            return await self._answer_tags(action, method, path, headers, parameters)
        return await self._ministack(method, path, headers, body, query_params)

    async def handle_control_request(
        self,
        method: str,  # noqa: ARG002 - the signature is the router's
        path: str,  # noqa: ARG002
        headers: Mapping[str, str],
        body: bytes,
        query_params: Mapping[str, list[str]],  # noqa: ARG002
    ) -> Answer:
        """Answers one request to the control plane: `X-Amz-Target: SpotkeepLocalEc2.<operation>`, JSON."""
        return await asyncio.to_thread(self.control, headers.get("x-amz-target", ""), body)

    def answer(self, operation: str, parameters: Mapping[str, str]) -> Answer:
        """Answers one request to what this package keeps."""
        try:
            self._throttle.pass_or_refuse(operation)
            request = query_protocol.parse_request(operation, parameters)
            return query_protocol.write_answer(operation, self.call(operation, request))
        except Ec2Error as error:
            return query_protocol.write_error(error)

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Carries one operation out.

        Raises:
            Ec2Error: It is refused.
        """
        self._wait_until_started()
        if request.pop("DryRun", False):
            raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
        with self.cloud.lock:
            try:
                return self._operations[operation](request)
            except HostRefusedError as error:
                raise Ec2Error("InternalError", str(error), status=500) from error

    def control(self, target: str, body: bytes) -> Answer:
        """Answers one request to the control plane."""
        operation = target.partition(".")[2]
        try:
            self._wait_until_started()
            document = json.loads(body or b"{}")
            if operation not in self._control or not isinstance(document, dict):
                raise invalid(f"the control plane of EC2 has no operation {operation!r} for {document!r}")
            with self.cloud.lock:
                answer = self._control[operation](document)
        except (Ec2Error, HostRefusedError, MarketError, CapacityScriptError, ValueError) as error:
            refusal = {"__type": type(error).__name__, "message": str(error)}
            return 400, dict(_JSON), json.dumps(refusal).encode()
        return 200, dict(_JSON), json.dumps(answer).encode()

    async def _answer_tags(
        self, action: str, method: str, path: str, headers: Mapping[str, str], parameters: Mapping[str, str]
    ) -> Answer:
        async def ask_ministack(request: Mapping[str, Any]) -> Answer:
            body = query_protocol.write_parameters(action, request)
            return await self._ministack(method, path, headers, body, {})

        try:
            self._throttle.pass_or_refuse(action)
            request = query_protocol.parse_request(action, parameters)
            if action == "DescribeTags":
                theirs = await ask_ministack(request)
                return await asyncio.to_thread(self._describe_tags, request, theirs)
            ours = [resource for resource in request["Resources"] if is_ours(resource)]
            if others := [resource for resource in request["Resources"] if not is_ours(resource)]:
                answer = await ask_ministack(request | {"Resources": others})
                if not ours or answer[0] != 200:
                    return answer
            await asyncio.to_thread(self._change_tags, action, ours, request.get("Tags", []))
        except Ec2Error as error:
            return query_protocol.write_error(error)
        return query_protocol.write_answer(action, {})

    def _change_tags(self, action: str, resources: list[str], tags: list[dict[str, str]]) -> None:
        self._wait_until_started()
        with self.cloud.lock:
            change = self.tags.create if action == "CreateTags" else self.tags.delete
            change(resources, tags)
            self.cloud.wake()

    def _describe_tags(self, request: Mapping[str, Any], theirs: Answer) -> Answer:
        if theirs[0] != 200:
            return theirs
        found = query_protocol.read_answer("DescribeTags", theirs[2]).get("Tags", [])
        with self.cloud.lock:
            found += [
                tag
                for tag in self.tags.describe()
                if matches(
                    {
                        "resource-id": [tag["ResourceId"]],
                        "resource-type": [tag["ResourceType"]],
                        "key": [tag["Key"]],
                        "value": [tag["Value"]],
                    },
                    {tag["Key"]: tag["Value"]},
                    request.get("Filters", []),
                )
            ]
        return query_protocol.write_answer("DescribeTags", {"Tags": found})

    def _remove_stray_images(self) -> None:
        """An image without a record is of a volume that was never answered, or of one that was deleted."""
        known = {volume.volume_id for volume in self.cloud.volumes}
        known |= {snapshot.snapshot_id for snapshot in self.cloud.snapshots}
        for image_id in self.cloud.platform.images.ids() - known:
            self.cloud.platform.images.delete(image_id)

    def _wait_until_started(self) -> None:
        # The endpoint may answer before the resources of an earlier server are read.
        if not self._started.wait(_START_SECONDS):
            raise Ec2Error("Unavailable", "The local EC2 has not started", status=503)
