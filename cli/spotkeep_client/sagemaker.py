"""The SageMaker SDK's `ModelTrainer`, launched through Spotkeep by one changed line of a script that has one.

```python
from spotkeep_client.sagemaker import SpotTrainer

trainer = SpotTrainer(training_image=..., source_code=SourceCode(...), compute=Compute(...), max_cost=25)
trainer.train(wait=True)
```

It stands here and not in `spotkeep`, because a training script imports that, which uses the standard library alone.

Source: https://sagemaker.readthedocs.io/en/stable/ (ModelTrainer, version 3)
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, PrivateAttr
from sagemaker.core.helper.pipeline_variable import PipelineVariable
from sagemaker.core.resources import TrainingJob
from sagemaker.core.utils.utils import Unassigned
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData
from sagemaker.train.model_trainer import Mode
from sagemaker.train.tuner import HyperparameterTuner
from sagemaker.train.utils import safe_serialize

from spotkeep_cli.aws.connection import boto_session_of
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import LocatedProblem, RefusedError
from spotkeep_cli.importing.sdk_arguments import import_arguments
from spotkeep_cli.importing.training_job import LeftOut
from spotkeep_cli.launching.source_files import LocalSourceError
from spotkeep_client.client import Spotkeep
from spotkeep_fleet.tags import DEPLOYMENT_TAG, OWNER_TAG
from spotkeep_jobs.document.request import JobRequest, kind_of
from spotkeep_jobs.document.times import DAY_SECONDS, MAX_WAIT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import boto3
    from sagemaker.train.configs import Channel

    from spotkeep_cli.importing.training_job import ImportedJob
    from spotkeep_cli.seams import Seams
    from spotkeep_client.client import RunHandle, SweepHandle

_ITS_OWN: Final = {"training_mode", "sagemaker_session", "local_container_root", "config_mgr"}
"""Arguments of the trainer that say how it works, and nothing of the job."""
_JOB_FIELDS: Final = frozenset({*JobRequest.model_fields, "sweep"}) - frozenset(ModelTrainer.model_fields)
_CHAINED: Final = ("tensorboard_output_config", "retry_strategy", "infra_check_config", "session_chaining_config")
"""The names of the settings that a trainer gets by its `with_...` methods."""


class SpotTrainer(ModelTrainer):
    """A `ModelTrainer` that launches a run in `train`, validated, recorded and resumed after each interruption.

    With `sweep={...}` it launches a sweep of such runs.

    Args:
        deployment: The `deployment` setting that Spotkeep was deployed with.
        region: The AWS region, or None for the AWS configuration's own.
        profile: The AWS profile. None for the AWS configuration's own.
        local: True for the one in the local AWS (`spotkeep local up`).
        seams: The connection to AWS, the clock and the source of tokens. Tests hand in their own.
        **arguments: Those of `ModelTrainer`, and fields of a job file, such as `capacity="auto"` and `max_cost=25`.

    Raises:
        RefusedError: It has arguments that a run cannot keep. Carries each of them.
        ValidationError, ValueError: As `ModelTrainer` does.
    """

    _connection: dict[str, Any] = PrivateAttr(default_factory=dict)
    _job_fields: dict[str, Any] = PrivateAttr(default_factory=dict)
    _run: RunHandle | None = PrivateAttr(default=None)
    _sweep: SweepHandle | None = PrivateAttr(default=None)
    _session: boto3.Session | None = PrivateAttr(default=None)

    def __init__(
        self,
        *,
        deployment: str = "spotkeep",
        region: str | None = None,
        profile: str | None = None,
        local: bool = False,
        seams: Seams | None = None,
        **arguments: Any,
    ) -> None:
        given = {name: arguments.pop(name) for name in sorted(_JOB_FIELDS & arguments.keys())}
        mode = arguments.pop("training_mode", Mode.SAGEMAKER_TRAINING_JOB)
        # In its other mode it looks up a role and makes a bucket, and a run needs neither.
        super().__init__(**arguments, training_mode=Mode.LOCAL_CONTAINER)
        self.training_mode = mode
        self._connection = {"deployment": deployment, "region": region, "profile": profile, "local": local}
        self._connection["seams"] = seams
        self._job_fields = {name: value for name, value in given.items() if value is not None}
        for each in self._imported(()).left_out:
            # Without an address it says that the script saves, and is used.
            if each.replaced and (each.field != "checkpoint_config" or _given_s3_uri(self.checkpoint_config)):
                warnings.warn(f"{each.field} is not used: {each.why}", UserWarning, stacklevel=2)

    def train(
        self,
        input_data_config: Sequence[Channel | InputData] | None = None,
        wait: bool = True,  # noqa: FBT001 - the signature is the SDK's
        logs: bool = True,  # noqa: FBT001
        dry_run: bool = False,  # noqa: FBT001
    ) -> None:
        """Launch a run, or a sweep.

        Args:
            input_data_config: Channels, beside those of the trainer or in place of one of the same name.
            wait: True to wait until the run has completed, or paused at its `pause_at_step`, or the search is over.
            logs: True to print the output of its jobs, or the state of the sweep, during the wait.
            dry_run: True to judge only the parts that can be judged here, and to launch nothing.

        Raises:
            RefusedError: Nothing was launched. It carries every problem.
            RunFailedError, RunStoppedError: It was waited for, and has not completed.
            NoConnectionError: The deployment cannot be reached.
        """
        fields = self._imported(input_data_config or ()).fields
        if dry_run:
            return
        deployment = Spotkeep(**self._connection)
        with tempfile.TemporaryDirectory() as copy:
            source = self._source(fields.pop("source", None), copy=Path(copy))
            if kind_of(fields) == "sweep":
                self._run, self._sweep = None, deployment.launch_sweep(fields, source=source)
            else:
                self._run, self._sweep = deployment.launch(fields, source=source), None
        self._latest_training_job = self.latest_training_job
        launched = self._run or self._sweep
        if wait and launched is not None:
            launched.wait(show=print if logs else None)
            self._latest_training_job = self.latest_training_job

    @property
    def run(self) -> RunHandle | None:
        """The run of the last `train`. None where that launched a sweep."""
        return self._run

    @property
    def sweep(self) -> SweepHandle | None:
        """The sweep of the last `train`. None where that launched a run."""
        return self._sweep

    @property
    def latest_training_job(self) -> TrainingJob | None:
        """The SDK's resource of the run's newest training job. None before there is one, on EC2, and for a sweep."""
        name = None if self._run is None else self._run.job_name
        if name is None:
            return None
        if self._session is None:
            options = {name: value for name, value in self._connection.items() if name != "seams"}
            self._session = boto_session_of(ConnectionOptions(**options))
        return TrainingJob.get(training_job_name=name, session=self._session, region=self._session.region_name)

    def _create_training_job_args(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Refuse a request of the SDK's TrainingQueue or of its own `train`, because its job would be no run.

        Raises:
            RefusedError: Always.
        """
        fix = "Call train() with queue=, or give the SDK a ModelTrainer"
        problem = LocatedProblem(field="trainer", found="a SpotTrainer", problem="creates no training job", fix=fix)
        raise RefusedError("the launcher creates the training jobs of a SpotTrainer", problems=[problem])

    def _imported(self, channels: Sequence[Channel | InputData]) -> ImportedJob:
        """Return the job that the trainer's arguments mean, the job file's fields of the call on top.

        Raises:
            RefusedError: They hold settings that a run cannot keep.
        """
        values = self._values(channels)
        _refuse(list(_of_a_pipeline({**values, "hyperparameters": self.hyperparameters})))
        job = import_arguments(values, list(self._not_a_job()), name="training")
        _refuse([each for each in job.left_out if not each.replaced and each.field not in self._job_fields])
        if self._remote_debug_config is not None and self._remote_debug_config.enable_remote_debug:
            job.fields["debug"] = True
        job.fields.update(self._job_fields)
        return job

    def _values(self, channels: Sequence[Channel | InputData]) -> dict[str, Any]:
        """Return each plain value that was given by its path in the call."""
        values = {path: _plain(value) for path, value in _given_to(self) if not path.startswith("with_")}
        # The files are copied without these.
        values.pop("source_code.ignore_patterns", None)
        compute = self.compute or Compute()
        if compute.enable_managed_spot_training is None and not compute.keep_alive_period_in_seconds:
            values["compute.enable_managed_spot_training"] = True
        if self.hyperparameters:
            values["hyperparameters"] = {name: safe_serialize(value) for name, value in self.hyperparameters.items()}
        by_name = {each.channel_name: each for each in (*(self.input_data_config or ()), *channels)}
        values["input_data_config"] = [_plain(each) for each in by_name.values()]
        values["metric_definitions"] = [
            {"Name": each.name, "Regex": each.regex} for each in self._metric_definitions or ()
        ]
        return values

    def _not_a_job(self) -> Iterator[LeftOut]:
        if self.training_mode is not Mode.SAGEMAKER_TRAINING_JOB:
            yield LeftOut(field="training_mode", why="a container on this machine is no run: use spotkeep rehearse")
        if isinstance(self.sagemaker_session, PipelineSession):
            needed = "the tag spotkeep:deployment, and a checkpoint prefix with the execution's id"
            why = f"a pipeline creates its jobs itself: give a ModelTrainer {needed}"
            yield LeftOut(field="sagemaker_session", why=why)
        elif self.sagemaker_session is not None:
            why = "credentials and region are those of profile= and region="
            yield LeftOut(field="sagemaker_session", why=why, replaced=True)
        for name in _CHAINED:
            if getattr(self, f"_{name}") is not None:
                yield LeftOut(field=f"with_{name}", why="a job file has no field for it")

    def _source(self, source: str | None, *, copy: Path) -> str | None:
        """Return the directory to pack, a copy without the files that the SDK's own patterns leave out.

        The SDK does not ask git. The copy is therefore no checkout, and no rule of git's counts in it.

        Raises:
            LocalSourceError: It has a link to nothing, or a file that cannot be read.
        """
        if source is None or source.endswith(".tar.gz") or source.startswith("s3://"):
            return source
        patterns = (self.source_code.ignore_patterns if self.source_code else None) or ()
        left_out = shutil.ignore_patterns(*patterns, ".git", ".gitignore")
        try:
            shutil.copytree(source, copy / "source", ignore=left_out)
        except shutil.Error as error:
            name, _, why = error.args[0][0]
            hint = "remove it, or name it in ignore_patterns of SourceCode"
            raise LocalSourceError(f"{name} cannot be copied: {why}", hint=hint) from error
        return str(copy / "source")


