"""`AWS::FIS::ExperimentTemplate` for CloudFormation.

Source: `AWS::FIS::ExperimentTemplate` in the CloudFormation template reference.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from spotkeep_local.fis.errors import NotFoundError

if TYPE_CHECKING:
    from spotkeep_local.fis.service import FisService

Made = tuple[str, dict[str, str]]


class ExperimentTemplateResource:
    """What CloudFormation calls.

    Args:
        fis: Where templates are.
    """

    def __init__(self, fis: FisService) -> None:
        self._fis = fis

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> Made:  # noqa: ARG002
        """Creates a template."""
        request = {**as_request(properties), "clientToken": str(uuid.uuid4())}
        template_id: str = self._fis.call("CreateExperimentTemplate", request)["experimentTemplate"]["id"]
        return template_id, {"Id": template_id}

    def update(self, physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str) -> Made:  # noqa: ARG002
        """Changes a template in place."""
        request = as_request(new)
        tags = request.pop("tags", {})
        template = self._fis.call("UpdateExperimentTemplate", {**request, "id": physical_id})["experimentTemplate"]
        if tags:
            self._fis.call("TagResource", {"resourceArn": template["arn"], "tags": tags})
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002
        """Deletes a template; one that is gone is fine."""
        try:
            self._fis.call("DeleteExperimentTemplate", {"id": physical_id})
        except NotFoundError:
            return


def as_request(properties: dict[str, Any]) -> dict[str, Any]:
    """A resource's properties as CreateExperimentTemplate takes them: the same words, begun with a small letter."""
    request: dict[str, Any] = {}
    for name, value in properties.items():
        if name in ("Targets", "Actions"):
            request[_small(name)] = {key: _entry(item) for key, item in value.items()}
        elif name == "Tags":
            request["tags"] = {str(key): str(item) for key, item in value.items()}
        else:
            request[_small(name)] = _small_letters(value)
    return request


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    """A target or an action: what its maps are keyed by is the template's or the service's own word."""
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
