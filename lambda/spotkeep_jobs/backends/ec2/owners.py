"""Which attempts fleets belong to. EC2's event of a fleet does not say: it comes for every fleet of the account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotkeep_fleet.tags import ATTEMPT_TAG, DEPLOYMENT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api


class FleetOwners:
    """The attempts that fleets belong to, by the tags that EC2 describes."""

    def __init__(self, ec2: Ec2Api | None, *, deployment: str) -> None:
        """Bind the parts.

        Args:
            ec2: EC2; None in a deployment without fleets: none is its own there.
            deployment: Value of the tag `spotkeep:deployment`.
        """
        self._ec2 = ec2
        self._deployment = deployment

    def jobs_of_fleets(self, fleet_ids: Sequence[str], /) -> Mapping[str, str]:
        """Ask EC2 for the fleets' tags, for all in one call.

        Returns:
            The job names of the attempts of this deployment, by fleet id; other fleets are left out.

        Raises:
            AwsCallError: EC2 refused or could not answer.
        """
        if self._ec2 is None:
            return {}
        return {
            fleet.id: f"{fleet.tags[RUN_TAG]}-{fleet.tags[ATTEMPT_TAG]}"
            for fleet in self._ec2.fleets_by_id(fleet_ids)
            if fleet.tags.get(DEPLOYMENT_TAG) == self._deployment and {RUN_TAG, ATTEMPT_TAG} <= fleet.tags.keys()
        }