def make_adoptable(
    tuner: HyperparameterTuner, *, deployment: str = "spotkeep", owner: str | None = None
) -> HyperparameterTuner:
    """Prepare a tuner so that each training job of its tuning job becomes a run on spot capacity, and return it.

    SageMaker itself creates these jobs, with the tags of the tuning job. The controller adopts them and does not launch
    them.

    Args:
        tuner: The tuner, of one `ModelTrainer` or of several.
        deployment: The `deployment` setting that Spotkeep was deployed with.
        owner: The owner of the runs. None where that is not recorded.

    Raises:
        RefusedError: Its jobs would start anew after an interruption, would differ from the trainer, or would be
            refused by AWS. It names each reason.
    """
    trainers = {"model_trainer": tuner.model_trainer} if tuner.model_trainer else dict(tuner.model_trainer_dict or {})
    problems = [problem for name, each in trainers.items() for problem in _not_adoptable(each, name)]
    if problems:
        raise RefusedError("its training jobs cannot become runs as they are", problems=problems)
    for name, trainer in trainers.items():
        for path, value in _given_to(trainer):
            if path in _WITHOUT_EFFECT_ON_TUNING and value:
                warnings.warn(f"{name}.{path} is not used: {_WITHOUT_EFFECT_ON_TUNING[path]}", stacklevel=2)
        trainer.compute.enable_managed_spot_training = True
        limits = trainer.stopping_condition
        if not limits.max_wait_time_in_seconds:
            limits.max_wait_time_in_seconds = min(limits.max_runtime_in_seconds + DAY_SECONDS, MAX_WAIT_SECONDS)
    ours = {DEPLOYMENT_TAG: deployment} | ({} if owner is None else {OWNER_TAG: owner})
    for trainer in trainers.values():
        # The SDK adds them to the tuner's.
        trainer.tags = [tag for tag in trainer.tags or () if _key_of(tag) not in ours] or None
    others = [tag for tag in tuner.tags or () if _key_of(tag) not in ours]
    tuner.tags = [*others, *({"Key": key, "Value": value} for key, value in ours.items())]
    return tuner


