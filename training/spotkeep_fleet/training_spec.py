"""The training spec, which is one job as `spotkeep.pyz run` does it, on SageMaker, in a queue and on EC2.

The launcher writes it once, from the judged job file. For SageMaker and queues it is an object of the run in S3. An
input channel brings it to the job. On EC2 it is a part of the item that only functions write (`instance_job`), and the
agent puts it into a file. Both files are named by the SHA-256 of their bytes, and the runner refuses other bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .ranks import RANK_LAUNCHERS, TORCHRUN, Ranks
from .reading import Reader, read_json_text

SPEC_CHANNEL = "spotkeep-spec"
"""The input channel of the spec. Its folder below a job's `input/data` has this name."""
SPEC_VARIABLE = "SPOTKEEP_TRAINING_SPEC"
"""The environment variable that names the path of the spec's file, from `/opt/ml`."""
_MARKS = frozenset(
    {
        "SPOTKEEP_RUN",
        "SPOTKEEP_ATTEMPT",
        "SPOTKEEP_LEASE",
        "SPOTKEEP_LAUNCH",
        "SPOTKEEP_EVENTS",
        "SAGEMAKER_BASE_DIR",
        SPEC_VARIABLE,
    }
)
"""Variables that the launcher and the agent set. They name the job and the ways to follow it. No user changes them."""
_VALUE_VARIABLE = "SPOTKEEP_SECRET_"
"""The beginning of the variables with secret values, from the agent to the runner. The runner takes them away."""
PAUSE_VARIABLE = "SPOTKEEP_PAUSE_AT_STEP"
MLFLOW_TRACKING_URI = "MLFLOW_TRACKING_URI"
MLFLOW_EXPERIMENT = "MLFLOW_EXPERIMENT_NAME"
WANDB_PROJECT, WANDB_ENTITY = "WANDB_PROJECT", "WANDB_ENTITY"
WANDB_RUN_ID, WANDB_RESUME = "WANDB_RUN_ID", "WANDB_RESUME"
WANDB_NAME, WANDB_MODE = "WANDB_NAME", "WANDB_MODE"
WANDB_DIRECTORY = "WANDB_DIR"

ARGUMENTS = (HYPERPARAMETERS, JSON, NO_ARGUMENTS) = ("hyperparameters", "json", "none")
"""Arguments behind the command. They are hyperparameters, as SageMaker's toolkit passes them, as JSON, or none."""
NO_INSTALLATION = "none"

NOT_STARTED = "not started: "
"""The beginning of the runner's failure where the image or the command is at fault.

Another machine would find the same.
"""

HOST_LOST = "host lost: "
"""The beginning of the runner's failure where another host of the job is gone.

Another job goes on from the checkpoints.
"""

S3_URI = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?", re.DOTALL)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class JobSource:
    """The training's source, which is an archive in S3 or a commit of a git repository.

    Attributes:
        uri: The URI of the archive.
        sha256: The SHA-256 of the archive's bytes, hexadecimal. The runner unpacks no other bytes.
        git_url: The URL of the repository.
        git_commit: The whole hash of the commit, 40 hexadecimal digits.
        git_secret: The reference to the secret with the token for the repository. None for a public one.
    """

    uri: str | None = None
    sha256: str | None = None
    git_url: str | None = None
    git_commit: str | None = None
    git_secret: str | None = None

    @property
    def pin(self) -> str | None:
        """The hash that pins all files of the source."""
        return self.sha256 or self.git_commit


@dataclass(frozen=True)
class SearchedMetric:
    """A metric that the runner searches for in the lines of the command.

    Attributes:
        pattern: A regular expression. Its first group is the value.
        step: A regular expression. Its first group is the step. None where the script's own events say the step.
    """

    pattern: str
    step: str | None = None


@dataclass(frozen=True)
class RunNumber:
    """The number of a run among several runs of one job file.

    Attributes:
        index: From 1.
        count: The number of runs. 1 for a run on its own.
    """

    index: int
    count: int


@dataclass(frozen=True)
class HangLimit:
    """The longest time without a step and without output, and the consequence of a longer one.

    Attributes:
        after_seconds: The longest time, in seconds.
        restart: True where the command is ended after it, and started again. False where it is only reported.
        at_most: The number of these starts, after which the job fails.
    """

    after_seconds: int
    restart: bool = False
    at_most: int = 3


@dataclass(frozen=True)
class MlflowPlace:
    """The place where MLflow logs.

    Attributes:
        tracking_uri: The URI or the ARN of the tracking server.
        experiment: The name of the experiment. None for MLflow's default.
    """

    tracking_uri: str
    experiment: str | None = None


