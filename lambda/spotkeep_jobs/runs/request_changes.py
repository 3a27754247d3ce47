"""The fields of a run's request that a resume may change. Its work and its place may change, but not its identity.

Pure.

A run that failed by a bug in its script goes on from its last checkpoint with another source. The changed request is
judged as a whole, by the rules of a launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
from spotkeep_jobs.document.reading import outlined
from spotkeep_jobs.document.validation import validate
from spotkeep_jobs.errors import Problem

FILLED_IN: Final = frozenset({"image", "instance_types", "max_run", "max_wait", "share"})
"""The fields that a deployment may fill in. Their values may have changed when the same token is sent again."""
_NAMES_IT: Final = "is what the run, its jobs and its checkpoints are called by"
_WHOSE: Final = "says whose the run is, and with it who may act on it and where its files are"
_SEVERAL: Final = "is of a launch of several runs"
_GOES_ON: Final = "says where its checkpoints are, and a resumed run goes on from these"
_STAYS: Final[Mapping[str, str]] = {
    "name": _NAMES_IT,
    "run": _NAMES_IT,
    "token": _NAMES_IT,
    "owner": _WHOSE,
    "team": _WHOSE,
    "tags": _WHOSE,
    "backend": _GOES_ON,
    "checkpoints": _GOES_ON,
    "checkpoint_prefix": _GOES_ON,
    "volume": _GOES_ON,
    "runs": _SEVERAL,
    "on_demand_base": _SEVERAL,
}
_TYPES: Final = ("instance_type", "instance_types")


def fields_that_stay(changes: Mapping[str, Any]) -> list[Problem]:
    """Return the fields among the changes that a resume may not change.

    Args:
        changes: New values by field.
    """
    return [
        Problem(
            field=field,
            found=outlined(changes[field]),
            problem=f"is not changed by a resume: it {reason}",
            fix="Remove it; or launch a new run, with checkpoint_prefix to go on from this one's checkpoints.",
        )
        for field, reason in _STAYS.items()
        if field in changes
    ]


def changed_document(
    recorded: Mapping[str, Any], changes: Mapping[str, Any], *, defaults: DeploymentDefaults
) -> dict[str, Any]:
    """Return a run's request with its changes, to be judged.

    Some values of the deployment follow from other fields and are filled in again. For example, the image follows from
    the instance types, and the longest wait follows from the longest run.

    Args:
        recorded: The request, as the run item has it.
        changes: New values by field, with None to remove a value or to let the deployment fill it in.
        defaults: The values that the deployment fills in.
    """
    document = dict(recorded)
    if changes and not any(field in changes for field in _STAYS):
        for field in sorted(FILLED_IN - changes.keys()):
            rest = {name: value for name, value in document.items() if name != field}
            filled_in = validate(rest, defaults=defaults).request
            if filled_in is not None and filled_in.as_document().get(field) == recorded.get(field):
                document = rest
    if any(field in changes for field in _TYPES):
        document = {name: value for name, value in document.items() if name not in _TYPES}
    return {name: value for name, value in {**document, **changes}.items() if value is not None}


def changes_in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the names of the changed fields, without their values. A timeline must not show an environment.

    Args:
        before: The request as it was recorded.
        after: The request as it is recorded now.
    """
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    return ", ".join(f"source ({_version(after.get(name))})" if name == "source" else name for name in changed)


def _version(source: object) -> str:
    """Return the beginning of the hash that pins a source."""
    if not isinstance(source, Mapping):
        return "none"
    return str(source.get("sha256") or source.get("commit"))[:12]