_NOT_SENT: Final = "the SDK leaves it out of a tuning job"
_LOST_IN_TUNING: Final = {
    "source_code.command": f"{_NOT_SENT}, and without an entry_script the code too: the jobs would run something else",
    "distributed": f"{_NOT_SENT}: the image would start one process an instance",
    "networking.enable_network_isolation": _NOT_SENT,
    "networking.enable_inter_container_traffic_encryption": _NOT_SENT,
    "compute.volume_kms_key_id": _NOT_SENT,
    "compute.instance_groups": _NOT_SENT,
    "compute.instance_preferences": _NOT_SENT,
    "compute.instance_placement_config": _NOT_SENT,
    "compute.training_plan_arn": _NOT_SENT,
    "algorithm_name": _NOT_SENT,
    "training_image_config": _NOT_SENT,
    "model_package_config": _NOT_SENT,
    "with_session_chaining_config": _NOT_SENT,
    "with_tensorboard_output_config": _NOT_SENT,
}
"""Settings that a tuner's jobs would lack, by path in the trainer's call.

Source: sagemaker 3.27.0, `HyperparameterTuner`
"""
_WITHOUT_EFFECT_ON_TUNING: Final = {
    "source_code.args": "the SDK hands it to a command alone",
    "compute.keep_alive_period_in_seconds": "a tuning job keeps no warm pools",
    "stopping_condition.max_pending_time_in_seconds": _NOT_SENT,
    "with_infra_check_config": _NOT_SENT,
    "with_metric_definitions": "the metrics of a tuning job are the tuner's metric_definitions",
    "with_remote_debug_config": _NOT_SENT,
}
_REQUIREMENTS: Final = "requirements.txt"


