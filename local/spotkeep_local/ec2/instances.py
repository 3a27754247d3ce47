"""Instances: how one is launched, boots, is interrupted and ends, and what describes it."""

from __future__ import annotations

import base64
import logging
import shutil
import signal
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local import process_identity
from spotkeep_local.bounded_reading import read_end
from spotkeep_local.ec2 import events
from spotkeep_local.ec2.cloud import new_id, refuse_other_request, tag_list, tags_of, zone_id
from spotkeep_local.ec2.errors import Ec2Error, wrong_combination
from spotkeep_local.ec2.filters import matches, page
from spotkeep_local.ec2.launch import find_template, launch_data, new_instance
from spotkeep_local.ec2.machine_images import PYTORCH
from spotkeep_local.ec2.records import Instance, InstanceState, Interruption, LaunchSource
from spotkeep_local.hosts.errors import HostRefusedError
from spotkeep_local.hosts.host import HostEnd, HostSpecification
from spotkeep_local.hosts.metadata import InstanceMetadata

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.ec2.cloud import Cloud

_LOG = logging.getLogger(__name__)

USER_INITIATED = ("Client.UserInitiatedShutdown", "User initiated shutdown")
FROM_INSIDE = ("Client.InstanceInitiatedShutdown", "Instance initiated shutdown")
INTERRUPTED = ("Server.SpotInstanceTermination", "Spot instance termination")
SERVER_DIED = ("Server.InternalError", "The local AWS ended while the instance ran")
_CONSOLE_BYTES = 64 * 1024
_REMEMBERED_SECONDS = 3600.0
_DEATH_SECONDS = 10.0