@dataclass(frozen=True)
class WandbPlace:
    """The project of Weights & Biases to which the script logs.

    Attributes:
        project: The name of the project.
        entity: The user or team that owns it. None for the default of the API key.
    """

    project: str
    entity: str | None = None

    def variables(self, *, run: str | None) -> dict[str, str]:
        """Return the variables that Weights & Biases' client reads.

        Each attempt of a run has the same id there. `allow` begins the run of that id, or goes on with it.

        Args:
            run: The run's id. None for a job that the launcher did not launch, which gets an id of the client's own.
        """
        entity = {} if self.entity is None else {WANDB_ENTITY: self.entity}
        bond = {} if run is None else {WANDB_RUN_ID: run, WANDB_RESUME: "allow", WANDB_NAME: run}
        return {WANDB_PROJECT: self.project, **entity, **bond, WANDB_MODE: "online"}


@dataclass(frozen=True)
class TrainingSpec:
    """All that the runner does for the script.

    Attributes:
        command: The training command and its arguments, or a block of lines for bash.
        environment: The user's variables.
        secrets: The references of the variables with secret values, by the variable (`secret_references`).
        hyperparameters: The hyperparameters as text, like SageMaker's.
        arguments: The arguments behind the command, one of `ARGUMENTS`.
        install: The packages to install first, which is `auto`, `none`, or the path of a requirements file in the
            source.
        requirements: A list of packages, instead of `install`.
        setup: A command that runs once on each machine, after the installation. It is a list of words, or a block of
            lines for bash. Empty for none.
        environments: `s3://bucket/prefix/`, the place of installed packages for the job's next machine, or None on EC2,
            where the volume keeps them.
        warm_pool: True where the job leaves its host to the next job, with its installed packages.
        source: The source. None when the image holds it.
        metrics: The metrics to search for, by name.
        pause_at_step: The script saves and leaves after this step. None for no pause.
        stuck: The limit for a training that hangs. None where the job file names none.
        number: The run's number in its group, on EC2. None on SageMaker.
        mlflow: The place to which MLflow logs. None where the job file names none.
        wandb: The project of Weights & Biases to which the script logs. None where the job file names none.
        distributed: The ranks to start on each host. None where each host runs the command as it stands.
    """

    command: tuple[str, ...] | str
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    secrets: Mapping[str, str] = field(default_factory=dict, hash=False)
    hyperparameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    arguments: str = HYPERPARAMETERS
    install: str = NO_INSTALLATION
    requirements: tuple[str, ...] = ()
    setup: tuple[str, ...] | str = ()
    environments: str | None = None
    warm_pool: bool = False
    source: JobSource | None = None
    metrics: Mapping[str, SearchedMetric] = field(default_factory=dict, hash=False)
    pause_at_step: int | None = None
    stuck: HangLimit | None = None
    number: RunNumber | None = None
    mlflow: MlflowPlace | None = None
    wandb: WandbPlace | None = None
    distributed: Ranks | None = None

    def script_variables(self, *, run: str | None) -> dict[str, str]:
        """Return the user's variables, and those that give the spec's settings to the script and its libraries.

        Args:
            run: The run's id. None for a job that the launcher did not launch.
        """
        variables = {name: value for name, value in self.environment.items() if name not in _MARKS}
        if self.pause_at_step is not None:
            variables[PAUSE_VARIABLE] = str(self.pause_at_step)
        if self.number is not None:
            variables["SPOTKEEP_RUN_INDEX"] = str(self.number.index)
            variables["SPOTKEEP_RUN_COUNT"] = str(self.number.count)
        if self.mlflow is not None:
            variables[MLFLOW_TRACKING_URI] = self.mlflow.tracking_uri
            if self.mlflow.experiment is not None:
                variables[MLFLOW_EXPERIMENT] = self.mlflow.experiment
        if self.wandb is not None:
            # A name or a mode of the user's has precedence. The job file refuses the others.
            variables = {**self.wandb.variables(run=run), **variables}
        return variables

    @property
    def secret_references(self) -> tuple[str, ...]:
        """The references of all secrets that a start reads, each once, in alphabetical order."""
        token = None if self.source is None else self.source.git_secret
        return tuple(sorted({*self.secrets.values(), *([] if token is None else [token])}))

    @property
    def value_variables(self) -> dict[str, str]:
        """The variables in which the agent gives the values to the runner, by the reference."""
        return {each: f"{_VALUE_VARIABLE}{number}" for number, each in enumerate(self.secret_references, start=1)}

    def document(self) -> dict[str, Any]:
        """Return the spec as JSON values."""
        words = {"command": self.command, "requirements": self.requirements, "setup": self.setup}
        return {**asdict(self), **{name: each if isinstance(each, str) else list(each) for name, each in words.items()}}