def _not_adoptable(trainer: ModelTrainer, name: str) -> Iterator[LocatedProblem]:
    given = dict(_given_to(trainer))
    if isinstance(trainer, SpotTrainer):
        fix = "Give a ModelTrainer, or let the SpotTrainer search: sweep={...}"
        yield LocatedProblem(field=name, found="a SpotTrainer", problem="launches its runs itself", fix=fix)
    for path, why in _LOST_IN_TUNING.items():
        if given.get(path):
            yield LocatedProblem(field=f"{name}.{path}", found="given", problem=why, fix="Leave it out")
    requirements = given.get("source_code.requirements", _REQUIREMENTS)
    if requirements != _REQUIREMENTS:
        why = f"{_NOT_SENT}, where the image installs {_REQUIREMENTS} of the source"
        fix = f"Name the file {_REQUIREMENTS}"
        yield LocatedProblem(field=f"{name}.source_code.requirements", found=str(requirements), problem=why, fix=fix)
    if not given.get("checkpoint_config.s3_uri"):
        yield LocatedProblem(
            field=f"{name}.checkpoint_config",
            found="none",
            problem="has no s3_uri: the jobs would start anew after an interruption",
            fix="Give one: CheckpointConfig(s3_uri='s3://bucket/prefix/')",
        )
    limits = trainer.stopping_condition
    running, longest = limits.max_runtime_in_seconds, limits.max_wait_time_in_seconds
    if not running:
        yield LocatedProblem(
            field=f"{name}.stopping_condition.max_runtime_in_seconds",
            found="none",
            problem="is missing: the SDK sends none, and AWS takes a day",
            fix="Give one: StoppingCondition(max_runtime_in_seconds=14_400)",
        )
    elif longest and longest < running:
        yield LocatedProblem(
            field=f"{name}.stopping_condition.max_wait_time_in_seconds",
            found=str(longest),
            problem=f"is below max_runtime_in_seconds ({running}), and AWS refuses the tuning job",
            fix="Leave it out: a day to wait for capacity is added. Or give more",
        )


def _given_to(trainer: ModelTrainer) -> Iterator[tuple[str, Any]]:
    """Yield each argument of a trainer by its path in the call. A configuration yields the name of its class."""
    for name in type(trainer).model_fields:
        value = getattr(trainer, name)
        if name in _ITS_OWN or value is None or value == {}:
            continue
        if isinstance(value, BaseModel):
            yield name, type(value).__name__
            yield from ((f"{name}.{inner}", each) for inner, each in _given(value))
        else:
            yield name, value
    for name in (*_CHAINED, "remote_debug_config", "metric_definitions"):
        if getattr(trainer, f"_{name}") is not None:
            yield f"with_{name}", True


def _key_of(tag: Any) -> str | None:
    """Return the key of a tag in any of the forms that the SDK takes."""
    return (tag.get("Key") or tag.get("key")) if isinstance(tag, Mapping) else tag.key


def _refuse(arguments: Sequence[LeftOut]) -> None:
    if arguments:
        problems = [
            LocatedProblem(field=each.field, found="given", problem=each.why, fix="Leave it out") for each in arguments
        ]
        raise RefusedError("a run cannot keep all arguments of the trainer", problems=problems)


def _of_a_pipeline(value: Any, path: str = "") -> Iterator[LeftOut]:
    """Yield each argument that has no value before a pipeline is executed."""
    if isinstance(value, PipelineVariable):
        yield LeftOut(field=path, why="a variable of a pipeline has no value before the pipeline is executed")
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from _of_a_pipeline(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _of_a_pipeline(each, path)


def _given(configuration: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield the values of a configuration that differ from its defaults."""
    for name, field in type(configuration).model_fields.items():
        value = getattr(configuration, name)
        if value is not None and not isinstance(value, Unassigned) and value != field.default:
            yield name, value


def _given_s3_uri(checkpoints: BaseModel | None) -> bool:
    return checkpoints is not None and "s3_uri" in dict(_given(checkpoints))


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(each) for name, each in _given(value)}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
