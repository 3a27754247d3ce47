"""The choice of a deployment on a command line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """The user's choice of a deployment.

    Attributes:
        deployment: The `deployment` setting that it was deployed with.
        region: The AWS region. None for the AWS configuration's own.
        profile: The AWS profile. None for the AWS configuration's own.
        local: True for the deployment in the local AWS.
    """

    deployment: str = "spotkeep"
    region: str | None = None
    profile: str | None = None
    local: bool = False

    @property
    def command(self) -> str:
        """The words to call `spotkeep` with, so that it means the same deployment again."""
        parts = ["spotkeep"]
        if self.local:
            parts.append("--local")
        if self.deployment != "spotkeep":
            parts.append(f"--deployment {self.deployment}")
        if self.region:
            parts.append(f"--region {self.region}")
        if self.profile:
            parts.append(f"--profile {self.profile}")
        return " ".join(parts)