def encode_spec(spec: TrainingSpec) -> bytes:
    """Write a spec. The same spec gives the same bytes."""
    return json.dumps(spec.document(), separators=(",", ":"), allow_nan=False).encode("ascii")


def spec_file_name(content: bytes) -> str:
    """Return the name of the file with these bytes, in S3 and on the machine."""
    return f"{hashlib.sha256(content).hexdigest()}.json"


def decode_spec(text: str) -> TrainingSpec:
    """Read a text of `encode_spec`.

    Raises:
        DocumentError: The text is no such one. The error names every fault of it.
    """
    return read_json_text(text, "training spec", spec_from)


def spec_from(reader: Reader) -> TrainingSpec:
    """Read a spec's fields. The reader keeps the problems."""
    command = reader.text_or_texts("command")
    if not command:
        reader.problems.append(f"{reader.where}.command is empty; give the training command")
    return TrainingSpec(
        command=command,
        environment=reader.text_mapping("environment"),
        secrets=reader.text_mapping("secrets"),
        hyperparameters=reader.text_mapping("hyperparameters"),
        arguments=reader.choice("arguments", ARGUMENTS, HYPERPARAMETERS),
        install=reader.text("install", NO_INSTALLATION),
        requirements=reader.texts("requirements"),
        setup=reader.text_or_texts("setup"),
        environments=reader.optional_text("environments"),
        warm_pool=reader.flag("warm_pool"),
        source=reader.nested("source", _source_from),
        metrics=reader.each_named("metrics", _metric_from),
        pause_at_step=reader.optional_whole("pause_at_step"),
        stuck=reader.nested("stuck", _hang_limit_from),
        number=reader.nested("number", _number_from),
        mlflow=reader.nested("mlflow", _mlflow_from),
        wandb=reader.nested("wandb", _wandb_from),
        distributed=reader.nested("distributed", _ranks_from),
    )


def _source_from(reader: Reader) -> JobSource:
    source = JobSource(
        uri=reader.optional_text("uri"),
        sha256=reader.optional_text("sha256"),
        git_url=reader.optional_text("git_url"),
        git_commit=reader.optional_text("git_commit"),
        git_secret=reader.optional_text("git_secret"),
    )
    if (source.uri is None) == (source.git_url is None):
        reader.problems.append(f"{reader.where} must name either uri or git_url with git_commit")
    if source.git_url is not None and not _COMMIT.fullmatch(source.git_commit or ""):
        reader.problems.append(f"{reader.where}.git_commit is {source.git_commit!r}; use 40 hexadecimal digits")
    if source.uri is not None and not _SHA256.fullmatch(source.sha256 or ""):
        reader.problems.append(f"{reader.where}.sha256 is {source.sha256!r}; use 64 hexadecimal digits")
    if source.uri is not None and not S3_URI.fullmatch(source.uri):
        reader.problems.append(f"{reader.where}.uri is {source.uri!r}; use s3://bucket/key")
    return source


def _metric_from(reader: Reader) -> SearchedMetric:
    return SearchedMetric(pattern=reader.text("pattern"), step=reader.optional_text("step"))


def _hang_limit_from(reader: Reader) -> HangLimit:
    return HangLimit(
        after_seconds=reader.whole("after_seconds", at_least=1),
        restart=reader.flag("restart"),
        at_most=reader.whole("at_most", HangLimit.at_most),
    )


def _number_from(reader: Reader) -> RunNumber:
    return RunNumber(index=reader.whole("index", at_least=1), count=reader.whole("count", at_least=1))


def _mlflow_from(reader: Reader) -> MlflowPlace:
    return MlflowPlace(tracking_uri=reader.text("tracking_uri"), experiment=reader.optional_text("experiment"))


def _wandb_from(reader: Reader) -> WandbPlace:
    return WandbPlace(project=reader.text("project"), entity=reader.optional_text("entity"))


def _ranks_from(reader: Reader) -> Ranks:
    processes = reader.optional_whole("processes")
    if processes == 0:
        reader.problems.append(f"{reader.where}.processes is 0; use 1 or more, or null for one a GPU")
    return Ranks(launcher=reader.choice("launcher", RANK_LAUNCHERS, TORCHRUN), processes=processes)
