"""`AWS::FIS::ExperimentTemplate` for CloudFormation.

Source: `AWS::FIS::ExperimentTemplate` in the CloudFormation template reference.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_local.fis.service import FisService

PhysicalIdAndAttributes = tuple[str, dict[str, str]]


class ExperimentTemplateResource:
    """The functions that CloudFormation calls.

    Args:
        fis: Keeps the templates.
    """

    def __init__(self, fis: FisService) -> None:
        self._fis = fis

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> PhysicalIdAndAttributes:  # noqa: ARG002
        """Create a template."""
        template_id = self._fis.put_template(_as_request(properties))
        return template_id, {"Id": template_id}

    def update(
        self,
        physical_id: str,
        old: dict[str, Any],  # noqa: ARG002
        new: dict[str, Any],
        stack_name: str,  # noqa: ARG002
    ) -> PhysicalIdAndAttributes:
        """Change a template in place."""
        self._fis.put_template(_as_request(new), template_id=physical_id)
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002
        """Delete a template, if it exists."""
        self._fis.delete_template(physical_id)


def _as_request(properties: dict[str, Any]) -> dict[str, Any]:
    """Return a resource's properties as CreateExperimentTemplate takes them: the same names, in lower camel case."""
    request: dict[str, Any] = {"clientToken": str(uuid.uuid4())}
    for name, value in properties.items():
        if name in ("Targets", "Actions"):
            request[_small(name)] = {key: _entry(item) for key, item in value.items()}
        else:
            request[_small(name)] = value if name == "Tags" else _small_letters(value)
    return request


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a target or an action: the keys of its maps are the template's or the service's own names."""
    kept = ("ResourceTags", "Parameters", "Targets")
    return {
        _small(name): {str(key): str(item) for key, item in value.items()} if name in kept else _small_letters(value)
        for name, value in entry.items()
    }


def _small_letters(value: Any) -> Any:
    if isinstance(value, dict):
        return {_small(name): _small_letters(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_small_letters(item) for item in value]
    return value


def _small(name: str) -> str:
    return name[0].lower() + name[1:]
