"""A template in the lines that a reviewer has to read: what exists, what may do what, what a change would replace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from spotkeep_constructs.acknowledgements import flattened

_REGION = "us-east-1"
_POLICIES = ("AssumeRolePolicyDocument", "KeyPolicy", "PolicyDocument", "ResourcePolicy")
_ATTACHED = ("ManagedPolicyArns", "PermissionsBoundary", "Roles")
_ASSET_HASH = re.compile(r"\b[0-9a-f]{64}\b")


def outline(template: dict[str, Any]) -> dict[str, list[str]]:
    """Return lines for each resource, by logical id: its type, what replaces it when it changes, its policies.

    Asset hashes are left out: what is inside an archive has tests of its own.
    """
    lines = {name: list(_resource(resource)) for name, resource in template["Resources"].items()}
    lines |= {f"Output {name}": [_text(output["Value"])] for name, output in template.get("Outputs", {}).items()}
    return {name: [_ASSET_HASH.sub("asset-hash", line) for line in found] for name, found in lines.items()}


def _resource(resource: dict[str, Any]) -> list[str]:
    kept = [f"{key}: {resource[key]}" for key in ("DeletionPolicy", "UpdateReplacePolicy") if key in resource]
    properties = resource.get("Properties", {})
    replacing = [f"{name} = {_text(properties[name])}" for name in _replacing(resource["Type"]) if name in properties]
    attached = [f"{name} = {_text(properties[name])}" for name in _ATTACHED if name in properties]
    inline = {f"Policy {each['PolicyName']}": each["PolicyDocument"] for each in properties.get("Policies", ())}
    policies = {name: properties[name] for name in _POLICIES if name in properties} | inline
    permitted = [
        line
        for name, policy in policies.items()
        for line in (name, *(line for statement in policy["Statement"] for line in _statement(statement)))
    ]
    return [resource["Type"], *kept, *replacing, *attached, *permitted]


def _replacing(kind: str) -> list[str]:
    """Return the properties whose change replaces a resource of a type, or may, as its schema says."""
    if kind.startswith("Custom::"):
        return ["ServiceToken"]
    # As the package keeps them: its own reader takes three seconds to import.
    schemas = Path(str(distribution("cfn-lint").locate_file("cfnlint/data/schemas")))
    digest = json.loads((schemas / "providers" / f"{_REGION}.json").read_text())[kind]
    schema = json.loads((schemas / "resources" / f"{digest}.json").read_text())
    paths = [*schema.get("createOnlyProperties", ()), *schema.get("conditionalCreateOnlyProperties", ())]
    # The schema of a table names no key: CloudFormation's reference does.
    return sorted({"KeySchema", *(path.split("/")[2] for path in paths)} - {*_POLICIES, *_ATTACHED})


def _statement(statement: dict[str, Any]) -> Iterator[str]:
    yield f"  {statement['Effect']} {_text(statement.get('Action') or {'all but': statement['NotAction']})}"
    for key in ("Principal", "NotPrincipal"):
        if key in statement:
            yield f"    {key} {_text(statement[key])}"
    for key in ("Resource", "NotResource"):
        for resource in _listed(statement.get(key, ())):
            yield f"    {key} {_text(resource)}"
    if "Condition" in statement:
        yield f"    Condition {_text(statement['Condition'])}"


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _text(value: Any) -> str:
    plain = _plain(value)
    if isinstance(plain, list) and all(isinstance(each, str) for each in plain):
        return ", ".join(plain)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Any) -> Any:
    """Return a value of a template with its references as text."""
    match value:
        case list():
            return [_plain(each) for each in value]
        case {"Fn::GetStackOutput": {"StackName": stack, "OutputName": name}}:
            return f"<{stack}.{name}>"
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(str(_plain(part)) for part in parts)
        case dict() if len(value) == 1 and next(iter(value)) in {"Ref", "Fn::GetAtt", "Fn::Sub"}:
            return flattened(value)
        case dict():
            return {key: _plain(each) for key, each in value.items()}
    return value
