"""The training specs that launchers of tests have put into S3, by their addresses, which hold their hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_fleet.training_spec import SPEC_CHANNEL, TrainingSpec, decode_spec
from spotkeep_jobs.backends.job_spec import SpecObject
from tests.models.s3 import BUCKET, Objects

_KEPT: dict[str, bytes] = {}


def keep_spec(spec: SpecObject) -> None:
    """Put a spec."""
    _KEPT[spec.uri] = spec.content


def spec_in(request: Mapping[str, Any], *, objects: Objects | None = None) -> TrainingSpec:
    """Read the spec that a job's request names as its channel.

    Args:
        request: The parameters of CreateTrainingJob.
        objects: The model of S3 with the spec. None where the launcher has no model of S3.
    """
    [channel] = [each for each in request["InputDataConfig"] if each["ChannelName"] == SPEC_CHANNEL]
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    content = _KEPT[uri] if objects is None else objects.contents[uri.removeprefix(f"s3://{BUCKET}/")]
    return decode_spec(content.decode())
