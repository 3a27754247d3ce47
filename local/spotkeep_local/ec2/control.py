"""The control plane of the local EC2: interruptions, capacity, prices. `fleet_control` is its client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2 import events
from spotkeep_local.ec2.errors import invalid, missing
from spotkeep_local.ec2.facts import InstanceFacts, Platform
from spotkeep_local.ec2.market import Market, SpotPoolChange

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.instances import Instances


class Ec2Control:
    """The operations of the control plane, each from a JSON object to a JSON object.

    Args:
        cloud: The local EC2.
        instances: Interrupts instances.
    """

    def __init__(self, cloud: Cloud, instances: Instances) -> None:
        self._cloud = cloud
        self._instances = instances

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by name."""
        return {
            "InterruptInstance": self._interrupt,
            "WarnOfInstance": self._warn,
            "ChangePool": self._change_pool,
            "ScriptMarket": self._script_market,
            "Consistency": self._consistency,
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
        self._cloud.send_event(*events.interruption_warning(instance_id=_text(request, "instance_id"), zone=zone))
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
        return Platform(isolation=platform.isolation.value, reason=platform.reason).to_document()


def _text(request: dict[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise missing(name)
    return value


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise invalid(f"{name} must be a number of seconds from 0, found {value!r}")
    return float(value)
