"""The identity of this instance and its run, from the instance metadata, with tags where the template allows it."""

from __future__ import annotations

import calendar
import json
import time
from dataclasses import dataclass
from typing import Callable

from spotkeep.notices.instance_metadata import InstanceMetadataService, MetadataUnavailableError
from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG

from .errors import InstanceSettingsError

_DOCUMENT_PATH = "/latest/dynamic/instance-identity/document"
_TAGS_PATH = "/latest/meta-data/tags/instance/"
_ATTEMPTS = 30
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True)
class InstanceIdentity:
    """The identity of this instance.

    Attributes:
        instance: The instance's id.
        zone: Its availability zone.
        region: The region of the zone.
        instance_type: For example `g5.xlarge`.
        run: The run's id.
        deployment: The deployment's name.
        address: The private IPv4 address. Empty where the document lacks it.
        launched_at: Time of its launch by EC2, in seconds since the epoch, or None when the document lacks it.
    """

    instance: str
    zone: str
    region: str
    instance_type: str
    run: str
    deployment: str
    address: str = ""
    launched_at: float | None = None


def read_identity(
    metadata: InstanceMetadataService, *, sleep: Callable[[float], None] = time.sleep
) -> InstanceIdentity:
    """Ask the metadata service for this instance's identity, for half a minute, as it may be slow to start.

    Raises:
        InstanceSettingsError: If values are missing, all of which the error names.
    """
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            sleep(_PAUSE_SECONDS)
        try:
            document = json.loads(metadata.text(_DOCUMENT_PATH) or "null")
            tags = {name: metadata.text(_TAGS_PATH + name) for name in (RUN_TAG, DEPLOYMENT_TAG)}
        except (MetadataUnavailableError, ValueError, RecursionError) as error:
            problem = str(error)
            continue
        return _identity(document, tags)
    raise InstanceSettingsError([f"the instance metadata cannot be read: {problem}"])


def _identity(document: object, tags: dict[str, str | None]) -> InstanceIdentity:
    found = document if isinstance(document, dict) else {}
    names = ("instanceId", "availabilityZone", "region", "instanceType")
    problems = [f"the identity document has no {name}" for name in names if not isinstance(found.get(name), str)]
    problems += [
        f"the instance has no tag {name}, or its launch template does not put tags into the metadata"
        for name, value in tags.items()
        if not value
    ]
    if problems:
        raise InstanceSettingsError(problems)
    return InstanceIdentity(
        instance=found["instanceId"],
        zone=found["availabilityZone"],
        region=found["region"],
        instance_type=found["instanceType"],
        run=tags[RUN_TAG] or "",
        deployment=tags[DEPLOYMENT_TAG] or "",
        address=str(found.get("privateIp") or ""),
        launched_at=_seconds(found.get("pendingTime")),
    )


def _seconds(text: object) -> float | None:
    try:
        return float(calendar.timegm(time.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ")))
    except ValueError:
        return None
