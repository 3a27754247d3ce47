"""The metrics that are followed while a job trains, and the experiment trackers that the script logs to."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import BeforeValidator, Field

from spotkeep_fleet.training_spec import (
    MLFLOW_EXPERIMENT,
    MLFLOW_TRACKING_URI,
    WANDB_MODE,
    WANDB_NAME,
    WandbPlace,
)
from spotkeep_jobs.document.reading import (
    LINE_ENDS,
    MAX_VARIABLE,
    DocumentModel,
    Rule,
    Text,
    first_few,
    must,
    read_text,
    rule,
    shown,
    without_credentials,
    written,
    wrong,
)
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.record import Goal

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest


_MAX_METRICS: Final = 40
_MAX_METRIC_NAME: Final = 100
"""SageMaker takes 255 characters. The controller reads names of at most 100 from a job's log."""
_MAX_METRIC_PATTERN: Final = 500
_NUMBER_GROUP: Final = "Put brackets around the number: loss=([0-9.eE+-]+)"


def read_metrics(value: object) -> object:
    """Turn names alone, and patterns alone, into metrics by name."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
        if not all(isinstance(name, str) for name in value):
            raise wrong("is a list of more than names", "Write a mapping: validation_loss: {goal: minimize}")
        value = dict.fromkeys(value)
    if not isinstance(value, Mapping):
        raise wrong(
            "is neither a mapping nor a list of names", "Write validation_loss: {goal: minimize}, one line each"
        )
    if len(value) > _MAX_METRICS:
        raise wrong(f"holds {len(value)} metrics; SageMaker takes {_MAX_METRICS}", f"Keep the best {_MAX_METRICS}")
    return {
        name: {} if metric is None else {"pattern": metric} if isinstance(metric, str) else metric
        for name, metric in value.items()
    }


def read_metric_name(value: object) -> str:
    """Return the name of a metric that CloudWatch and a terminal can show."""
    text = read_text(value)
    if not 1 <= len(text) <= _MAX_METRIC_NAME or not text.isprintable() or text != text.strip():
        raise wrong(
            f"is not the name of a metric: 1 to {_MAX_METRIC_NAME} printable characters, no space first or last",
            "Rename the metric, for example validation_loss",
        )
    return text


def read_metric_pattern(value: object) -> str:
    """Return a regular expression that finds a number in a line, in the forms that all regular expressions share.

    Flags, lookarounds and references to an earlier group are refused. Without flags, compiling takes almost no time.
    The job bounds the time of a search.
    """
    text = read_text(value)
    if not 1 <= len(text) <= _MAX_METRIC_PATTERN or LINE_ENDS & set(text) or "\0" in text:
        raise wrong(
            f"is not a pattern of one line and 1 to {_MAX_METRIC_PATTERN} characters, which SageMaker takes",
            "Shorten it to what stands right before the number",
        )
    if re.search(r"\(\?(?!:)", re.sub(r"\\.", "", text)):
        raise wrong("has a group with an option: (?i), (?=...), (?P<name>...)", f"Use plain groups. {_NUMBER_GROUP}")
    if any(escaped[1] in "123456789" for escaped in re.finditer(r"\\(.)", text)):
        raise wrong("refers back to a group, as in \\1", f"Write out what stands there. {_NUMBER_GROUP}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise wrong(f"is not a regular expression of Python ({str(error)[:100]})", _NUMBER_GROUP) from None
    if not groups:
        raise wrong("has no group, so it does not say where the number is", _NUMBER_GROUP)
    return text


class MetricRequest(DocumentModel):
    """A number to follow. The script logs it by this name, or a pattern finds it in its output."""

    pattern: Annotated[str, BeforeValidator(read_metric_pattern)] | None = Field(
        default=None, examples=["val_loss=([0-9.eE+-]+)"]
    )
    """A regular expression, searched for in each line of output. Its first group is the value. At most 500 characters,
    without flags, lookarounds and references. Default: none, the script logs the metric itself."""
    step: Annotated[str, BeforeValidator(read_metric_pattern)] | None = Field(default=None, examples=["epoch ([0-9]+)"])
    """The same for the step: its last match in this line or an earlier one. Default: the steps the script reports."""
    goal: Goal | None = None
    """minimize or maximize: which value is the best. Default: as the script's keep_best says, or no best value."""


