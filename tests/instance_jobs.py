"""Jobs of instances, with the fields of the job and of its training spec given side by side."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.training_spec import TrainingSpec

_VOLUME = VolumeSpec(size_gb=8)
_OF_THE_SPEC = {each.name for each in fields(TrainingSpec)}


def instance_job(
    command: tuple[str, ...] | str = ("python", "train.py"), volume: VolumeSpec = _VOLUME, **given: Any
) -> InstanceJob:
    """Make a job of these fields, some of the job itself and some of its spec."""
    return changed(InstanceJob(TrainingSpec(command), volume), **given)


def changed(job: InstanceJob, **given: Any) -> InstanceJob:
    """Make a job with some fields changed."""
    of_the_spec = {name: value for name, value in given.items() if name in _OF_THE_SPEC}
    own = {name: value for name, value in given.items() if name not in _OF_THE_SPEC}
    return replace(job, training=replace(job.training, **of_the_spec), **own)
