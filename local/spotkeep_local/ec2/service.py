"""EC2 as the local AWS serves it: fleets, instances, volumes and snapshots are answered here, the rest by ministack."""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.background import Background
from spotkeep_local.ec2.cloud import Cloud
from spotkeep_local.ec2.control import Ec2Control
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.fleets import Fleets
from spotkeep_local.ec2.instance_types import describe_instance_types
from spotkeep_local.ec2.instances import Instances
from spotkeep_local.ec2.latencies import Latencies
from spotkeep_local.ec2.launch import delete_template_versions
from spotkeep_local.ec2.query_protocol import Ec2QueryProtocol
from spotkeep_local.ec2.snapshots import Snapshots
from spotkeep_local.ec2.spot_prices import SpotPrices
from spotkeep_local.ec2.tags import Tags, is_ours
from spotkeep_local.ec2.volumes import Volumes
from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.host_platform import host_platform
from spotkeep_local.service_base.aws_service import AwsService, HttpRequest
from spotkeep_local.service_base.query_parameters import form_parameters
from spotkeep_local.service_base.state_change_events import PublishEvent, StateChangeEvents

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from spotkeep_local.ec2.surroundings import Surroundings
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.service_base.aws_service import Answer, Operation

_ON_OUR_RESOURCES = re.compile(r".*(Instance|Volume|Snapshot|Fleet|Spot|Console).*|DescribeTags")
"""ministack would answer these operations from resources of its own, which are not ours."""


class Ec2Service:
    """The EC2 of one local AWS.

    Args:
        state_dir: Where the service keeps its resources, images and hosts.
        endpoint_port: The port of the local AWS.
        options: The options of the local AWS.
        surroundings: The rest of the local AWS.
        publish_event: Puts an event on the default bus; called from a thread of its own.
        ministack: Answers the operations on other resources.
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
        self._events = StateChangeEvents(publish_event)
        self.cloud = Cloud(
            folder=state_dir,
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
        self.instances = Instances(
            self.cloud,
            on_notice=lambda instance: fleets.note_notice(instance),
            on_leaving=lambda instance: fleets.wait_before_replacing(instance),
            on_ended=lambda instance: fleets.note_ended(instance),
        )
        fleets = Fleets(self.cloud, self.instances)
        self._background = Background(self.cloud, self.instances, fleets)
        operations: dict[str, Operation] = {
            **self.instances.operations(),
            **fleets.operations(),
            **Volumes(self.cloud).operations(),
            **Snapshots(self.cloud).operations(),
            **Tags(self.cloud).operations(),
            **SpotPrices(self.cloud).operations(),
            "DescribeInstanceTypes": describe_instance_types,
            "DeleteLaunchTemplateVersions": delete_template_versions,
        }
        self.api = AwsService(Ec2QueryProtocol(), self._locked(operations))
        self.control_operations = self._locked(Ec2Control(self.cloud, self.instances).operations())

    def start(self) -> None:
        """Start with what the last server saved: volumes are free, and fleets launch instances again."""
        self._events.start()
        self._background.start()

    def stop(self) -> None:
        """End every instance and save; the fleets launch others at the next start."""
        self._background.stop()
        self.instances.end_all()
        self._events.stop()
        with self.cloud.lock:
            self.cloud.save()

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Answer:
        """Answer one request of EC2's query protocol, or let ministack answer it."""
        request = HttpRequest(method=method, path=path, headers=headers, body=body, query=query_params)
        if self._is_ours(request):
            return await self.api.handle_request(method, path, headers, body, query_params)
        return await self._ministack(method, path, headers, body, query_params)

    def _is_ours(self, request: HttpRequest) -> bool:
        operation = self.api.protocol.operation(request)
        if operation in ("CreateTags", "DeleteTags"):
            named = (value for name, value in form_parameters(request).items() if name.startswith("ResourceId."))
            return any(is_ours(resource) for resource in named)
        return operation in self.api.operations or _ON_OUR_RESOURCES.fullmatch(operation) is not None

    def _locked(self, operations: Mapping[str, Operation]) -> dict[str, Operation]:
        """Return operations that hold the lock, and answer what a host cannot do as EC2 does."""

        def locked(operation: Operation, request: dict[str, Any]) -> Mapping[str, Any]:
            if request.pop("DryRun", False):
                raise Ec2Error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", status=412)
            with self.cloud.lock:
                try:
                    return operation(request)
                except HostRefusedError as error:
                    raise Ec2Error("InternalError", str(error), status=500) from error

        return {name: functools.partial(locked, operation) for name, operation in operations.items()}
