"""The secrets of AWS Secrets Manager that a job reads, for variables of its script and for its repository. Pure.

A job file holds references to secrets, and no values. Those who may launch with a role may read what the role may read.
So the deployment's setting `secrets` names what jobs may read.

A value in the place of a reference would look like a secret's name. So a refusal shows no name that is not in the
setting.

Source: "Amazon Resource Names" of AWS Secrets Manager (service authorization reference).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

from spotkeep_fleet.secret_references import SecretReference, read_reference
from spotkeep_jobs.document.command import NO_RUNNER, RESERVED_VARIABLES
from spotkeep_jobs.document.metrics import set_by_trackers
from spotkeep_jobs.document.reading import AnyText, Rule, first_few, more_than_fit, must, rule, written
from spotkeep_jobs.document.source import GitSource
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


MAX_SECRETS: Final = 20
_RESERVED_PREFIXES: Final = ("SM_", "AWS_", "SPOTKEEP_")


SecretVariable = Annotated[
    AnyText,
    must(
        written(r"[a-zA-Z_][a-zA-Z0-9_]{0,511}"),
        "is not the name of an environment variable: at most 512 letters, digits and underscores, no digit first",
        "Rename the variable",
    ),
    must(
        lambda text: text not in RESERVED_VARIABLES and not text.startswith(_RESERVED_PREFIXES),
        f"is a variable that Spotkeep, SageMaker or AWS sets ({', '.join(f'{each}*' for each in _RESERVED_PREFIXES)})",
        "Rename the variable",
    ),
]


def references_of(request: JobRequest) -> dict[str, SecretReference]:
    """Return the references to secrets in a request, by the place in the document."""
    texts = {f"secrets.{variable}": text for variable, text in (request.secrets or {}).items()}
    if isinstance(request.source, GitSource) and request.source.secret is not None:
        texts["source.secret"] = request.source.secret
    found = {place: read_reference(text) for place, text in texts.items()}
    return {place: reference for place, reference in found.items() if reference is not None}


def is_named(reference: SecretReference, secrets: Sequence[str], *, region: str | None) -> bool:
    """Return True where the setting names a secret, by its name or by its ARN.

    Args:
        reference: The reference.
        secrets: The setting.
        region: The region of the deployment, in which secrets that the setting names by their names are.
    """
    if reference.secret in secrets:
        return True
    if reference.region is not None:
        return reference.name in secrets and region in (None, reference.region)
    named = (read_reference(each) for each in secrets)
    return any(each is not None and each.region is not None and each.name == reference.name for each in named)


@rule("secrets", "source")
def _secrets_may_be_read(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if defaults.secrets is None:
        return
    for place, reference in references_of(request).items():
        if is_named(reference, defaults.secrets, region=defaults.region):
            continue
        known = f": {first_few(defaults.secrets)}" if defaults.secrets else ", which names none"
        by_arn = reference.region is not None
        yield Problem(
            field=place,
            found=repr(reference.secret) if by_arn else f"a name of {len(reference.secret)} characters",
            problem=f"is not among the secrets that jobs may read{known}",
            fix="Name it in the deployment's setting secrets (and its KMS key, if it has one of its own, in "
            "secret_key_arns), and deploy again. A job file never holds a value.",
        )


@rule("secrets", "environment", "mlflow", "wandb")
def _a_variable_has_one_value(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    others = {**set_by_trackers(request), **dict.fromkeys(request.environment, "environment")}
    for name in request.secrets or ():
        other = others.get(name)
        if other is not None:
            yield Problem(
                field=f"secrets.{name}",
                found=f"{name} in {other}, too",
                problem=f"is a variable that {other} sets",
                fix="Remove one of the two.",
            )


@rule("source")
def _a_token_goes_over_https(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    source = request.source
    if isinstance(source, GitSource) and source.secret is not None and not source.git.startswith("https://"):
        yield Problem(
            field="source.secret",
            found=f"git: {source.git}",
            problem="is a token, which git sends over https alone",
            fix="Give the repository's address as https://<host>/<path>.git, or remove secret.",
        )


@rule("secrets")
def _secrets_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    fix = "Put several values into one secret as a JSON object, and read it in the script."
    yield from more_than_fit("secrets", request.secrets or (), limit=MAX_SECRETS, fix=fix)


@rule("secrets", "command")
def _the_runner_reads_them(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.secrets and request.command is None:
        yield Problem(
            field="secrets",
            found=", ".join(request.secrets),
            problem=NO_RUNNER,
            fix="Add command. Spotkeep's runner reads secrets, and an image's own entry point runs without it.",
        )


RULES: Final[tuple[Rule, ...]] = (
    _the_runner_reads_them,
    _secrets_may_be_read,
    _a_variable_has_one_value,
    _a_token_goes_over_https,
    _secrets_fit,
)