class Instances:
    """The operations on instances, and what happens to them.

    Args:
        cloud: What they are part of.
        on_notice: Called, with the lock held, when an interruption of an instance was announced.
        on_leaving: Called, with the lock held, when an instance begins to end.
        on_ended: Called, with the lock held, when an instance is terminated.
    """

    def __init__(
        self,
        cloud: Cloud,
        *,
        on_notice: Callable[[Instance], None],
        on_leaving: Callable[[Instance], None],
        on_ended: Callable[[Instance], None],
    ) -> None:
        self._cloud = cloud
        self._on_notice = on_notice
        self._on_leaving = on_leaving
        self._on_ended = on_ended

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """By the API's names."""
        return {
            "RunInstances": self.run,
            "DescribeInstances": self.describe,
            "DescribeInstanceStatus": self.describe_status,
            "TerminateInstances": self.terminate,
            "GetConsoleOutput": self.console_output,
            "StopInstances": self._refuse_to_stop,
            "StartInstances": self._refuse_to_stop,
            "RebootInstances": self._refuse_to_stop,
        }

    # The API.

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """RunInstances."""
        cloud = self._cloud
        if token := request.get("ClientToken"):
            before = [instance for instance in cloud.instances if instance.client_token == token]
            if before:
                refuse_other_request(token, before=before[0].request, request=request)
                return self._reservation(before)
        data: dict[str, Any] = {}
        source = None
        if specification := request.get("LaunchTemplate"):
            template = find_template(cloud, specification)
            source = LaunchSource(template_id=template.template_id, version=template.version)
            data = dict(template.data)
        data |= {name: value for name, value in request.items() if name != "TagSpecifications"}
        read = launch_data(cloud, data, source=source)
        read = replace(read, tags=read.tags | tags_of(request, "instance"))
        spot = (data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
        reservation_id = new_id("r")
        launched = [
            self.launch(
                new_instance(
                    cloud,
                    read,
                    spot=spot,
                    reservation_id=reservation_id,
                    client_token=token or "",
                    request=request if token else {},
                )
            )
            for _ in range(request["MaxCount"])
        ]
        return self._reservation(launched)

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeInstances."""
        filters = request.get("Filters", [])
        found = [
            instance
            for instance in self._shown(request.get("InstanceIds"))
            if matches(self._filter_values(instance), instance.tags, filters)
        ]
        chosen, token = page(found, request, key=lambda instance: instance.instance_id)
        reservations: dict[str, list[Instance]] = {}
        for instance in chosen:
            reservations.setdefault(instance.reservation_id, []).append(instance)
        return {"Reservations": [self._reservation(group) for group in reservations.values()], "NextToken": token}

    def describe_status(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeInstanceStatus."""
        everyone = request.get("IncludeAllInstances", False)
        found = [
            instance
            for instance in self._shown(request.get("InstanceIds"))
            if (everyone or instance.state is InstanceState.RUNNING)
            and matches(self._filter_values(instance), instance.tags, request.get("Filters", []))
        ]
        chosen, token = page(found, request, key=lambda instance: instance.instance_id)
        ok = {"Status": "ok", "Details": [{"Name": "reachability", "Status": "passed"}]}
        unknown = {"Status": "not-applicable"}
        statuses = [
            {
                "InstanceId": instance.instance_id,
                "AvailabilityZone": instance.zone,
                "InstanceState": {"Code": instance.state.code, "Name": instance.state.value},
                "InstanceStatus": ok if instance.state is InstanceState.RUNNING else unknown,
                "SystemStatus": ok if instance.state is InstanceState.RUNNING else unknown,
            }
            for instance in chosen
        ]
        return {"InstanceStatuses": statuses, "NextToken": token}

    def terminate(self, request: dict[str, Any]) -> dict[str, Any]:
        """TerminateInstances: SIGTERM to everything, SIGKILL a little later, volumes unmounted."""
        changes = []
        for instance in self._shown(request["InstanceIds"]):
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
        """GetConsoleOutput: the last of what the user data printed."""
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

    def _refuse_to_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        self._shown(request["InstanceIds"])
        raise Ec2Error("UnsupportedOperation", "The local AWS runs and terminates instances, and does neither else")

    # What happens to them.

    def launch(self, instance: Instance) -> Instance:
        """Launches an instance; it boots when it is due."""
        self._cloud.instances.put(instance)
        self._announce(instance)
        self._cloud.wake()
        return instance

    def boot(self, instance: Instance) -> None:
        """Lets a pending instance run. One whose host the machine refuses ends."""
        cloud = self._cloud
        try:
            host = cloud.platform.start(
                self._specification(instance),
                read_metadata=lambda: self._metadata(instance.instance_id),
                on_end=lambda ending: self._host_ended(instance.instance_id, ending),
            )
        except (HostRefusedError, OSError) as error:
            _LOG.error("the instance %s has no host: %s", instance.instance_id, error)
            self._ended(replace(instance, reason_code="Server.InternalError", reason=str(error)))
            return
        cloud.hosts[instance.instance_id] = host
        running = replace(
            instance,
            state=InstanceState.RUNNING,
            running_at=cloud.now(),
            host_process=(host.process_id, process_identity.start_time(host.process_id) or ""),
        )
        cloud.instances.put(running)
        self._announce(running)

    def end(self, instance_id: str, *, reason: tuple[str, str], power_off: bool) -> Instance:
        """Begins to end an instance; it is `terminated` when nothing of it is left.

        Args:
            instance_id: Which.
            reason: `StateReason`'s code and message.
            power_off: At once, without a word to anything in it.
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
    ) -> Interruption:
        """Tells a spot instance, by metadata and by event, that it is taken away; and then does it.

        Args:
            instance_id: Of a live spot instance.
            notice_seconds: From now to the end.
            takes_place: False for a notice that nothing follows.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        instance = self._live_spot(instance_id)
        if instance.interruption is not None and instance.interruption.takes_place:
            return instance.interruption
        now = self._cloud.now()
        interruption = Interruption(notice_at=now, at=now + notice_seconds, takes_place=takes_place)
        warned = self._cloud.instances.put(replace(instance, interruption=interruption))
        self._cloud.send_event(*events.interruption_warning(instance_id=instance_id, zone=instance.zone))
        self._on_notice(warned)
        self._cloud.wake()
        return interruption

    def interrupt_now(self, instance_id: str) -> None:
        """Takes a spot instance away without notice.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        self._live_spot(instance_id)
        self.end(instance_id, reason=INTERRUPTED, power_off=True)

    def recommend_rebalance(self, instance_id: str) -> None:
        """Tells a spot instance, by metadata and by event, that it is at elevated risk.

        Raises:
            Ec2Error: It is no live spot instance.
        """
        instance = self._live_spot(instance_id)
        self._cloud.instances.put(replace(instance, rebalance_at=self._cloud.now()))
        self._cloud.send_event(*events.rebalance_recommendation(instance_id=instance_id, zone=instance.zone))
        self._cloud.wake()

    def forget_the_old(self) -> None:
        """Terminated instances are described for an hour, as on AWS, and then no more."""
        cloud = self._cloud
        now = cloud.now()
        for instance in cloud.instances:
            if instance.ended_at is not None and now - instance.ended_at > _REMEMBERED_SECONDS:
                cloud.instances.remove(instance.instance_id)
                self._specification(instance).console.unlink(missing_ok=True)

    def end_what_a_dead_server_left(self) -> None:
        """Ends instances that an earlier server ran. Their hosts ended with it, or are ended now."""
        for instance in self._cloud.instances:
            if instance.state is InstanceState.TERMINATED:
                continue
            if instance.host_process is not None:
                process_identity.signal_if_same(*instance.host_process, signal.SIGKILL)
                self._wait_for_the_end_of(*instance.host_process)
            shutil.rmtree(self._specification(instance).folder, ignore_errors=True)
            code, reason = SERVER_DIED
            self._ended(replace(instance, reason_code=instance.reason_code or code, reason=instance.reason or reason))

    @staticmethod
    def _wait_for_the_end_of(pid: int, started: str) -> None:
        give_up_at = time.monotonic() + _DEATH_SECONDS
        while process_identity.is_same_process(pid, started) and time.monotonic() < give_up_at:
            time.sleep(0.02)

    def _live_spot(self, instance_id: str) -> Instance:
        instance = self._cloud.instances[instance_id]
        if not instance.spot:
            raise wrong_combination(f"The instance {instance_id} is not a Spot Instance")
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
                instance = replace(
                    instance,
                    state=InstanceState.SHUTTING_DOWN,
                    reason_code=FROM_INSIDE[0],
                    reason=FROM_INSIDE[1],
                )
                self._announce(instance)
                self._on_leaving(instance)
            self._ended(replace(instance, user_data_exit_code=host.user_data_exit_code if host else None))

    def _ended(self, instance: Instance) -> None:
        cloud = self._cloud
        ended = replace(instance, state=InstanceState.TERMINATED, ended_at=cloud.now(), host_process=None)
        cloud.instances.put(ended)
        for volume in cloud.volumes:
            if volume.attachment is not None and volume.attachment.instance_id == instance.instance_id:
                cloud.volumes.put(replace(volume, attachment=None))
        cloud.surroundings.revoke_credentials(instance.instance_id)
        self._announce(ended)
        self._on_ended(ended)
        cloud.wake()

    def _announce(self, instance: Instance) -> None:
        arn = self._cloud.arn("instance", instance.instance_id)
        self._cloud.send_event(*events.state_change(instance_id=instance.instance_id, state=instance.state, arn=arn))

    def _specification(self, instance: Instance) -> HostSpecification:
        return HostSpecification(
            instance_id=instance.instance_id,
            folder=self._cloud.hosts_folder / instance.instance_id,
            hostname=_hostname(instance),
            user_data=instance.user_data,
            endpoint_port=self._cloud.endpoint_port,
            links=PYTORCH.links if instance.image_id == PYTORCH.image_id else {},
            agent_time_scale=self._cloud.agent_time_scale,
        )

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
            reservation_id=instance.reservation_id,
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

    def _shown(self, ids: list[str] | None) -> list[Instance]:
        return self._cloud.instances.shown(ids, made_before=self._cloud.shown_before)

    def _filter_values(self, instance: Instance) -> dict[str, list[str]]:
        return {
            "instance-id": [instance.instance_id],
            "instance-state-name": [instance.state.value],
            "instance-state-code": [str(instance.state.code)],
            "instance-type": [instance.instance_type],
            "instance-lifecycle": ["spot"] if instance.spot else [],
            "availability-zone": [instance.zone],
            "subnet-id": [instance.subnet_id],
            "vpc-id": [instance.vpc_id],
            "image-id": [instance.image_id],
            "private-ip-address": [instance.private_ip],
            "reservation-id": [instance.reservation_id],
            "client-token": [instance.client_token],
            "iam-instance-profile.arn": [instance.profile.arn] if instance.profile else [],
            "instance.group-id": list(instance.security_group_ids),
        }

    def _reservation(self, instances: list[Instance]) -> dict[str, Any]:
        return {
            "ReservationId": instances[0].reservation_id,
            "OwnerId": self._cloud.account_id,
            "Groups": [],
            "Instances": [self._describe(instance) for instance in instances],
        }

    def _describe(self, instance: Instance) -> dict[str, Any]:
        settings = instance.settings
        attached = [
            volume
            for volume in self._cloud.volumes
            if volume.attachment is not None and volume.attachment.instance_id == instance.instance_id
        ]
        return {
            "InstanceId": instance.instance_id,
            "ImageId": instance.image_id,
            "State": {"Code": instance.state.code, "Name": instance.state.value},
            "InstanceType": instance.instance_type,
            "InstanceLifecycle": "spot" if instance.spot else None,
            "SpotInstanceRequestId": spot_request_id(instance),
            "Placement": {
                "AvailabilityZone": instance.zone,
                "AvailabilityZoneId": zone_id(instance.zone),
                "Tenancy": "default",
            },
            "SubnetId": instance.subnet_id,
            "VpcId": instance.vpc_id,
            "PrivateIpAddress": instance.private_ip,
            "PrivateDnsName": f"{_hostname(instance)}.ec2.internal",
            "LaunchTime": instance.launched_at,
            "ClientToken": instance.client_token,
            "Architecture": "x86_64",
            "Hypervisor": "xen",
            "VirtualizationType": "hvm",
            "RootDeviceType": "ebs",
            "RootDeviceName": "/dev/xvda",
            "Monitoring": {"State": "disabled"},
            "SecurityGroups": [{"GroupId": group} for group in instance.security_group_ids],
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
                for volume in attached
                if volume.attachment is not None
            ],
            "StateReason": (
                {"Code": instance.reason_code, "Message": f"{instance.reason_code}: {instance.reason}"}
                if instance.reason_code
                else None
            ),
            "StateTransitionReason": instance.reason,
            "Tags": tag_list(instance.tags),
        }


def spot_request_id(instance: Instance) -> str | None:
    """The id of the spot request that every spot instance comes from."""
    return f"sir-{instance.instance_id[-8:]}" if instance.spot else None


def _hostname(instance: Instance) -> str:
    return "ip-" + instance.private_ip.replace(".", "-")