MLFLOW_ARN: Final = r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:mlflow-(tracking-server|app)/[A-Za-z0-9-]{1,256}"
"""The ARN of a tracking server or an app of SageMaker's MLflow.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AIMlflowConfig.html (MlflowResourceArn)
"""


def read_mlflow(value: object) -> object:
    """Turn an address alone into a tracking server by its address."""
    return {"tracking_uri": value} if isinstance(value, str) else value


TrackingUri = Annotated[
    Text,
    Field(max_length=MAX_VARIABLE),
    without_credentials("Remove it; give MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in secrets"),
    must(
        written(rf"https?://[\w.-]+(:\d+)?(/[^\s]*)?|{MLFLOW_ARN}"),
        "is neither the URL of a tracking server nor the ARN of one of SageMaker's",
        "Give https://<host>, or arn:aws:sagemaker:<region>:<account>:mlflow-tracking-server/<name>",
    ),
]


class MlflowRequest(DocumentModel):
    """The MLflow tracking server that the script logs to."""

    tracking_uri: TrackingUri = Field(examples=["https://mlflow.example.com"])
    """Its URL, without credentials, or the ARN of a tracking server or app of SageMaker's."""
    experiment: Text | None = Field(default=None, examples=["digits"], max_length=256)
    """The name of the experiment, made if it is missing. Default: MLflow's own, `Default`."""

    @property
    def variables(self) -> frozenset[str]:
        """The names of the environment variables that it sets."""
        return frozenset({MLFLOW_TRACKING_URI} if self.experiment is None else {MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT})


def read_wandb(value: object) -> object:
    """Turn a name alone into a project of Weights & Biases by its name."""
    return {"project": value} if isinstance(value, str) else value


WandbName = Annotated[
    Text,
    must(
        written(r"[^/\\#?%:\s]{1,128}"),
        "is not a name of Weights & Biases: 1 to 128 characters without blanks and without / \\ # ? % :",
        "Write the name as the address of the project has it: https://wandb.ai/<entity>/<project>",
    ),
]


class WandbRequest(DocumentModel):
    """The project of Weights & Biases that the script logs to."""

    project: WandbName = Field(examples=["digits"])
    """The name of the project, made if it is missing."""
    entity: WandbName | None = Field(default=None, examples=["vision-team"])
    """The user or team that owns it. Default: that of the API key."""

    @property
    def variables(self) -> frozenset[str]:
        """The names of the environment variables that it sets."""
        return frozenset(WandbPlace(self.project, self.entity).variables(run=""))


_OF_THE_USER: Final = frozenset({WANDB_NAME, WANDB_MODE})
"""Variables of `wandb` that the user may set, too."""


def set_by_trackers(request: JobRequest) -> dict[str, str]:
    """Return the variables that the trackers of a request set, each with the field of its tracker."""
    trackers = (("mlflow", request.mlflow), ("wandb", request.wandb))
    return {
        name: field
        for field, tracker in trackers
        if tracker is not None
        for name in sorted(tracker.variables - _OF_THE_USER)
    }


@rule("environment", "mlflow", "wandb")
def _trackers_are_named_once(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    for name, field in set_by_trackers(request).items():
        if name in request.environment:
            yield Problem(
                field=f"environment.{name}",
                found="a value",
                problem=f"is given together with {field}, which sets it",
                fix="Remove one of the two.",
            )


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
            + (f": {first_few(defaults.mlflow_arns)}" if defaults.mlflow_arns else ""),
            fix="Name it in the deployment's setting mlflow_arns, and deploy again.",
        )


RULES: Final[tuple[Rule, ...]] = (
    _trackers_are_named_once,
    _steps_have_a_pattern,
    _runs_can_be_logged,
)
