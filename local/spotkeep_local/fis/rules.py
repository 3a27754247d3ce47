"""FIS's rules for a template beyond its model, and the features of the local AWS, as pure functions.

Source: "AWS FIS Actions reference" and "Targets for AWS FIS" in the AWS Fault Injection Service user guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_INTERRUPT_SPOT = "aws:ec2:send-spot-instance-interruptions"
_SPOT_INSTANCE = "aws:ec2:spot-instance"
_TARGET_KEY = "SpotInstances"
_DURATION = re.compile(r"PT(\d+)M")
_SHORTEST_MINUTES, _LONGEST_MINUTES = 2, 15
_SELECTION = re.compile(r"ALL|COUNT\(([1-9]\d*)\)")
_SOURCES = ("none", "aws:cloudwatch:alarm")


def problems(template: Mapping[str, Any]) -> Iterator[str]:
    """Yield every reason to refuse a template."""
    actions, targets = template.get("actions") or {}, template.get("targets") or {}
    if len(actions) != 1:
        yield f"actions must hold one action in the local AWS, found {len(actions)}"
    for name, action in actions.items():
        yield from _action_problems(name, action, targets)
    for name, target in targets.items():
        yield from _target_problems(name, target)
    for condition in template.get("stopConditions") or []:
        if condition["source"] not in _SOURCES:
            yield f"a stop condition's source must be one of {', '.join(_SOURCES)}, found {condition['source']!r}"
        elif condition["source"] != "none" and not condition.get("value"):
            yield "a stop condition of source aws:cloudwatch:alarm needs the alarm's ARN as its value"


def the_action(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a checked template's action."""
    (action,) = template["actions"].values()
    assert isinstance(action, dict)  # noqa: S101 - the model says so
    return action


def the_target(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a checked template's action."""
    target: Mapping[str, Any] = template["targets"][the_action(template)["targets"][_TARGET_KEY]]
    return target


def seconds_before_interruption(template: Mapping[str, Any]) -> float:
    """Return the time from the start of a checked template's action to the interruption."""
    match = _DURATION.fullmatch(the_action(template)["parameters"]["durationBeforeInterruption"])
    assert match is not None  # noqa: S101 - `problems` refused everything else
    return 60.0 * int(match[1])


def how_many(selection_mode: str, found: int) -> int:
    """Return how many of the instances that were found a checked selection mode takes."""
    match = _SELECTION.fullmatch(selection_mode)
    assert match is not None  # noqa: S101 - `problems` refused everything else
    return min(int(match[1]), found) if match[1] else found


def alarms(template: Mapping[str, Any]) -> list[str]:
    """Return the ARNs of the alarms that stop an experiment."""
    return [item["value"] for item in template.get("stopConditions") or [] if item["source"] != "none"]


def _action_problems(name: str, action: Mapping[str, Any], targets: Mapping[str, Any]) -> Iterator[str]:
    if action["actionId"] != _INTERRUPT_SPOT:
        yield f"action {name}: the local AWS has {_INTERRUPT_SPOT} alone, found {action['actionId']!r}"
        return
    duration = (action.get("parameters") or {}).get("durationBeforeInterruption", "")
    match = _DURATION.fullmatch(duration)
    if match is None or not _SHORTEST_MINUTES <= int(match[1]) <= _LONGEST_MINUTES:
        yield (
            f"action {name}: durationBeforeInterruption must be from PT{_SHORTEST_MINUTES}M to "
            f"PT{_LONGEST_MINUTES}M, found {duration!r}"
        )
    named = (action.get("targets") or {}).get(_TARGET_KEY)
    if named not in targets:
        yield f"action {name}: targets.{_TARGET_KEY} must name one of the template's targets, found {named!r}"


def _target_problems(name: str, target: Mapping[str, Any]) -> Iterator[str]:
    if target["resourceType"] != _SPOT_INSTANCE:
        yield f"target {name}: the local AWS has {_SPOT_INSTANCE} alone, found {target['resourceType']!r}"
    if not target.get("resourceTags"):
        yield f"target {name}: needs resourceTags; the local AWS finds instances by nothing else"
    if _SELECTION.fullmatch(target["selectionMode"]) is None:
        yield f"target {name}: selectionMode must be ALL or COUNT(n) here, found {target['selectionMode']!r}"
    for item in target.get("filters") or []:
        if item["path"] != "State.Name":
            yield f"target {name}: the local AWS filters by State.Name alone, found {item['path']!r}"
