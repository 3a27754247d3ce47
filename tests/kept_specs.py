"""The training specs that launchers of tests have put into S3, by their addresses, which hold their hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_fleet.training_spec import SPEC_CHANNEL, TrainingSpec, decode_spec
from spotkeep_jobs.document.command import SpecObject

_KEPT: dict[str, bytes] = {}


def keep_spec(spec: SpecObject) -> None:
    """Put a spec."""
    _KEPT[spec.uri] = spec.content


def spec_in(request: Mapping[str, Any]) -> TrainingSpec:
    """Read the spec that a job's request names as its channel."""
    [channel] = [each for each in request["InputDataConfig"] if each["ChannelName"] == SPEC_CHANNEL]
    return decode_spec(_KEPT[channel["DataSource"]["S3DataSource"]["S3Uri"]].decode())
