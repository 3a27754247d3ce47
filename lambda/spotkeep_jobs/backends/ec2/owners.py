"""Which attempts fleets belong to. EC2's event of a fleet does not say: it comes for every fleet of the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from spotkeep_fleet.tags import ATTEMPT_TAG, DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api


class FleetOwners(Protocol):
    """The seam: whose something is."""

    def jobs_of_fleets(self, fleet_ids: Sequence[str], /) -> Mapping[str, str]:
        """The job names of the attempts of this deployment, by fleet id; other fleets are left out.

        Raises:
            AwsCallError: EC2 refused or could not answer.
        """
        ...


class TaggedFleetOwners:
    """The seam, on the tags that EC2 describes."""

    def __init__(self, ec2: Ec2Api, *, deployment: str) -> None:
        self._ec2 = ec2
        self._deployment = deployment

    def jobs_of_fleets(self, fleet_ids: Sequence[str], /) -> Mapping[str, str]:
        """Ask EC2 for the fleets' tags, for all in one call; see `FleetOwners.jobs_of_fleets`."""
        return {
            fleet.id: f"{fleet.tags[RUN_TAG]}-{fleet.tags[ATTEMPT_TAG]}"
            for fleet in self._ec2.fleets_by_id(fleet_ids)
            if fleet.tags.get(DEPLOYMENT_TAG) == self._deployment and {RUN_TAG, ATTEMPT_TAG} <= fleet.tags.keys()
        }


class NoFleetOwners:
    """The seam of a deployment without EC2: nothing there is its own."""

    def jobs_of_fleets(self, fleet_ids: Sequence[str], /) -> Mapping[str, str]:  # noqa: ARG002 - the seam's signature
        """None of them; see `FleetOwners.jobs_of_fleets`."""
        return {}
