"""The training spec of a run's jobs, from its judged document. All backends use this one function. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from spotkeep_fleet.training_spec import (
    NO_INSTALLATION,
    JobSource,
    MlflowPlace,
    RunNumber,
    SearchedMetric,
    TrainingSpec,
    encode_spec,
    spec_file_name,
)
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.source import GitSource
from spotkeep_jobs.record.record import RunGroup


@dataclass(frozen=True, kw_only=True)
class SpecObject:
    """The object in S3 from which SageMaker's jobs get their spec.

    Attributes:
        uri: Its `s3://` address. The hash of its content is a part of the address.
        content: The spec, as its runner reads it.
    """

    uri: str
    content: bytes


def training_spec_of(
    request: JobRequest, *, environments: str | None = None, number: RunNumber | None = None
) -> TrainingSpec:
    """Write the spec of a run's jobs.

    Args:
        request: The validated request, defaults filled in.
        environments: The address in S3 of installed packages. None on EC2, where the volume keeps them.
        number: The run's number in its group, on EC2.
    """
    mlflow = request.mlflow
    return TrainingSpec(
        command=request.command or (),
        environment=request.environment,
        secrets=request.secrets,
        hyperparameters=request.hyperparameters,
        arguments=request.arguments,
        install=request.install if isinstance(request.install, str) else NO_INSTALLATION,
        requirements=request.requirements,
        setup=request.setup or (),
        environments=environments,
        warm_pool=request.keep_alive > 0,
        source=_source(request),
        metrics={
            name: SearchedMetric(metric.pattern, metric.step)
            for name, metric in request.metrics.items()
            if metric.pattern
        },
        pause_at_step=request.pause_at_step,
        number=number,
        mlflow=None if mlflow is None else MlflowPlace(mlflow.tracking_uri, mlflow.experiment),
    )


def number_in(group: RunGroup | None) -> RunNumber:
    """Return a run's number in its group. Without a group it is the first and only one."""
    return RunNumber(1, 1) if group is None else RunNumber(group.index, group.size)


def spec_object(spec: TrainingSpec, *, prefix: str) -> SpecObject:
    """Return the object of a spec.

    Args:
        spec: The spec.
        prefix: The place of the run's specs, with a closing slash.
    """
    content = encode_spec(spec)
    return SpecObject(uri=f"{prefix}{spec_file_name(content)}", content=content)


def _source(request: JobRequest) -> JobSource | None:
    if isinstance(request.source, GitSource):
        return JobSource(git_url=request.source.git, git_commit=request.source.commit, git_secret=request.source.secret)
    if request.source is None:
        return None
    return JobSource(uri=request.source.uri, sha256=request.source.sha256)
