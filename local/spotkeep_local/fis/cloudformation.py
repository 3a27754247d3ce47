"""`AWS::FIS::ExperimentTemplate` for CloudFormation.

Source: `AWS::FIS::ExperimentTemplate` in the CloudFormation template reference.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from spotkeep_local.service_base.resource_properties import as_request

if TYPE_CHECKING:
    from spotkeep_local.fis.service import FisService
    from spotkeep_local.service_base.resource_properties import PhysicalIdAndAttributes


class ExperimentTemplateResource:
    """The functions that CloudFormation calls.

    Args:
        fis: Keeps the templates.
    """

    def __init__(self, fis: FisService) -> None:
        self._fis = fis

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> PhysicalIdAndAttributes:  # noqa: ARG002
        """Create a template."""
        template_id = self._fis.put_template(_template_request(properties))
        return template_id, {"Id": template_id}

    def update(
        self,
        physical_id: str,
        old: dict[str, Any],  # noqa: ARG002
        new: dict[str, Any],
        stack_name: str,  # noqa: ARG002
    ) -> PhysicalIdAndAttributes:
        """Change a template in place."""
        self._fis.put_template(_template_request(new), template_id=physical_id)
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002
        """Delete a template, if it exists."""
        self._fis.delete_template(physical_id)


def _template_request(properties: dict[str, Any]) -> dict[str, Any]:
    """Return a resource's properties as CreateExperimentTemplate takes them."""
    request = as_request(properties, service="fis", operation="CreateExperimentTemplate")
    return {"clientToken": str(uuid.uuid4()), **request}
