"""What FIS says in prose of a template, beside what its model says, and what of it exists here: pure functions.

Source: "AWS FIS Actions reference" and "Targets for AWS FIS" in the AWS Fault Injection Service user guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTERRUPT_SPOT = "aws:ec2:send-spot-instance-interruptions"
SPOT_INSTANCE = "aws:ec2:spot-instance"
_TARGET_KEY = "SpotInstances"
_DURATION = re.compile(r"PT(\d+)M")
_SHORTEST_MINUTES, _LONGEST_MINUTES = 2, 15
MOST_INSTANCES = 5
_SELECTION = re.compile(r"ALL|COUNT\(([1-9]\d*)\)|PERCENT\((100|[1-9]\d?)\)")
_SOURCES = ("none", "aws:cloudwatch:alarm")


def problems(template: Mapping[str, Any]) -> Iterator[str]:
    """Every reason to refuse a template; none when it is good."""
    targets = template.get("targets") or {}
    if not template.get("actions"):
        yield "actions must hold at least one action"
    for name, action in (template.get("actions") or {}).items():
        yield from _action_problems(name, action, targets, template["actions"])
    for name, target in targets.items():
        yield from _target_problems(name, target)
    for condition in template.get("stopConditions") or []:
        if condition["source"] not in _SOURCES:
            yield f"a stop condition's source must be one of {', '.join(_SOURCES)}, found {condition['source']!r}"
        elif condition["source"] != "none" and not condition.get("value"):
            yield "a stop condition of source aws:cloudwatch:alarm needs the alarm's ARN as its value"


def minutes_before_interruption(action: Mapping[str, Any]) -> int:
    """From the start of an action to the interruption; the template was checked."""
    match = _DURATION.fullmatch(action["parameters"]["durationBeforeInterruption"])
    assert match is not None  # noqa: S101 - `problems` refused everything else
    return int(match[1])


def how_many(selection_mode: str, found: int) -> int:
    """How many of the instances that were found are meant; the template was checked."""
    match = _SELECTION.fullmatch(selection_mode)
    assert match is not None  # noqa: S101 - `problems` refused everything else
    if match[1]:
        return min(int(match[1]), found)
    if match[2]:
        return found * int(match[2]) // 100
    return found


def _action_problems(
    name: str, action: Mapping[str, Any], targets: Mapping[str, Any], actions: Mapping[str, Any]
) -> Iterator[str]:
    if action["actionId"] != INTERRUPT_SPOT:
        yield f"action {name}: the local AWS has {INTERRUPT_SPOT} alone, found {action['actionId']!r}"
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
    for other in action.get("startAfter") or []:
        if other not in actions or other == name:
            yield f"action {name}: startAfter names {other!r}, which is no other action of the template"


def _target_problems(name: str, target: Mapping[str, Any]) -> Iterator[str]:
    if target["resourceType"] != SPOT_INSTANCE:
        yield f"target {name}: the local AWS has {SPOT_INSTANCE} alone, found {target['resourceType']!r}"
    if bool(target.get("resourceArns")) == bool(target.get("resourceTags")):
        yield f"target {name}: needs either resourceArns or resourceTags"
    if _SELECTION.fullmatch(target["selectionMode"]) is None:
        yield f"target {name}: selectionMode must be ALL, COUNT(n) or PERCENT(n), found {target['selectionMode']!r}"
    for item in target.get("filters") or []:
        if item["path"] not in FILTER_PATHS:
            yield f"target {name}: the local AWS filters by {', '.join(FILTER_PATHS)}, found {item['path']!r}"


FILTER_PATHS = ("State.Name", "Placement.AvailabilityZone", "InstanceType", "SubnetId", "VpcId")
