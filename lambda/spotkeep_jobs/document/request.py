"""The job document of a user, in `job.yaml` and in the launcher's payload alike.

Each subject's module holds the types and readers of its fields, and its rules. A field's own description is the fix of
a refusal, so it says how a value is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from spotkeep_jobs.document.capacity import FallbackRequest, InstanceType, InstanceTypes, read_fallbacks
from spotkeep_jobs.document.command import (
    COMMAND_SCHEMA,
    VariableName,
    read_command,
    read_hyperparameter,
    read_hyperparameter_name,
    read_setup,
    read_variable,
)
from spotkeep_jobs.document.fleet import MAX_RUNS, VolumeRequest
from spotkeep_jobs.document.image import Algorithm, Framework, Image
from spotkeep_jobs.document.metrics import MetricRequest, MlflowRequest, read_metric_name, read_metrics, read_mlflow
from spotkeep_jobs.document.queue import MAX_PRIORITY
from spotkeep_jobs.document.reading import DocumentModel
from spotkeep_jobs.document.secrets import SecretVariable
from spotkeep_jobs.document.source import (
    MAX_REQUIREMENTS,
    ArchiveSource,
    Channel,
    ChannelData,
    GitSource,
    Source,
    read_channels,
    read_install,
    read_prefix,
    read_source,
)
from spotkeep_jobs.document.spending import UsDollars
from spotkeep_jobs.document.times import (
    DAY_SECONDS,
    DEADLINE_SCHEMA,
    DEFAULT_RESTART_SECONDS,
    MAX_DEADLINE_SECONDS,
    MAX_KEEP_ALIVE_SECONDS,
    MAX_WAIT_SECONDS,
    DurationOf,
    LongestWait,
    read_deadline,
)
from spotkeep_jobs.document.values import (
    HYPHENATED,
    MAX_RUN_ID_LENGTH,
    S3_SCHEMA,
    TEXTS_SCHEMA,
    Owner,
    S3Uri,
    SecretText,
    ShortName,
    TagKey,
    Text,
    WholeNumber,
    each_once,
    read_list,
    read_tag_value,
)
from spotkeep_jobs.record.record import DEFAULT_NOTIFY, Goal
from spotkeep_jobs.record.states import NotificationKind


def kind_of(document: object) -> Literal["job", "sweep", "schedule"]:
    """Return the kind of a document. A schedule is one whether it launches a job or a sweep."""
    given = document if isinstance(document, Mapping) else {}
    if given.get("schedule") is not None:
        return "schedule"
    return "job" if given.get("sweep") is None else "sweep"


class JobRequest(DocumentModel):
    """A training job for Spotkeep. Only `name` is required, and `command` where no image runs by itself."""

    # Leaves room for the `-` and 8 hex digits that make a run id of a name.
    name: Text = Field(examples=["resnet50-cifar10"], max_length=43, pattern=HYPHENATED)
    """What people call the job: letters, digits and hyphens, at most 43; a letter or digit first and last."""
    command: Annotated[tuple[str, ...] | str, BeforeValidator(read_command), COMMAND_SCHEMA] | None = Field(
        default=None, examples=["python train.py --epochs 30", ["python", "train.py"], 'cd src\npython train.py "$@"\n']
    )
    """The command that trains, run in the unpacked source. A text of one line is split into words, and no shell runs
    it; a text of several lines is a block for `bash -euo pipefail`, and "$@" are the hyperparameters. Default: the own
    entry point of the image, framework or algorithm that is named; one of them is then required."""
    run: Text | None = Field(
        default=None, examples=["resnet50-cifar10-2026-11"], max_length=MAX_RUN_ID_LENGTH, pattern=HYPHENATED
    )
    """The run's id: letters, digits and hyphens, at most 52, never used before. Default: the name and 8 hex
    digits of the token."""
    source: Annotated[
        Source | None,
        BeforeValidator(read_source, json_schema_input_type=S3Uri | ArchiveSource | GitSource | None),
    ] = Field(
        default=None,
        examples=[{"git": "https://example.com/a.git", "commit": "0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6"}],
    )
    """Where the code is: an archive by its URI and hash, or by its URI alone if it is named `<sha256>.tar.gz`; or a
    commit of a git repository. Default: none, the image holds it."""
    install: Annotated[
        str | tuple[str, ...],
        BeforeValidator(read_install),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "minItems": 1, "maxItems": MAX_REQUIREMENTS, "items": {"type": "string"}},
                ]
            },
            mode="validation",
        ),
    ] = Field(default="auto", examples=["requirements/train.txt", ["timm==1.0.9"], "none"])
    """What pip installs before the command. auto: requirements.txt at the source's root, else what the table [project]
    of pyproject.toml depends on; none; the path of a requirements file in the source; or a list of requirements."""
    setup: Annotated[tuple[str, ...] | str, BeforeValidator(read_setup), COMMAND_SCHEMA] | None = Field(
        default=None, examples=["python download_tokenizer.py"]
    )
    """A command that is run once a machine, after the installation, in the unpacked source: at most 256 characters, or
    a block of lines for bash."""
    backend: Literal["sagemaker", "ec2"] = "sagemaker"
    """sagemaker: a managed training job. ec2: a spot fleet of one instance, with a volume that follows the run."""
    volume: VolumeRequest | None = Field(default=None, examples=[{"size_gb": 500, "type": "gp3"}])
    """backend ec2 only: the volume that follows the run. Default: 100 GiB of gp3, kept when the run is done."""
    max_price: UsDollars | None = Field(default=None, examples=[0.5])
    """backend ec2 only: US dollars an hour that a spot instance may cost. Default: the on-demand price."""
    runs: WholeNumber = Field(default=1, ge=1, le=MAX_RUNS)
    """backend ec2 only: how many independent runs to launch, 1 to 15, each with its own id, fleet, volume and
    checkpoints. Several are called `<run>-1`, `<run>-2`, ...; SPOTKEEP_RUN_INDEX is the number of each."""
    on_demand_base: WholeNumber = Field(default=0, ge=0, le=MAX_RUNS)
    """backend ec2 only: how many of the runs, the first ones, are on demand while the others are spot."""
    rebalance: Literal["leave", "save", "ignore"] = "save"
    """backend ec2 only: what a rebalance recommendation means: save and go on, leave as on a notice, or ignore."""
    instance_metadata: Literal["closed", "open"] = "closed"
    """backend ec2 only: whether the script reaches the instance metadata service and with it the instance's role."""
    image: Image | None = Field(
        default=None, examples=["763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-gpu-py313"]
    )
    """The container image; needs `python3` 3.9 or later, nothing else. Default: the deployment's, by instance type; on
    EC2 none, and the command runs on the AMI itself."""
    framework: Framework | None = Field(default=None, examples=["pytorch-2.10"])
    """Instead of image, AWS's own image of a framework: pytorch, tensorflow, huggingface, xgboost or sklearn, with a
    version as pytorch-2.10, or without for the newest. The launch chooses it by region and instance types."""
    algorithm: Algorithm | None = Field(default=None, examples=["xgboost-1.7"])
    """Instead of image and command, one of SageMaker's built-in algorithms: xgboost-1.7, blazingtext, linear-learner,
    ... The launch chooses its image by region; hyperparameters and channels are the algorithm's own."""
    instance_types: InstanceTypes | None = Field(default=None, examples=[["ml.g5.xlarge"]])
    """SageMaker instance types, best first. Spot takes one, the others up to five. Default: the deployment's."""
    instance_type: InstanceType | None = Field(default=None, examples=["ml.g5.xlarge"])
    """The same for a single type."""
    instance_count: WholeNumber = Field(default=1, ge=1, le=20)
    """How many instances, 1 to 20."""
    volume_size_gb: WholeNumber = Field(default=30, ge=1, le=16_384)
    """Storage of each instance in GB, 1 to 16,384. Types with local disks bring their own."""
    capacity: Literal["spot", "on-demand", "auto"] = "spot"
    """spot: cheaper, can be interrupted. on-demand: dearer, never interrupted, may keep a warm pool. auto: spot with
    each instance type, then on demand."""
    queue: ShortName | None = Field(default=None, examples=["gpu"])
    """The queue of the deployment that the job waits in for its turn, where it has queues. Default: none, SageMaker is
    asked at once."""
    share: ShortName | None = Field(default=None, examples=["vision"])
    """With a queue: whose share of it the job uses. Default: the queue's only one."""
    priority: WholeNumber | None = Field(default=None, ge=0, le=MAX_PRIORITY, examples=[7])
    """With a queue: 0 to 9999; within a share the higher one goes first. Default: 0."""
    ladder: Annotated[tuple[FallbackRequest, ...], BeforeValidator(read_fallbacks)] | None = Field(
        default=None,
        examples=[
            [
                {"instance_types": ["ml.g5.xlarge"], "longest_wait": "30m"},
                {"capacity": "on-demand", "instance_type": "ml.g5.xlarge"},
            ]
        ],
    )
    """With capacity auto: the kinds of capacity to ask for, in this order, at most 10. Default: made of
    instance_types."""
    longest_wait: LongestWait | None = Field(default=None, examples=["30m"])
    """With capacity auto: how long a fallback waits for capacity, at the start and after an interruption, before the
    next one is tried, 5m to 28d. Default: 1h. With capacity on-demand: how long a job waits for capacity.
    Default: 1d."""
    spot_only: bool = Field(default=False, strict=True)
    """Whether on-demand capacity is forbidden, whatever else the document or its ladder says."""
    max_attempts: WholeNumber = Field(default=20, ge=1, le=100)
    """How many training jobs the run may take in all before it is given up, 1 to 100."""
    script_retries: WholeNumber = Field(default=0, ge=0, le=10)
    """How often a script that ended with an error is started again from its last checkpoint, 0 to 10."""
    max_total_run: Annotated[int, DurationOf(lowest=1, highest=365 * DAY_SECONDS)] | None = Field(
        default=None, examples=["10d"]
    )
    """How long the run may train over all its jobs: a job that ends at max_run is then followed by the next, on its
    checkpoints. Default: max_run, so there is no next."""
    max_cost: UsDollars | None = Field(default=None, examples=[25])
    """US dollars the run may cost. When they are spent its job is stopped, which saves first, and the run ends; at 80%
    a notification can be sent. Each job's max_run is cut to what is left at the on-demand price, too; a spot job that
    ends there with money left is followed by the next."""
    deadline: Annotated[int | datetime, BeforeValidator(read_deadline), DEADLINE_SCHEMA] | None = Field(
        default=None, examples=["60h", "2026-12-01T08:00:00Z"]
    )
    """When the work must be done: a duration from the launch (or the resume), or a time with its zone. The run is then
    steered: it stays on spot as long as that is safe and pays, and goes on demand in time. Needs on-demand capacity."""
    work: Annotated[int, DurationOf(lowest=1, highest=MAX_DEADLINE_SECONDS)] | None = Field(
        default=None, examples=["48h"]
    )
    """How long the training takes without interruptions, for plans and deadlines. Default: max_total_run or max_run."""
    restart: Annotated[int, DurationOf(lowest=1, highest=DAY_SECONDS)] | None = Field(default=None, examples=["20m"])
    """From asking for capacity to working, checkpoint loaded, at most; for plans and deadlines. Default: 12m."""
    max_run: Annotated[int, DurationOf(lowest=1, highest=28 * DAY_SECONDS)] = Field(
        default=DAY_SECONDS, examples=["4h", "90m", 5400]
    )
    """How long it may train, up to 28d. Default: 24h, or the deployment's limit if that is lower."""
    max_wait: Annotated[int, DurationOf(lowest=1, highest=MAX_WAIT_SECONDS)] | None = Field(
        default=None, examples=["2d"]
    )
    """Spot, and on EC2 always: how long it may take in all, waiting included; above max_run, up to 30d. Default:
    max_run and 24h."""
    keep_alive: Annotated[int, DurationOf(lowest=0, highest=MAX_KEEP_ALIVE_SECONDS)] = Field(
        default=0, examples=["30m"]
    )
    """On-demand only: how long the instances stay (and are billed) for the next job, up to 1h."""
    channels: Annotated[
        tuple[Channel, ...],
        BeforeValidator(read_channels, json_schema_input_type=tuple[Channel, ...] | dict[str, S3Uri | ChannelData]),
    ] = Field(default=(), examples=[{"train": "s3://my-data/cifar10/"}])
    """Data: a list of channels, or a mapping of names to S3 URIs (or to {uri, input_mode})."""
    hyperparameters: Annotated[
        dict[
            Annotated[str, BeforeValidator(read_hyperparameter_name)],
            Annotated[str, BeforeValidator(read_hyperparameter)],
        ],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"epochs": 30, "lr": 0.1}])
    """At most 100; names and values at most 256 characters. Not for secrets: all who may describe the job read them."""
    arguments: Literal["hyperparameters", "json", "none"] = "hyperparameters"
    """What follows the command: `--name value` of each hyperparameter, as SageMaker's toolkit passes them; json: as the
    SageMaker SDK 3 passes them; or none."""
    environment: Annotated[
        dict[VariableName, Annotated[str, BeforeValidator(read_variable)]],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"OMP_NUM_THREADS": 4}])
    """Environment variables: at most 100 with Spotkeep's own, values at most 512 characters. Not for secrets."""
    secrets: Annotated[
        dict[SecretVariable, SecretText],
        WithJsonSchema(
            {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}, mode="validation"
        ),
    ] = Field(default_factory=dict, examples=[{"HF_TOKEN": "huggingface-token"}])
    """Environment variables whose values are in AWS Secrets Manager, at most 20: each by the secret's name or whole
    ARN, with :<key>:: behind it for one key of a JSON secret. Each start reads them anew. The deployment's setting
    secrets names those that jobs may read."""
    checkpoints: bool = Field(default=True, strict=True)
    """Whether the script saves checkpoints and resumes from them. Without, spot is limited to an hour."""
    checkpoint_prefix: Annotated[str, BeforeValidator(read_prefix), S3_SCHEMA] | None = Field(
        default=None, examples=["s3://my-checkpoints/runs/resnet50-cifar10/checkpoints/"]
    )
    """The S3 prefix of the checkpoints: give an ended run's to go on from it. Default: one of the run's own."""
    # Up to here every whole number has its own in JSON, and so in a job's events.
    pause_at_step: WholeNumber | None = Field(default=None, ge=1, le=2**53 - 1, examples=[1000])
    """The run pauses after this step: it saves, and waits for `spotkeep resume` with a later one, or with none to go on
    to the end. Default: none, it trains to its end."""
    debug: bool = Field(default=False, strict=True)
    """Whether `spotkeep shell` may open a shell in the training job while it trains, where the deployment has shells.
    On an instance of backend ec2 it may without it."""
    metrics: Annotated[
        dict[Annotated[str, BeforeValidator(read_metric_name)], MetricRequest],
        BeforeValidator(read_metrics, json_schema_input_type=dict[str, str | MetricRequest | None] | list[str] | str),
    ] = Field(default_factory=dict, examples=[{"validation_loss": {"goal": "minimize"}}])
    """What to follow while it trains, at most 40: names that the script logs, or patterns of its lines, each by its
    name; with a goal the best value is kept."""
    mlflow: Annotated[
        MlflowRequest | None, BeforeValidator(read_mlflow, json_schema_input_type=str | MlflowRequest | None)
    ] = Field(default=None, examples=[{"tracking_uri": "https://mlflow.example.com", "experiment": "digits"}])
    """Where MLflow logs to in the job: MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME. Default: none."""
    notify: Annotated[tuple[NotificationKind, ...], AfterValidator(each_once), BeforeValidator(read_list)] = Field(
        default=DEFAULT_NOTIFY
    )
    """What to send a notification about."""
    waiting_too_long: LongestWait | None = Field(default=None, examples=["4h"])
    """A wait for capacity that is worth the notification waiting-too-long, 5m to 28d. Default: the deployment's, 2h."""
    checkpoint_stale: LongestWait | None = Field(default=None, examples=["1h"])
    """An age of the newest checkpoint that is worth the notification checkpoint-stale, 5m to 28d. Default: three times
    the interval in which the run saves, at least 15m; 1h where that is not known."""
    owner: Owner | None = Field(default=None, examples=["ada@example.com"])
    """Whose run it is, for `spotkeep ps` and the cost tag. Default: none; where the deployment verifies who calls,
    the caller's, and then no other."""
    team: ShortName | None = Field(default=None, examples=["vision"])
    """The team, 1 to 20 of a-z, 0-9 and '-', a letter first, whose role the job works with, where the deployment has a
    role for each team: its warm pools then fit no other team's jobs. Default: the role of the deployment."""
    tags: Annotated[
        dict[TagKey, Annotated[str, BeforeValidator(read_tag_value)]],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"team": "vision"}])
    """AWS tags of the training job: at most 50 with Spotkeep's own four. With backend ec2, of the fleet, its
    instances, volumes and snapshots: at most 43, with keys of letters a to z, digits and + - = . , _ : @ alone."""
    token: Text | None = Field(
        default=None, examples=["6a1f8a52-2f0c-4a3e-9f65-0f3f6f0f1b7e"], pattern="^[A-Za-z0-9_.:/=+-]{1,128}$"
    )
    """1 to 128 letters, digits and _ . : / = + - that make a repeated launch safe: the same token answers the same and
    launches nothing. Default: a new one for each call."""

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types, however they were given. Empty if none were."""
        if self.instance_types:
            return self.instance_types
        return (self.instance_type,) if self.instance_type else ()

    @property
    def every_type(self) -> tuple[str, ...]:
        """The instance types, those of the ladder among them. Empty if none were given."""
        return (*self.types, *(each for fallback in self.ladder or () for each in fallback.types))

    @property
    def requirements(self) -> tuple[str, ...]:
        """The packages to install, where the document lists them. Empty where it does not."""
        return () if isinstance(self.install, str) else self.install

    @property
    def goals(self) -> dict[str, Goal | None]:
        """The goals of the metrics, by name."""
        return {name: metric.goal for name, metric in self.metrics.items()}

    @property
    def volume_or_default(self) -> VolumeRequest:
        """The volume of a run on EC2."""
        return self.volume or VolumeRequest()

    @property
    def work_seconds(self) -> int:
        """The training time without interruptions, or its upper bound where the document does not say it."""
        return self.work or self.max_total_run or self.max_run

    @property
    def restart_seconds(self) -> int:
        """How long it takes from asking for capacity to working."""
        return self.restart or DEFAULT_RESTART_SECONDS

    @property
    def seconds_on_demand(self) -> int:
        """The time of the work on demand, from its launch, with a start for each job that `max_run` cuts it into."""
        jobs = -(-self.work_seconds // self.max_run)
        return self.work_seconds + jobs * self.restart_seconds

    def deadline_at(self, begun_at: datetime) -> datetime | None:
        """Return the time by which the work must be done. None when it has no deadline.

        Args:
            begun_at: The time of the launch or of the resume.
        """
        if isinstance(self.deadline, int):
            return begun_at + timedelta(seconds=self.deadline)
        return self.deadline

    def as_document(self) -> dict[str, Any]:
        """Return the request as JSON, fields without a value left out. Reading it again gives the same request."""
        return self.model_dump(mode="json", exclude_none=True)
