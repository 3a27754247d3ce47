"""The job document of a user, in `job.yaml` and in the launcher's payload alike.

Each subject's module holds the types and readers of its fields, and its rules. A field's own description is the fix of
a refusal, so it says how a value is written.

Validation finds every problem at once (I7). Each problem names the field, the value that was found, and the remedy. A
subject's rule between fields is judged when all the fields it is about could be read. The deployment's facts come in as
`DeploymentDefaults`. The module is pure, and `runs.launch` checks the facts that only AWS or the run table can know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema

from spotkeep_fleet.instance_job import MOST_NODES
from spotkeep_jobs.document import (
    capacity,
    command,
    distributed,
    fleet,
    image,
    metrics,
    nodes,
    queue,
    secrets,
    source,
    spending,
    times,
)
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
from spotkeep_jobs.document.deployment_facts import NO_DEFAULTS, DeploymentDefaults
from spotkeep_jobs.document.distributed import DistributedRequest, read_distributed
from spotkeep_jobs.document.fleet import MAX_RUNS, VolumeRequest
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES, FRAMEWORK_IMAGES
from spotkeep_jobs.document.image import Algorithm, Framework, Image, aws_image, default_image_for, saves_checkpoints
from spotkeep_jobs.document.metrics import (
    MetricRequest,
    MlflowRequest,
    WandbRequest,
    read_metric_name,
    read_metrics,
    read_mlflow,
    read_wandb,
)
from spotkeep_jobs.document.nodes import (
    DEFAULT_NODES_WAIT_SECONDS,
    NetworkRequest,
    NodesRange,
    NodesWait,
    read_instance_count,
    read_nodes,
)
from spotkeep_jobs.document.queue import MAX_PRIORITY
from spotkeep_jobs.document.reading import (
    HYPHENATED,
    INTO_A_FILE,
    MAX_RUN_ID_LENGTH,
    S3_SCHEMA,
    TEXTS_SCHEMA,
    DocumentModel,
    Owner,
    Rule,
    S3Uri,
    SecretText,
    ShortName,
    TagKey,
    Text,
    WholeNumber,
    Wording,
    each_once,
    more_than_fit,
    nearest,
    outlined,
    printable_name,
    problems_of,
    read_list,
    read_tag_value,
    rule,
    shown,
    too_large,
    unknown_field,
)
from spotkeep_jobs.document.secrets import SecretVariable
from spotkeep_jobs.document.source import (
    MAX_REQUIREMENTS,
    AnyChannel,
    ArchiveSource,
    Channel,
    ChannelData,
    FileSystemChannel,
    FileSystemData,
    GitSource,
    Source,
    read_channels,
    read_install,
    read_prefix,
    read_source,
)
from spotkeep_jobs.document.spending import COST_READS, UsDollars, cost_problems
from spotkeep_jobs.document.times import (
    DAY_SECONDS,
    DEADLINE_READS,
    DEADLINE_SCHEMA,
    DEFAULT_RESTART_SECONDS,
    MAX_DEADLINE_SECONDS,
    MAX_KEEP_ALIVE_SECONDS,
    MAX_WAIT_SECONDS,
    NO_CHECKPOINTS_SPOT_SECONDS,
    DurationOf,
    LongestWait,
    StuckRequest,
    deadline_can_be_kept,
    read_deadline,
    read_stuck,
)
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.fields import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES, with_changes
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
    """The name of the job for people. It has letters, digits and hyphens, at most 43, with a letter or digit first and
    last."""
    command: Annotated[tuple[str, ...] | str, BeforeValidator(read_command), COMMAND_SCHEMA] | None = Field(
        default=None, examples=["python train.py --epochs 30", ["python", "train.py"], 'cd src\npython train.py "$@"\n']
    )
    """The command that trains, run in the unpacked source. A text of one line is split into words, and no shell runs
    it. A text of several lines is a block for `bash -euo pipefail`, and "$@" are the hyperparameters. Default: the own
    entry point of the image, framework or algorithm. One of them is then required."""
    run: Text | None = Field(
        default=None, examples=["resnet50-cifar10-2026-11"], max_length=MAX_RUN_ID_LENGTH, pattern=HYPHENATED
    )
    """The run's id. It has letters, digits and hyphens, at most 52, and was never used before. Default: the name and 8
    hex digits of the token."""
    source: Annotated[
        Source | None,
        BeforeValidator(read_source, json_schema_input_type=S3Uri | ArchiveSource | GitSource | None),
    ] = Field(
        default=None,
        examples=[{"git": "https://example.com/a.git", "commit": "0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6"}],
    )
    """The place of the code. It is an archive by its URI and hash, or by its URI alone if it is named
    `<sha256>.tar.gz`, or a commit of a git repository. Default: none, the image holds it."""
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
    """The packages that pip installs before the command. auto takes requirements.txt at the source's root, else the
    dependencies in the table [project] of pyproject.toml. Others are none, the path of a requirements file in the
    source, or a list of requirements."""
    setup: Annotated[tuple[str, ...] | str, BeforeValidator(read_setup), COMMAND_SCHEMA] | None = Field(
        default=None, examples=["python download_tokenizer.py"]
    )
    """A command that is run once a machine, after the installation, in the unpacked source. It has at most 256
    characters, or is a block of lines for bash."""
    backend: Literal["sagemaker", "ec2"] = "sagemaker"
    """sagemaker is a managed training job. ec2 is a spot fleet. It is of one instance, with a volume that follows the
    run, or of several nodes."""
    nodes: Annotated[
        NodesRange | None,
        BeforeValidator(
            read_nodes,
            json_schema_input_type=Annotated[int, Field(ge=1, le=MOST_NODES)] | NodesRange | None,
        ),
    ] = Field(default=None, examples=[2, {"min": 2, "max": 8}])
    """The instances that train together, for backend ec2 only, 1 to 64. With a range the run goes on with fewer when a
    node is lost, and with more when one comes. Several need distributed: torchrun. Default: one, with its volume."""
    nodes_wait: NodesWait | None = Field(default=None, examples=["10m"])
    """The longest time that nodes wait, on the bill, for the fewest that train, 1m to 1d. Then another zone or instance
    type is tried with all nodes, or the same again where there is no other. Default: 10m."""
    network: NetworkRequest | None = Field(default=None, examples=[{"placement": "cluster", "efa": True}])
    """The network between several nodes. Default: any place of the zone, without an Elastic Fabric Adapter."""
    volume: VolumeRequest | None = Field(default=None, examples=[{"size_gb": 500, "type": "gp3"}])
    """The volume that follows the run, for backend ec2 only. Default: 100 GiB of gp3, kept when the run is done.
    Several nodes have root disks instead, which size_gb enlarges."""
    max_price: UsDollars | None = Field(default=None, examples=[0.5])
    """backend ec2 only: US dollars an hour that a spot instance may cost. Default: the on-demand price."""
    runs: WholeNumber = Field(default=1, ge=1, le=MAX_RUNS)
    """The number of independent runs to launch, 1 to 15, for backend ec2 only. Each has its own id, fleet, volume and
    checkpoints. Several are called `<run>-1`, `<run>-2`, ... and SPOTKEEP_RUN_INDEX is the number of each."""
    on_demand_base: WholeNumber = Field(default=0, ge=0, le=MAX_RUNS)
    """For backend ec2 only. This many of the runs, the first ones, are on demand while the others are spot."""
    rebalance: Literal["leave", "save", "ignore"] = "save"
    """The answer to a rebalance recommendation, for backend ec2 only. It is save and go on, leave as on a notice, or
    ignore."""
    instance_metadata: Literal["closed", "open"] = "closed"
    """For backend ec2 only. With open the script reaches the instance metadata service, and with it the instance's
    role."""
    image: Image | None = Field(
        default=None, examples=["763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-gpu-py313"]
    )
    """The container image. It needs `python3` 3.9 or later, nothing else. Default: the deployment's, by instance type.
    On EC2 none, and the command runs on the AMI itself."""
    framework: Framework | None = Field(default=None, examples=["pytorch-2.10"])
    """AWS's own image of a framework, instead of image. It is pytorch, tensorflow, huggingface, xgboost or sklearn,
    with a version as pytorch-2.10, or without for the newest. The launch chooses it by region and instance types."""
    algorithm: Algorithm | None = Field(default=None, examples=["xgboost-1.7"])
    """One of SageMaker's built-in algorithms, instead of image and command, such as xgboost-1.7, blazingtext,
    linear-learner. The launch chooses its image by region. Hyperparameters and channels are the algorithm's own."""
    instance_types: InstanceTypes | None = Field(default=None, examples=[["ml.g5.xlarge"]])
    """SageMaker instance types, best first. Spot takes one, the others up to five. Default: the deployment's."""
    instance_type: InstanceType | None = Field(default=None, examples=["ml.g5.xlarge"])
    """The same for a single type."""
    instance_count: Annotated[WholeNumber, BeforeValidator(read_instance_count)] = Field(default=1, ge=1, le=20)
    """The number of instances, 1 to 20."""
    distributed: Annotated[
        DistributedRequest | None,
        BeforeValidator(
            read_distributed, json_schema_input_type=Literal["torchrun", "mpi", "none"] | DistributedRequest | None
        ),
    ] = Field(default=None, examples=["torchrun", {"launcher": "torchrun", "processes": 8}])
    """The program that starts the command as the ranks of a distributed training, on each instance. It is torchrun, or
    mpi on one instance, or none. With torchrun the ranks of all instances know each other. Default: each instance runs
    the command as it stands."""
    volume_size_gb: WholeNumber = Field(default=30, ge=1, le=16_384)
    """Storage of each instance in GB, 1 to 16,384. Types with local disks bring their own."""
    capacity: Literal["spot", "on-demand", "auto"] = "spot"
    """spot: cheaper, can be interrupted. on-demand: dearer, never interrupted, may keep a warm pool. auto: spot with
    each instance type, on EC2 with all of them at once, then on demand."""
    queue: ShortName | None = Field(default=None, examples=["gpu"])
    """The queue of the deployment that the job waits in for its turn. Default: none, SageMaker is asked at once."""
    share: ShortName | None = Field(default=None, examples=["vision"])
    """The share of the queue that the job uses. Default: the queue's only one."""
    priority: WholeNumber | None = Field(default=None, ge=0, le=MAX_PRIORITY, examples=[7])
    """The turn of the job in a queue, 0 to 9999. Within a share the higher one goes first. Default: 0."""
    ladder: Annotated[tuple[FallbackRequest, ...], BeforeValidator(read_fallbacks)] | None = Field(
        default=None,
        examples=[
            [
                {"instance_types": ["ml.g5.xlarge"], "longest_wait": "30m"},
                {"capacity": "on-demand", "instance_type": "ml.g5.xlarge"},
            ]
        ],
    )
    """The kinds of capacity to ask for with capacity auto, in this order, at most 10. Default: made of
    instance_types."""
    longest_wait: LongestWait | None = Field(default=None, examples=["30m"])
    """With capacity auto, the longest wait of a fallback for capacity before the next one is tried, 5m to 28d. It
    counts at the start and after an interruption. Default: 1h. With capacity on-demand, the longest wait of a job for
    capacity. Default: 1d."""
    spot_only: bool = Field(default=False, strict=True)
    """True forbids on-demand capacity, also where another field or the ladder asks for it."""
    max_attempts: WholeNumber = Field(default=20, ge=1, le=100)
    """The most training jobs that the run may take in all, 1 to 100. Then it is given up."""
    script_retries: WholeNumber = Field(default=0, ge=0, le=10)
    """The most times that a script that ended with an error is started again from its last checkpoint, 0 to 10."""
    max_total_run: Annotated[int, DurationOf(lowest=1, highest=365 * DAY_SECONDS)] | None = Field(
        default=None, examples=["10d"]
    )
    """The longest training of the run over all its jobs. A job that ends at max_run is then followed by the next, on
    its checkpoints. Default: max_run, so there is no next."""
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
    """The time of the training without interruptions, for plans and deadlines. Default: max_total_run or max_run."""
    restart: Annotated[int, DurationOf(lowest=1, highest=DAY_SECONDS)] | None = Field(default=None, examples=["20m"])
    """The longest time from asking for capacity to working, checkpoint loaded, for plans and deadlines. Default:
    12m."""
    max_run: Annotated[int, DurationOf(lowest=1, highest=28 * DAY_SECONDS)] = Field(
        default=DAY_SECONDS, examples=["4h", "90m", 5400]
    )
    """The longest training of one job, up to 28d. Default: 24h, or the deployment's limit if that is lower."""
    max_wait: Annotated[int, DurationOf(lowest=1, highest=MAX_WAIT_SECONDS)] | None = Field(
        default=None, examples=["2d"]
    )
    """The longest time in all on spot, and on EC2 always, waiting included. It is above max_run, up to 30d. Default:
    max_run and 24h. On EC2 with a deadline it lasts until then and max_run more."""
    keep_alive: Annotated[int, DurationOf(lowest=0, highest=MAX_KEEP_ALIVE_SECONDS)] = Field(
        default=0, examples=["30m"]
    )
    """The time that on-demand instances stay (and are billed) for the next job, up to 1h."""
    channels: Annotated[
        tuple[AnyChannel, ...],
        BeforeValidator(
            read_channels,
            json_schema_input_type=tuple[Channel | FileSystemChannel, ...]
            | dict[str, S3Uri | ChannelData | FileSystemData],
        ),
    ] = Field(default=(), examples=[{"train": "s3://my-data/cifar10/"}])
    """Data: a list of channels, or a mapping of names to S3 URIs (or to {uri, input_mode}), or to directories of file
    systems as {fsx, path} or {efs, path}."""
    hyperparameters: Annotated[
        dict[
            Annotated[str, BeforeValidator(read_hyperparameter_name)],
            Annotated[str, BeforeValidator(read_hyperparameter)],
        ],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"epochs": 30, "lr": 0.1}])
    """At most 100, with names and values of at most 256 characters. Not for secrets, since all who may describe the job
    read them."""
    arguments: Literal["hyperparameters", "json", "none"] = "hyperparameters"
    """The words that follow the command. They are `--name value` of each hyperparameter, as SageMaker's toolkit passes
    them, or with json as the SageMaker SDK 3 passes them, or none."""
    environment: Annotated[
        dict[VariableName, Annotated[str, BeforeValidator(read_variable)]],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"OMP_NUM_THREADS": 4}])
    """Environment variables, at most 100 with Spotkeep's own, with values of at most 512 characters. Not for
    secrets."""
    secrets: (
        Annotated[
            dict[SecretVariable, SecretText],
            WithJsonSchema(
                {"type": "object", "additionalProperties": {"type": "string", "minLength": 1}}, mode="validation"
            ),
        ]
        | None
    ) = Field(default=None, examples=[{"HF_TOKEN": "huggingface-token"}])
    """Environment variables with values in AWS Secrets Manager, at most 20. Each has the secret's name or whole ARN,
    with :<key>:: behind it for one key of a JSON secret. Each start reads them anew. The deployment's setting secrets
    names those that jobs may read."""
    checkpoints: bool = Field(default=True, strict=True)
    """True if the script saves checkpoints and resumes from them. Without, spot is limited to an hour."""
    checkpoint_prefix: Annotated[str, BeforeValidator(read_prefix), S3_SCHEMA] | None = Field(
        default=None, examples=["s3://my-checkpoints/runs/resnet50-cifar10/checkpoints/"]
    )
    """The S3 prefix of the checkpoints. Give an ended run's to go on from it. Default: one of the run's own."""
    checkpoint_channel: Text | None = Field(default=None, examples=["shared"])
    """The channel on a file system, with access: rw, in which all nodes of a run on EC2 have their checkpoints, in a
    folder of the run's name. S3 has copies. Default: none, each node has them on its own disk."""
    # Up to here every whole number has its own in JSON, and so in a job's events.
    pause_at_step: WholeNumber | None = Field(default=None, ge=1, le=2**53 - 1, examples=[1000])
    """The step after which the run pauses. It saves, and waits for `spotkeep resume` with a later one, or with none to
    go on to the end. Default: none, it trains to its end."""
    debug: bool = Field(default=False, strict=True)
    """True lets `spotkeep shell` open a shell in the training job while it trains, where the deployment has shells. On
    an instance of backend ec2 it may without it."""
    metrics: Annotated[
        dict[Annotated[str, BeforeValidator(read_metric_name)], MetricRequest],
        BeforeValidator(read_metrics, json_schema_input_type=dict[str, str | MetricRequest | None] | list[str] | str),
    ] = Field(default_factory=dict, examples=[{"validation_loss": {"goal": "minimize"}}])
    """The metrics to follow while it trains, at most 40. They are names that the script logs, or patterns of its lines,
    each by its name. With a goal the best value is kept."""
    mlflow: Annotated[
        MlflowRequest | None, BeforeValidator(read_mlflow, json_schema_input_type=str | MlflowRequest | None)
    ] = Field(default=None, examples=[{"tracking_uri": "https://mlflow.example.com", "experiment": "digits"}])
    """The place where MLflow logs to in the job, as MLFLOW_TRACKING_URI and MLFLOW_EXPERIMENT_NAME. Default: none."""
    wandb: Annotated[
        WandbRequest | None, BeforeValidator(read_wandb, json_schema_input_type=str | WandbRequest | None)
    ] = Field(default=None, examples=[{"project": "digits", "entity": "vision-team"}])
    """The project of Weights & Biases that the script logs to, in one run through all attempts. Its API key is not
    given here, since WANDB_API_KEY is a secret. Default: none."""
    notify: Annotated[tuple[NotificationKind, ...], AfterValidator(each_once), BeforeValidator(read_list)] = Field(
        default=DEFAULT_NOTIFY
    )
    """The events to send a notification about."""
    waiting_too_long: LongestWait | None = Field(default=None, examples=["4h"])
    """A wait for capacity that is worth the notification waiting-too-long, 5m to 28d. Default: the deployment's, 2h."""
    checkpoint_stale: LongestWait | None = Field(default=None, examples=["1h"])
    """An age of the newest checkpoint that is worth the notification checkpoint-stale, 5m to 28d. Default: three times
    the interval in which the run saves, at least 15m, and 1h where that is not known."""
    stuck: Annotated[
        StuckRequest | None, BeforeValidator(read_stuck, json_schema_input_type=int | str | StuckRequest | None)
    ] = Field(default=None, examples=["30m", {"after": "30m", "restart": True}])
    """The limit of a hang, without a step of the library and without a line of output. A time alone asks for the
    notification stuck. With restart: true the command is also ended and started again from its checkpoint. Default:
    none, it may be silent for as long as it trains."""
    owner: Owner | None = Field(default=None, examples=["ada@example.com"])
    """The owner of the run, for `spotkeep ps` and the cost tag. Default: none. Where the deployment verifies callers,
    the caller's, and then no other."""
    team: ShortName | None = Field(default=None, examples=["vision"])
    """The team, 1 to 20 of a-z, 0-9 and '-', a letter first. The job works with its role, where the deployment has a
    role for each team. Its warm pools then fit no other team's jobs. Default: the role of the deployment."""
    tags: Annotated[
        dict[TagKey, Annotated[str, BeforeValidator(read_tag_value)]],
        TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"team": "vision"}])
    """AWS tags of the training job, at most 50 with Spotkeep's own four. With backend ec2 they are of the fleet, its
    instances, volumes and snapshots. Then there are at most 43, with keys of letters a to z, digits and + - = . , _ : @
    alone."""
    token: Text | None = Field(
        default=None, examples=["6a1f8a52-2f0c-4a3e-9f65-0f3f6f0f1b7e"], pattern="^[A-Za-z0-9_.:/=+-]{1,128}$"
    )
    """A key that makes a repeated launch safe, 1 to 128 letters, digits and _ . : / = + -. The same token answers the
    same and launches nothing. Default: a new one for each call."""

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
    def s3_channels(self) -> tuple[Channel, ...]:
        """The channels with data in S3."""
        return tuple(each for each in self.channels if isinstance(each, Channel))

    @property
    def file_system_channels(self) -> tuple[FileSystemChannel, ...]:
        """The channels with data in file systems."""
        return tuple(each for each in self.channels if isinstance(each, FileSystemChannel))

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
    def several_nodes(self) -> NodesRange | None:
        """The nodes of a run on EC2 that may have more than one. None for one instance with its volume."""
        return self.nodes if self.backend == "ec2" and self.nodes is not None and self.nodes.max > 1 else None

    @property
    def nodes_wait_seconds(self) -> int:
        """The longest time, in seconds, that nodes wait for the fewest that train."""
        return DEFAULT_NODES_WAIT_SECONDS if self.nodes_wait is None else self.nodes_wait

    @property
    def hosts(self) -> int:
        """The most instances that the run has at a time, on either backend. They are what its time costs."""
        return self.instance_count if self.several_nodes is None else self.several_nodes.max

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


