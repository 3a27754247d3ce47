"""What the operations of Amazon ECR ask for: the password of a registry, which is no resource.

A pull itself goes through the registry's own protocol, for which there is no registry here.

Source: "Actions, resources, and condition keys for Amazon Elastic Container Registry" in the Service Authorization
Reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import always

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.authorizations.asking import AuthorizationRule

OPERATIONS: Final[Mapping[str, AuthorizationRule]] = {"GetAuthorizationToken": always("ecr:GetAuthorizationToken")}
