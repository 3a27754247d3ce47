"""Rules about what is handed to a job: channels, hyperparameters, environment, tags."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Final

from spotkeep_fleet.channel_files import has_an_empty_name
from spotkeep_fleet.training_spec import MLFLOW_EXPERIMENT, MLFLOW_TRACKING_URI
from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.limits import MAX_HYPERPARAMETERS
from spotkeep_jobs.document.reading import shown, too_large
from spotkeep_jobs.document.request import ArchiveSource, JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.bounds import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES

_OWN_TAGS: Final = {"sagemaker": 4, "ec2": 7}
"""Deployment, run, attempt and owner; an instance has a Name besides, and may get the tag of a drill.

What EC2 itself adds begins with `aws:`, and AWS does not count it.
Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html (Tag restrictions)
"""
_MARKS_OF_A_LAUNCH: Final = 3
"""Variables of the run, the attempt and the launch."""
_MAX_ENVIRONMENT: Final = 100
_MAX_CHANNELS: Final = 20
_MAX_TAGS: Final = 50
_INTO_A_FILE: Final = "Put the rest into a file of the source or a channel."
_TEXTS: Final = ("hyperparameters", "environment", "metrics", "command", "setup", "channels", "tags", "ladder")
"""The fields that can be long."""


@rule("channels", "command", "source")
def _channels_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    names = [channel.name for channel in request.channels]
    for name in sorted({name for name in names if names.count(name) > 1}) if len(names) <= _MAX_CHANNELS else ():
        yield Problem(
            field="channels", found=shown(name), problem="is the name of more than one channel", fix="Rename one."
        )
    own = 0 if request.command is None else 3 if isinstance(request.source, ArchiveSource) else 2
    fix = "Put data under a common prefix and use one channel for it."
    yield from _more_than_fit("channels", request.channels, limit=_MAX_CHANNELS, own=own, fix=fix)


@rule("channels", "source", "backend")
def _keys_can_be_files(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield the addresses of which all keys are refused once the job has begun: `spotkeep_fleet.channel_files`.

    An instance of EC2 fetches its source by the key itself.
    """
    copied = {f"channels.{each.name}.uri": each.uri for each in request.channels if each.input_mode == "File"}
    if isinstance(request.source, ArchiveSource) and request.backend != "ec2":
        copied = {"source": request.source.uri, **copied}
    for field, uri in copied.items():
        key = uri.removeprefix("s3://").partition("/")[2]
        if has_an_empty_name(key):
            yield Problem(
                field=field,
                found=shown(uri),
                problem="holds two slashes in a row; SageMaker copies no object with such a key",
                fix="Write one slash between folders, and copy the objects there if their keys have two.",
            )


@rule("hyperparameters")
def _hyperparameters_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    yield from _more_than_fit("hyperparameters", request.hyperparameters, limit=MAX_HYPERPARAMETERS, fix=_INTO_A_FILE)


@rule("environment", "command", "mlflow")
def _environment_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    # The place of the spec; without a command, what the script knows of it.
    own = _MARKS_OF_A_LAUNCH + (len(_variables_of_mlflow(request)) if request.command is None else 1)
    yield from _more_than_fit(
        "environment", request.environment, limit=_MAX_ENVIRONMENT, own=own, named="variables", fix=_INTO_A_FILE
    )


@rule("environment", "mlflow")
def _mlflow_is_named_once(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    for name in sorted(_variables_of_mlflow(request) & request.environment.keys()):
        yield Problem(
            field=f"environment.{name}",
            found="a value",
            problem="is given together with mlflow, which sets it",
            fix="Remove one of the two.",
        )


def _variables_of_mlflow(request: JobRequest) -> set[str]:
    """Return the names of the variables that the field mlflow sets."""
    if request.mlflow is None:
        return set()
    return {MLFLOW_TRACKING_URI} if request.mlflow.experiment is None else {MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT}


@rule("metrics")
def _steps_have_a_pattern(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    for name, metric in request.metrics.items():
        if metric.step is not None and metric.pattern is None:
            yield Problem(
                field=f"metrics.{name}.step",
                found=shown(metric.step),
                problem="is given without a pattern: the script reports the step of what it logs itself",
                fix="Add the pattern of the value, or remove the step.",
            )


@rule("backend", "tags")
def _tags_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    own = _OWN_TAGS[request.backend]
    yield from _more_than_fit("tags", request.tags, limit=_MAX_TAGS, own=own, fix="Remove some.")


def _more_than_fit(
    field: str, given: Sized, *, limit: int, own: int = 0, named: str = "", fix: str
) -> Iterator[Problem]:
    """Yield where more are given than AWS takes of a job, less what Spotkeep adds of its own."""
    if len(given) > limit - own:
        named = named or field
        yield Problem(
            field=field,
            found=f"{len(given)} {named}",
            problem=f"holds more {named} than the {limit - own} that AWS leaves beside Spotkeep's {own}"
            if own
            else f"holds more than {limit}",
            fix=fix,
        )


@rule("install", "source")
def _requirements_file_needs_a_source(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if isinstance(request.install, str) and request.install not in ("auto", "none") and request.source is None:
        yield Problem(
            field="install",
            found=shown(request.install),
            problem="names a file of the source, and the job has no source",
            fix="Add source, or list the requirements: [timm==1.0.9].",
        )


@rule("debug", "algorithm")
def _a_shell_can_be_opened(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield why no shell could be opened in it.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-remote-debugging.html (Considerations)
    """
    if not request.debug:
        return
    if defaults.shells is False:
        yield Problem(
            field="debug",
            found="true",
            problem="needs shells, and this deployment has none: the job's role may not talk to Session Manager",
            fix="Have it deployed with them: cdk deploy --all -c shells=true. Or remove debug.",
        )
    if request.algorithm is not None:
        yield Problem(
            field="debug",
            found="true",
            problem=f"is given with algorithm: {request.algorithm}; AWS opens no shell in its algorithms' containers",
            fix="Remove it, or train in an image or framework with a command.",
        )


@rule("runs", *_TEXTS)
def _document_fits_its_record(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    most = min(MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES // request.runs)
    yield from too_large(request.as_document(), most=most, record="a run's", fix=_INTO_A_FILE)


RULES: Final[tuple[Rule, ...]] = (
    _channels_fit,
    _keys_can_be_files,
    _hyperparameters_fit,
    _environment_fits,
    _mlflow_is_named_once,
    _steps_have_a_pattern,
    _tags_fit,
    _requirements_file_needs_a_source,
    _a_shell_can_be_opened,
    _document_fits_its_record,
)