def with_defaults(request: JobRequest, *, given: set[Any], defaults: DeploymentDefaults) -> JobRequest:
    """Fill in defaults that depend on other fields or on the deployment, so that the record holds every decision."""
    on_ec2 = request.backend == "ec2"
    limit = defaults.max_run_limit_seconds
    default_types: tuple[str, ...] = (defaults.instance_type,) if defaults.instance_type else ()
    if on_ec2:
        default_types = defaults.fleet_instance_types or ()
    share = request.share
    if request.queue is not None and (queue := (defaults.queues or {}).get(request.queue)) is not None:
        share = share or (next(iter(queue.shares)) if len(queue.shares) == 1 else None)
        of_share = queue.shares[share].types if share in queue.shares else queue.types
        default_types = tuple(of_share) if len(of_share) == 1 else ()
    types = request.types or (default_types if request.ladder is None else ())
    max_run = request.max_run if "max_run" in given or limit is None else min(request.max_run, limit)
    max_wait = request.max_wait
    checkpoints = request.checkpoints
    if request.algorithm is not None and "checkpoints" not in given:
        checkpoints = saves_checkpoints(request.algorithm)
    # A ladder that is given is meant to be used: capacity need not say so. A deadline needs fallbacks.
    laddered = request.ladder is not None or (request.deadline is not None and not request.spot_only)
    capacity = "auto" if laddered and "capacity" not in given else request.capacity
    # A fleet on demand waits as one on spot does, and its instances bill while none of them trains. A deadline bounds
    # both (`fleet_seconds`).
    if max_wait is None and (capacity == "spot" or (on_ec2 and request.deadline is None)):
        longest = MAX_WAIT_SECONDS if checkpoints or on_ec2 else NO_CHECKPOINTS_SPOT_SECONDS
        max_wait = min(max_run + DAY_SECONDS, longest)
    every_type = types or request.every_type
    image, framework, algorithm = request.image, request.framework, request.algorithm
    # The deployment's default image is for commands: no document asks for its entry point.
    if request.command is not None and image is None and framework is None and algorithm is None and not on_ec2:
        image = default_image_for(defaults.image, instance_types=every_type)
    if image is None and framework is not None and defaults.region is not None:
        image = aws_image(FRAMEWORK_IMAGES[framework], region=defaults.region, instance_types=every_type)
        framework = framework if image is None else None
    if image is None and algorithm is not None and defaults.region is not None and not on_ec2:
        image = aws_image(ALGORITHM_IMAGES[algorithm], region=defaults.region, instance_types=every_type)
    if not (request.instance_types and request.instance_type):
        request = with_changes(request, instance_types=types or None, instance_type=None)
    return with_changes(
        request,
        image=image,
        framework=framework,
        checkpoints=checkpoints,
        max_run=max_run,
        max_wait=max_wait,
        capacity=capacity,
        share=share,
    )


