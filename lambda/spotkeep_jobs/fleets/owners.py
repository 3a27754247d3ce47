"""Whose an instance or a fleet is. A warning of EC2 says neither: it comes for every spot instance of the account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.fleets.ec2_api import Ec2Api


class FleetOwners(Protocol):
    """The seam: whose something is."""

    def run_of_instance(self, instance_id: str, /) -> str | None:
        """The run of this deployment that an instance works on, or None."""
        ...

    def run_of_fleet(self, fleet_id: str, /) -> str | None:
        """The run of this deployment that a fleet belongs to, or None."""
        ...


class TaggedFleetOwners:
    """The seam, on the tags that EC2 describes."""

    def __init__(self, ec2: Ec2Api, *, deployment: str) -> None:
        self._ec2 = ec2
        self._deployment = deployment

    def run_of_instance(self, instance_id: str, /) -> str | None:
        """Ask EC2 for an instance's tags; see `FleetOwners.run_of_instance`."""
        found = self._ec2.instances_by_id([instance_id])
        return self._run_of(found[0].tags) if found else None

    def run_of_fleet(self, fleet_id: str, /) -> str | None:
        """Ask EC2 for a fleet's tags; see `FleetOwners.run_of_fleet`."""
        found = self._ec2.fleet(fleet_id)
        return self._run_of(found.tags) if found is not None else None

    def _run_of(self, tags: Mapping[str, str]) -> str | None:
        return tags.get(RUN_TAG) if tags.get(DEPLOYMENT_TAG) == self._deployment else None


class NoFleetOwners:
    """The seam of a deployment without EC2: nothing there is its own."""

    def run_of_instance(self, instance_id: str, /) -> str | None:  # noqa: ARG002 - the seam's signature
        """Nobody's; see `FleetOwners.run_of_instance`."""
        return None

    def run_of_fleet(self, fleet_id: str, /) -> str | None:  # noqa: ARG002 - the seam's signature
        """Nobody's; see `FleetOwners.run_of_fleet`."""
        return None
