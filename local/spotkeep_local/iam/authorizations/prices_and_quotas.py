"""What the operations of the Price List and of Service Quotas ask for: neither knows resources.

Source: "Actions, resources, and condition keys for AWS Price List" and "... for Service Quotas" in the Service
Authorization Reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spotkeep_local.iam.authorizations.asking import always

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.authorizations.asking import AuthorizationRule

PRICING: Final[Mapping[str, AuthorizationRule]] = {
    "DescribeServices": always("pricing:DescribeServices"),
    "GetProducts": always("pricing:GetProducts"),
}
SERVICE_QUOTAS: Final[Mapping[str, AuthorizationRule]] = {
    "ListServiceQuotas": always("servicequotas:ListServiceQuotas"),
    "ListServices": always("servicequotas:ListServices"),
}