_OWN_TAGS: Final = {"sagemaker": 4, "ec2": 7}
"""Spotkeep's own tags, which are deployment, run, attempt and owner.

An instance has a Name besides, and may get the tag of a drill. The tags that EC2 itself adds begin with `aws:`, and AWS
does not count them.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html (Tag restrictions)
"""
_MAX_TAGS: Final = 50
_TEXTS: Final = (
    *("hyperparameters", "environment", "secrets", "metrics", "command", "setup", "channels", "tags", "ladder"),
)
"""The fields that can be long."""


@rule("backend", "tags")
def _tags_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    own = _OWN_TAGS[request.backend]
    yield from more_than_fit("tags", request.tags, limit=_MAX_TAGS, own=own, fix="Remove some.")


@rule("runs", *_TEXTS)
def _document_fits_its_record(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    most = min(MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES // request.runs)
    yield from too_large(request.as_document(), most=most, record="a run's", fix=INTO_A_FILE)


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


RULES: Final[tuple[Rule, ...]] = (
    *image.RULES,
    *capacity.RULES,
    *times.RULES,
    *spending.RULES,
    *source.RULES,
    *command.RULES,
    *distributed.RULES,
    *metrics.RULES,
    *secrets.RULES,
    *fleet.RULES,
    *nodes.RULES,
    *queue.RULES,
    _tags_fit,
    _team_is_known,
    _document_fits_its_record,
)
MAX_PROBLEMS: Final = 200
_BACKENDS: Final = ("sagemaker", "ec2")
_PLACEHOLDERS: Final[Mapping[str, Any]] = {"name": "placeholder", "command": ["true"]}
_OTHER_NAMES: Final = {
    "entrypoint": "command",
    "script": "command",
    "args": "command",
    "jobname": "name",
    "runid": "run",
    "imageuri": "image",
    "trainingimage": "image",
    "code": "source",
    "sourcedir": "source",
    "git": "source",
    "volumesize": "volume_size_gb",
    "volumesizeingb": "volume_size_gb",
    "spot": "capacity",
    "usespot": "capacity",
    "usespotinstances": "capacity",
    "enablemanagedspottraining": "capacity",
    "due": "deadline",
    "dueby": "deadline",
    "finishby": "deadline",
    "maxbudget": "max_cost",
    "expectedruntime": "work",
    "timeout": "max_run",
    "maxruntime": "max_run",
    "maxruntimeinseconds": "max_run",
    "maxwaittimeinseconds": "max_wait",
    "warmpool": "keep_alive",
    "keepaliveperiod": "keep_alive",
    "keepaliveperiodinseconds": "keep_alive",
    "inputs": "channels",
    "inputdataconfig": "channels",
    "data": "channels",
    "env": "environment",
    "secret": "secrets",
    "checkpoints3uri": "checkpoint_prefix",
    "checkpointuri": "checkpoint_prefix",
    "notifications": "notify",
    "program": "command",
    "workdir": "source",
    "requirements": "install",
    "dependencies": "install",
    "packages": "install",
    "pip": "install",
    "gpu": "instance_type",
    "gpus": "instance_type",
    "numgpus": "instance_type",
    "accelerator": "instance_type",
    "accelerators": "instance_type",
    "resources": "instance_type",
    "machinetype": "instance_type",
    "distribution": "distributed",
    "torchrun": "distributed",
    "numnodes": "instance_count",
    "nnodes": "instance_count",
    "efa": "network",
    "placement": "network",
    "disksize": "volume_size_gb",
    "envs": "environment",
    "filemounts": "channels",
    "idempotencytoken": "token",
    "clienttoken": "token",
    "s3uri": "uri",
    "inputmode": "input_mode",
    "sha": "commit",
    "url": "git",
}
_PROCESSES: Final = "distributed: {{launcher: torchrun, processes: {found}}}"
_WORDING: Final = Wording(
    secret=("environment", "hyperparameters", "secret", "secrets"),
    other_names=_OTHER_NAMES,
    inside={"launcher": "distributed: {found}", "processes": _PROCESSES, "nprocpernode": _PROCESSES},
    gone={"budget": "Write max_cost: it notifies at 80% as budget did, and ends the run when all is spent."},
)
_WORDING_ON_EC2: Final = replace(_WORDING, other_names={**_OTHER_NAMES, "numnodes": "nodes", "nnodes": "nodes"})


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The judgement of a document.

    Attributes:
        request: The request with every default filled in. None if it is refused.
        draft: The readable part of the document, with placeholders and defaults elsewhere. None if it is no object.
        problems: The reasons of a refusal. Empty if the document is not refused.
        warnings: Warnings of things that are allowed but probably not meant, in sentences.
    """

    request: JobRequest | None
    draft: JobRequest | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    def accepted(self) -> JobRequest:
        """Return the request.

        Raises:
            RequestRefusedError: the document is refused.
        """
        if self.request is None:
            raise RequestRefusedError(self.problems, warnings=self.warnings)
        return self.request


def validate(
    document: object, *, defaults: DeploymentDefaults = NO_DEFAULTS, now: datetime | None = None
) -> Validation:
    """Judge a job document as a whole.

    Args:
        document: The document as it was sent, of any type.
        defaults: The values that the deployment fills in and insists on.
        now: The time of the launch, at which its deadline, its worst cost and the age of its image are judged. None for
            a document that was accepted before.
    """
    if not isinstance(document, Mapping):
        problem = Problem(
            field="(document)",
            found=shown(document),
            problem="is not a JSON object",
            fix='Send an object with at least `name` and `command`: {"name": "first", "command": "python train.py"}',
        )
        return Validation(request=None, draft=None, problems=(problem,), warnings=())
    without_backend = nodes.problem_without_backend(document)
    # All else is judged as it is once that problem is mended.
    document = document if without_backend is None else {**document, "backend": "ec2"}
    request, problems, unread = read_document(document)
    if without_backend is not None:
        problems.insert(0, without_backend)
    given = {name for name, value in document.items() if value is not None}
    request = with_defaults(request, given=given - unread, defaults=defaults)
    for each in RULES:
        if unread.isdisjoint(each.reads):
            problems.extend(each.problems(request, defaults))
    if now is not None and unread.isdisjoint(DEADLINE_READS):
        problems.extend(deadline_can_be_kept(request, now=now))
    if now is not None and unread.isdisjoint(COST_READS):
        problems.extend(cost_problems(request, limits=defaults.limits, prices=defaults.prices, now=now))
    today = None if now is None else now.date()
    warnings = tuple(_warnings(request, defaults, today=today)) if not unread else ()
    if len(problems) > MAX_PROBLEMS:
        more = Problem(
            field="(document)",
            found=f"more than {MAX_PROBLEMS} problems",
            problem="has more problems than are shown",
            fix="Correct those above and validate again.",
        )
        problems = [*problems[:MAX_PROBLEMS], more]
    return Validation(request=None if problems else request, draft=request, problems=tuple(problems), warnings=warnings)


def read_document(document: Mapping[Any, Any]) -> tuple[JobRequest, list[Problem], set[str]]:
    """Read every field that can be read.

    Returns:
        A request in which the fields that could not be read have placeholders or defaults, the problems, and the
        names of those fields.
    """
    known = JobRequest.model_fields
    wording = _WORDING_ON_EC2 if document.get("backend") == "ec2" else _WORDING
    unknown = [name for name in document if name not in known]
    # Unknown fields are named here: pydantic cannot say a name that is not valid Unicode.
    problems = [
        unknown_field(name, known, field=printable_name(name), found=outlined(document[name]), wording=wording)
        for name in unknown[: MAX_PROBLEMS + 1]
    ]
    hyperparameters = document.get("hyperparameters")
    if isinstance(hyperparameters, Mapping):
        problems = [
            replace(each, fix=f"Did you mean `hyperparameters.{each.field}`?")
            if each.field in hyperparameters
            else each
            for each in problems
        ]
    fields = {name: document[name] for name in known if document.get(name) is not None}
    # Only one of the two is taken; of a word that is neither the types are judged by their own form.
    backend = fields.get("backend", "sagemaker")
    context = {"backend": backend if backend in _BACKENDS else None}
    try:
        return JobRequest.model_validate(fields, context=context), problems, set()
    except ValidationError as error:
        problems = [*problems_of(error, JobRequest, document=document, wording=wording), *problems]
        unread = {str(detail["loc"][0]) for detail in error.errors(include_url=False, include_context=False)}
    readable = {name: value for name, value in fields.items() if name not in unread}
    placeholders = {name: value for name, value in _PLACEHOLDERS.items() if name in unread}
    return JobRequest.model_validate({**placeholders, **readable}, context=context), problems, unread


def _warnings(request: JobRequest, deployment: DeploymentDefaults, *, today: date | None) -> Iterator[str]:
    """Yield warnings of things that are allowed and probably not meant, in sentences."""
    yield from command.command_warnings(request)
    yield from distributed.distributed_warnings(request)
    yield from times.time_warnings(request, deployment)
    yield from fleet.fleet_warnings(request)
    yield from queue.queue_warnings(request)
    yield from image.image_warnings(request, deployment, types=capacity.types_of(request), today=today)
    yield from spending.spending_warnings(request, deployment)
    yield from capacity.capacity_warnings(request)
