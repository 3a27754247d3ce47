"""Whether the account has the service-linked roles that a deployment's first fleet and first drill need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError


@dataclass(frozen=True, kw_only=True)
class ServiceRole:
    """A service-linked role, and whether it is there.

    Attributes:
        name: Its name.
        service: Whose it is: `ec2fleet.amazonaws.com`.
        exists: Whether it is there; None where IAM did not say.
        problem: Why IAM did not say.
    """

    name: str
    service: str
    exists: bool | None
    problem: str | None = None

    @property
    def creation(self) -> str:
        """The command that makes it."""
        return f"aws iam create-service-linked-role --aws-service-name {self.service}"

    def as_document(self) -> dict[str, Any]:
        """Return the role as JSON."""
        return {"name": self.name, "service": self.service, "exists": self.exists, "problem": self.problem}


def read_service_roles(iam: Any, roles: Mapping[str, str]) -> tuple[ServiceRole, ...]:
    """Ask IAM for each.

    Args:
        iam: A boto3 client.
        roles: Names by service.
    """
    return tuple(_read(iam, name=name, service=service) for service, name in roles.items())


def _read(iam: Any, *, name: str, service: str) -> ServiceRole:
    try:
        iam.get_role(RoleName=name)
    except iam.exceptions.NoSuchEntityException:
        return ServiceRole(name=name, service=service, exists=False)
    except (BotoCoreError, ClientError) as error:
        return ServiceRole(name=name, service=service, exists=None, problem=str(error))
    return ServiceRole(name=name, service=service, exists=True)
