"""Instances: how one boots, is interrupted and ends, and the operations on them."""

from __future__ import annotations

import base64
import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2 import records
from spotkeep_local.ec2.catalog import PYTORCH, mount_programs
from spotkeep_local.ec2.cloud import tag_list, zone_id
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.records import AnnouncedInterruption, InstanceState, LocalInstance
from spotkeep_local.hosts.host import HostRefusedError
from spotkeep_local.hosts.instance_host import HostEnd, HostSpecification
from spotkeep_local.hosts.metadata import InstanceMetadata
from spotkeep_local.hosts.network import free_meeting_port
from spotkeep_local.hosts.written_files import read_end

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.networks import Networks

_LOG = logging.getLogger(__name__)

USER_INITIATED = ("Client.UserInitiatedShutdown", "User initiated shutdown")
_FROM_INSIDE = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
INTERRUPTED = ("Server.SpotInstanceTermination", "Spot instance termination")
_SERVER_STOPPED = ("Server.InternalError", "The local AWS ended while the instance ran")
_CONSOLE_BYTES = 64 * 1024
_REMEMBERED_SECONDS = 3600.0


class Instances:
    """The operations on instances, and the events of their lives.

    Args:
        cloud: The local EC2.
        networks: The networks of their VPCs.
        on_notice: Called, with the lock held, when an interruption of an instance was announced.
        on_leaving: Called, with the lock held, when an instance begins to end.
        on_ended: Called, with the lock held, when an instance is terminated.
    """

    def __init__(
        self,
        cloud: Cloud,
        *,
        networks: Networks,
        on_notice: Callable[[LocalInstance], None],
        on_leaving: Callable[[LocalInstance], None],
        on_ended: Callable[[LocalInstance], None],
    ) -> None:
        self._cloud = cloud
        self._networks = networks
        self._on_notice = on_notice
        self._on_leaving = on_leaving
        self._on_ended = on_ended
        self._meeting_ports: dict[str, int] = {}

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {
            "DescribeInstances": self.describe,
            "TerminateInstances": self.terminate,
            "GetConsoleOutput": self.console_output,
        }

    # The API.

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeInstances. Every instance is a reservation of its own."""
        found = self._cloud.instances.described(
            request, ids="InstanceIds", values=_filter_values, made_before=self._cloud.shown_before
        )
        names = {group.group_id: group.name for group in self._cloud.surroundings.security_groups().values()}
        reservations = [
            {
                "ReservationId": _reservation_id(instance),
                "OwnerId": self._cloud.account_id,
                "Instances": [self._describe(instance, group_names=names)],
            }
            for instance in found
        ]
        return {"Reservations": reservations}

    def terminate(self, request: dict[str, Any]) -> dict[str, Any]:
        """TerminateInstances: SIGTERM to every process, SIGKILL a little later, volumes unmounted."""
        changes = []
        for instance in self._cloud.instances.shown(request["InstanceIds"], made_before=self._cloud.shown_before):
            ending = self.end(instance.instance_id, reason=USER_INITIATED, power_off=False)
            changes.append(
                {
                    "InstanceId": instance.instance_id,
                    "PreviousState": {"Code": instance.state.code, "Name": instance.state.value},
                    "CurrentState": {"Code": ending.state.code, "Name": ending.state.value},
                }
            )
        return {"TerminatingInstances": changes}

    def console_output(self, request: dict[str, Any]) -> dict[str, Any]:
        """GetConsoleOutput, with the last output of the user data."""
        instance = self._cloud.instances[request["InstanceId"]]
        path = self._specification(instance).console
        try:
            output = read_end(path, most_bytes=_CONSOLE_BYTES)
            written_at = path.stat().st_mtime
        except FileNotFoundError:
            output, written_at = b"", instance.launched_at
        return {
            "InstanceId": instance.instance_id,
            "Output": base64.b64encode(output).decode(),
            "Timestamp": written_at,
        }

    # What happens to them.

    def launch(self, instance: LocalInstance) -> None:
        """Launch an instance. It boots when it is due."""
        self._cloud.instances.put(instance)
        self._announce(instance)
        self._cloud.wake()

    def boot(self, instance: LocalInstance) -> None:
        """Boot a pending instance. It ends where this machine refuses it a host."""
        cloud = self._cloud
        try:
            host = cloud.platform.start(
                replace(
                    self._specification(instance),
                    network=self._networks.of(instance),
                    meeting_port=self._meeting_port(instance),
                ),
                read_metadata=lambda: self._metadata(instance.instance_id),
                on_end=lambda ending: self._host_ended(instance.instance_id, ending),
            )
        except (HostRefusedError, OSError) as error:
            _LOG.error("the instance %s has no host: %s", instance.instance_id, error)
            self._ended(replace(instance, reason_code="Server.InternalError", reason=str(error)))
            return
        cloud.hosts[instance.instance_id] = host
        running = replace(instance, state=InstanceState.RUNNING, running_at=cloud.now())
        cloud.instances.put(running)
        self._announce(running)

    def end(self, instance_id: str, *, reason: tuple[str, str], power_off: bool) -> LocalInstance:
        """Begin to end an instance. It is `terminated` when nothing of it is left.

        Args:
            instance_id: The instance's id.
            reason: `StateReason`'s code and message.
            power_off: At once, without SIGTERM to its processes.
        """
        cloud = self._cloud
        instance = cloud.instances[instance_id]
        if not instance.state.live:
            return instance
        ending = replace(instance, state=InstanceState.SHUTTING_DOWN, reason_code=reason[0], reason=reason[1])
        cloud.instances.put(ending)
        self._announce(ending)
        self._on_leaving(ending)
        host = cloud.hosts.get(instance_id)
        if host is None:
            self._ended(ending)
            return ending
        seconds = cloud.latencies.shutdown_seconds
        act = host.power_off if power_off else lambda: host.shut_down(seconds=seconds)
        threading.Thread(target=act, name=f"{instance_id}-ends", daemon=True).start()
        return ending

    def announce_interruption(
        self, instance_id: str, *, notice_seconds: float, takes_place: bool = True
    ) -> AnnouncedInterruption:
        """Announce the interruption of a spot instance, by metadata and by event. The `background` carries it out.

        Args:
            instance_id: A live spot instance's id.
            notice_seconds: The seconds from now to the end.
            takes_place: False for a notice that no interruption follows.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        instance = self._live_spot(instance_id)
        if instance.interruption is not None and instance.interruption.takes_place:
            return instance.interruption
        now = self._cloud.now()
        interruption = AnnouncedInterruption(notice_at=now, at=now + notice_seconds, takes_place=takes_place)
        warned = self._cloud.instances.put(replace(instance, interruption=interruption))
        self._cloud.send_event(*records.interruption_warning(instance_id=instance_id, zone=instance.zone))
        self._on_notice(warned)
        self._cloud.wake()
        return interruption

    def interrupt_now(self, instance_id: str) -> None:
        """Interrupt a spot instance without notice.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        self._live_spot(instance_id)
        self.end(instance_id, reason=INTERRUPTED, power_off=True)

    def recommend_rebalance(self, instance_id: str) -> None:
        """Recommend a rebalance to a spot instance, by metadata and by event.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        instance = self._live_spot(instance_id)
        self._cloud.instances.put(replace(instance, rebalance_at=self._cloud.now()))
        self._cloud.send_event(*records.rebalance_recommendation(instance_id=instance_id, zone=instance.zone))

    def forget_the_old(self) -> None:
        """Remove terminated instances after an hour, as AWS does."""
        cloud = self._cloud
        now = cloud.now()
        for instance in cloud.instances:
            if instance.ended_at is not None and now - instance.ended_at > _REMEMBERED_SECONDS:
                cloud.instances.remove(instance.instance_id)
                self._specification(instance).console.unlink(missing_ok=True)

    def end_all(self) -> None:
        """End every instance at once, because the local AWS stops. Return when nothing of them is left."""
        code, reason = _SERVER_STOPPED
        with self._cloud.lock:
            for instance in self._cloud.instances:
                if instance.state.live:
                    self._cloud.instances.put(replace(instance, reason_code=code, reason=reason))
            hosts = list(self._cloud.hosts.values())
        for host in hosts:
            host.power_off()
        with self._cloud.lock:
            for instance in self._cloud.instances:
                if instance.state is not InstanceState.TERMINATED:
                    self._ended(instance)

    def _live_spot(self, instance_id: str) -> LocalInstance:
        instance = self._cloud.instances[instance_id]
        if not instance.spot:
            raise Ec2Error("InvalidParameterCombination", f"The instance {instance_id} is not a Spot Instance")
        if not instance.state.live:
            raise Ec2Error("IncorrectState", f"The instance {instance_id} is {instance.state.value}")
        return instance

    def _host_ended(self, instance_id: str, ending: HostEnd) -> None:
        with self._cloud.lock:
            host = self._cloud.hosts.pop(instance_id, None)
            instance = self._cloud.instances[instance_id]
            if instance.state is InstanceState.TERMINATED:
                return
            if ending is HostEnd.FROM_INSIDE and instance.state.live:
                code, reason = _FROM_INSIDE
                instance = replace(instance, state=InstanceState.SHUTTING_DOWN, reason_code=code, reason=reason)
                self._announce(instance)
                self._on_leaving(instance)
            self._ended(replace(instance, user_data_exit_code=host.user_data_exit_code if host else None))

    def _ended(self, instance: LocalInstance) -> None:
        cloud = self._cloud
        ended = replace(instance, state=InstanceState.TERMINATED, ended_at=cloud.now())
        cloud.instances.put(ended)
        for volume in cloud.volumes:
            if volume.attachment is not None and volume.attachment.instance_id == instance.instance_id:
                cloud.volumes.put(replace(volume, attachment=None))
        cloud.surroundings.revoke_credentials(instance.instance_id)
        self._announce(ended)
        self._on_ended(ended)
        cloud.wake()

    def _announce(self, instance: LocalInstance) -> None:
        arn = self._cloud.arn("instance", instance.instance_id)
        self._cloud.send_event(*records.state_change(instance_id=instance.instance_id, state=instance.state, arn=arn))

    def _specification(self, instance: LocalInstance) -> HostSpecification:
        image = PYTORCH if instance.image_id == PYTORCH.image_id else None
        return HostSpecification(
            instance_id=instance.instance_id,
            folder=self._cloud.hosts_folder / instance.instance_id,
            hostname=_hostname(instance),
            user_data=instance.user_data,
            endpoint_port=self._cloud.endpoint_port,
            links=image.links if image else {},
            programs={**mount_programs(self._cloud.file_systems), **(image.programs if image else {})},
            file_systems=self._cloud.file_systems,
            agent_time_scale=self._cloud.agent_time_scale,
            first_world_seconds=self._cloud.first_world_seconds,
            address=instance.private_ip,
            clock=self._cloud.clock,
        )

    def _meeting_port(self, instance: LocalInstance) -> int | None:
        """Return the port at which the instances of a fleet meet, where all share the network of this machine.

        torch listens at all addresses, so two fleets cannot meet at one port.
        """
        if self._cloud.platform.network_refusal is None:
            return None
        if instance.fleet_id not in self._meeting_ports:
            self._meeting_ports[instance.fleet_id] = free_meeting_port()
        return self._meeting_ports[instance.fleet_id]

    def _metadata(self, instance_id: str) -> InstanceMetadata:
        # Without the lock: a metadata service that waited for it would answer late.
        instance = self._cloud.instances[instance_id]
        announced = instance.interruption
        role = instance.profile.role if instance.profile else None
        return InstanceMetadata(
            instance_id=instance.instance_id,
            instance_type=instance.instance_type,
            image_id=instance.image_id,
            account_id=self._cloud.account_id,
            region=self._cloud.region,
            zone=instance.zone,
            zone_id=zone_id(instance.zone),
            private_ip=instance.private_ip,
            hostname=f"{_hostname(instance)}.ec2.internal",
            spot=instance.spot,
            reservation_id=_reservation_id(instance),
            launched_at=instance.launched_at,
            user_data=instance.user_data,
            profile_arn=instance.profile.arn if instance.profile else None,
            profile_id=instance.profile.profile_id if instance.profile else "",
            role=role,
            credentials=self._cloud.surroundings.role_credentials(role, instance_id=instance_id) if role else None,
            tags=instance.tags,
            settings=instance.settings,
            interruption_at=announced.at if announced else None,
            rebalance_at=instance.rebalance_at,
        )

    # What describes them.

    def _describe(self, instance: LocalInstance, *, group_names: Mapping[str, str]) -> dict[str, Any]:
        def groups(ids: tuple[str, ...]) -> list[dict[str, str]]:
            return [{"GroupId": group_id, "GroupName": group_names.get(group_id, group_id)} for group_id in ids]

        settings = instance.settings
        return {
            "InstanceId": instance.instance_id,
            "ImageId": instance.image_id,
            "State": {"Code": instance.state.code, "Name": instance.state.value},
            "InstanceType": instance.instance_type,
            "InstanceLifecycle": "spot" if instance.spot else None,
            "Placement": {
                "AvailabilityZone": instance.zone,
                "AvailabilityZoneId": zone_id(instance.zone),
                "GroupName": instance.placement_group,
            },
            "SubnetId": instance.subnet_id,
            "VpcId": instance.vpc_id,
            "PrivateIpAddress": instance.private_ip,
            "PrivateDnsName": f"{_hostname(instance)}.ec2.internal",
            "SecurityGroups": groups(instance.security_groups),
            "NetworkInterfaces": [
                {
                    "InterfaceType": interface.kind,
                    "PrivateIpAddress": instance.private_ip if interface is instance.interfaces[0] else None,
                    "SubnetId": instance.subnet_id,
                    "VpcId": instance.vpc_id,
                    "Groups": groups(interface.groups),
                    "Attachment": {
                        "DeviceIndex": interface.device_index,
                        "NetworkCardIndex": interface.card_index,
                        "Status": "attached",
                    },
                }
                for interface in instance.interfaces
            ],
            "LaunchTime": instance.launched_at,
            "Architecture": "x86_64",
            "RootDeviceType": "ebs",
            "RootDeviceName": "/dev/xvda",
            "IamInstanceProfile": (
                {"Arn": instance.profile.arn, "Id": instance.profile.profile_id} if instance.profile else None
            ),
            "MetadataOptions": {
                "State": "applied",
                "HttpTokens": "required" if settings.token_required else "optional",
                "HttpEndpoint": "enabled" if settings.enabled else "disabled",
                "InstanceMetadataTags": "enabled" if settings.tags else "disabled",
            },
            "BlockDeviceMappings": [
                {
                    "DeviceName": volume.attachment.device,
                    "Ebs": {
                        "VolumeId": volume.volume_id,
                        "Status": ("detaching" if volume.attachment.state == "busy" else volume.attachment.state.value),
                        "AttachTime": volume.attachment.requested_at,
                        "DeleteOnTermination": False,
                    },
                }
                for volume in self._cloud.volumes
                if volume.attachment is not None and volume.attachment.instance_id == instance.instance_id
            ],
            "StateReason": (
                {"Code": instance.reason_code, "Message": f"{instance.reason_code}: {instance.reason}"}
                if instance.reason_code
                else None
            ),
            "StateTransitionReason": instance.reason,
            "Tags": tag_list(instance.tags),
        }


def _filter_values(instance: LocalInstance) -> dict[str, list[str]]:
    return {
        "instance-id": [instance.instance_id],
        "instance-state-name": [instance.state.value],
        "instance-lifecycle": ["spot"] if instance.spot else [],
    }


def _reservation_id(instance: LocalInstance) -> str:
    return f"r-{instance.instance_id.removeprefix('i-')}"


def _hostname(instance: LocalInstance) -> str:
    return "ip-" + instance.private_ip.replace(".", "-")
