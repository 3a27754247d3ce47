"""Rules about what a run may read and write, as IAM will judge it: before anything is paid, not on an instance.

The roles of both backends have the same permissions here: they read `runs/` and `sources/` of the deployment's bucket
and the setting `data_locations`, and write checkpoints below `runs/<run>/checkpoints/`; the role of an isolated team
has `teams/<team>/runs/` and `teams/<team>/sources/` in their place. A channel is listed by the prefix that its URI
names, and every object found is read.
IAM compares the prefix of the listing, and the key of each object, with what the policy names, letter by letter:
s3://data/cifar10/ grants neither s3://data/cifar100/ nor s3://data/cifar10, since that lists both.

What is not known here: the policy of the data's bucket or of its KMS key, a permissions boundary, a policy of AWS
Organizations. They may deny what is accepted here. What a bucket policy alone allows is refused here.

Sources:
    https://docs.aws.amazon.com/AmazonS3/latest/userguide/amazon-s3-policy-keys.html (s3:prefix)
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html (S3Prefix)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.limits import MAX_RUN_ID_LENGTH, MLFLOW_ARN
from spotkeep_jobs.document.reading import nearest, shown
from spotkeep_jobs.document.request import ArchiveSource, JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.errors import Problem

_NAMED_LOCATIONS: Final = 3
"""So many are named in a refusal: a deployment may have fifty."""


def may_read(uri: str, *, locations: Sequence[str]) -> bool:
    """Return whether a role lists and reads what a URI names.

    Args:
        uri: The URI of a bucket, a prefix or an object: `s3://<bucket>[/<prefix>]`.
        locations: What it may read: `s3://<bucket>/<prefix>/` each.
    """
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return f"s3://{bucket}/{prefix}".startswith(tuple(locations))


@rule("channels", "source", "team")
def _data_can_be_read(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if defaults.data_locations is None or defaults.checkpoint_bucket is None:
        return
    locations = (defaults.runs_uri(request.team), *defaults.data_locations)
    readable = (*locations, defaults.sources_uri(request.team))
    wanted = {f"channels.{channel.name}.uri": channel.uri for channel in request.channels}
    if isinstance(request.source, ArchiveSource):
        wanted = {"source": request.source.uri, **wanted}
    for field, uri in wanted.items():
        if may_read(uri, locations=readable):
            continue
        fix = (
            f"Name {_folder_of(uri)} in the deployment's setting data_locations (and its KMS key, if it has one, in "
            "data_key_arns), and deploy again."
        )
        if may_read(f"{uri}/", locations=readable):
            fix = f"Write {uri}/, with a slash at its end: without, other names that begin alike are meant, too."
        yield Problem(
            field=field,
            found=shown(uri),
            problem=f"is not among what the run's role may read: {_some(locations)}",
            fix=fix,
        )


@rule("checkpoint_prefix", "team")
def _checkpoints_can_be_written(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Yield what is wrong with a prefix: all have one shape, so that none lies inside another (I1)."""
    prefix = request.checkpoint_prefix
    if prefix is None or defaults.checkpoint_bucket is None:
        return
    runs = defaults.runs_uri(request.team)
    shape = rf"{re.escape(runs)}[a-zA-Z0-9][a-zA-Z0-9-]{{0,{MAX_RUN_ID_LENGTH - 1}}}/checkpoints/"
    if not re.fullmatch(shape, prefix, re.ASCII):
        yield Problem(
            field="checkpoint_prefix",
            found=shown(prefix),
            problem="is not where the run's role may write checkpoints",
            fix=f"Give {runs}<run>/checkpoints/, or leave it out for one of the run's own.",
        )


@rule("backend", "mlflow")
def _runs_can_be_logged(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    uri = None if request.mlflow is None else request.mlflow.tracking_uri
    if uri is None or not re.fullmatch(MLFLOW_ARN, uri):
        return
    if request.backend == "ec2":
        yield Problem(
            field="mlflow.tracking_uri",
            found=shown(uri),
            problem="is SageMaker's, which asks for AWS credentials, and a script on an instance has none",
            fix="Give the URL of another tracking server, or train on SageMaker.",
        )
    elif defaults.mlflow_arns is not None and uri not in defaults.mlflow_arns:
        yield Problem(
            field="mlflow.tracking_uri",
            found=shown(uri),
            problem="is not among what the job's role may log to"
            + (f": {_some(defaults.mlflow_arns)}" if defaults.mlflow_arns else ""),
            fix="Name it in the deployment's setting mlflow_arns, and deploy again.",
        )


@rule("team")
def _team_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.team is None or defaults.teams is None or request.team in defaults.teams:
        return
    yield Problem(
        field="team",
        found=shown(request.team),
        problem="has no role of its own in this deployment",
        fix=nearest(request.team, defaults.teams)
        if defaults.teams
        else "Remove team, or ask for it in the setting isolated_teams.",
    )


def _some(locations: Sequence[str]) -> str:
    more = len(locations) - _NAMED_LOCATIONS
    return ", ".join(locations[:_NAMED_LOCATIONS]) + (f" and {more} more" if more > 0 else "")


def _folder_of(uri: str) -> str:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return f"s3://{bucket}/{''.join(key.rpartition('/')[:2])}"


RULES: Final[tuple[Rule, ...]] = (
    _data_can_be_read,
    _checkpoints_can_be_written,
    _runs_can_be_logged,
    _team_is_known,
)
