"""Makes a job document of the arguments that the SageMaker SDK's trainers take. Pure.

Each argument is taken for a field of the document. Any other argument is left out by name, so nothing is lost silently.
That holds for arguments of later SDKs. Names of the SDK's version 1 (`train_instance_type`) are read, too.

Sources:
    https://sagemaker.readthedocs.io/en/stable/ (ModelTrainer, version 3, and Estimator and the frameworks, version 2)
    https://sagemaker.readthedocs.io/en/stable/v2.html (names of version 1)
    - `torchrun_driver.py` and `basic_script_driver.py` of sagemaker-train 1.27.0, which start the script in the
      container
    - `torch_distributed.py` and `runner.py` of sagemaker-training 5.0.0, which do the same
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic_core import PydanticCustomError

from spotkeep_cli.importing.training_job import (
    MEANINGS,
    PROCESSES_OF_ITS_OWN,
    ImportedJob,
    LeftOut,
    channel_of,
    checkpoints_elsewhere,
    command_of_script,
    distributed_of,
    longest_wait_of,
    lost,
    max_wait_of,
    meaning_of,
    metrics_of,
    mpi_command_of_script,
    preferred_instances,
    replaced,
    shortened_name,
    text_that_stays,
)
from spotkeep_fleet.ranks import MPI, TORCHRUN
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES, FRAMEWORK_IMAGES
from spotkeep_jobs.document.image import newest_named, read_framework
from spotkeep_jobs.document.reading import printable_name
from spotkeep_jobs.document.shell_text import SHELLS_OWN

_FRAMEWORKS: Final = {
    "PyTorch": "pytorch", "TensorFlow": "tensorflow", "HuggingFace": "huggingface", "XGBoost": "xgboost",
    "SKLearn": "sklearn", "MXNet": "mxnet", "Chainer": "chainer", "RLEstimator": "rl",
}  # fmt: skip
_FIELDS: Final = {
    "training_image": "image", "image_uri": "image", "image_name": "image",
    "compute.instance_count": "instance_count", "instance_count": "instance_count",
    "train_instance_count": "instance_count",
    "compute.volume_size_in_gb": "volume_size_gb", "volume_size": "volume_size_gb",
    "train_volume_size": "volume_size_gb",
    "compute.keep_alive_period_in_seconds": "keep_alive", "keep_alive_period_in_seconds": "keep_alive",
    "stopping_condition.max_runtime_in_seconds": "max_run", "max_run": "max_run", "train_max_run": "max_run",
    "environment": "environment",
}  # fmt: skip
"""The field of the job document, by its path in the script's call."""
_TYPES: Final = ("compute.instance_type", "instance_type", "train_instance_type")
_SPOT: Final = ("compute.enable_managed_spot_training", "use_spot_instances", "train_use_spot_instances")
_LONGEST_WAITS: Final = ("stopping_condition.max_wait_time_in_seconds", "max_wait", "train_max_wait")
_PENDING: Final = "stopping_condition.max_pending_time_in_seconds"
_LOCAL_PATHS: Final = ("checkpoint_config.local_path", "checkpoint_local_path")
_PROCESSES: Final = "distributed.process_count_per_node"
_DEBUG: Final = ("enable_remote_debug", "remote_debug_config.enable_remote_debug", "remote_debug_config")
_IMAGES: Final = ("training_image", "image_uri", "image_name")
_CREDENTIALS: Final = tuple(f"git_config.{name}" for name in ("username", "password", "token", "2FA_enabled"))
_INPUT_MODES: Final = ("training_input_mode", "input_mode")
_OF_BASH: Final = SHELLS_OWN | {"command", "coproc", "time"}
"""First words that bash does itself. There is no such program, or an image may lack it."""
_SYNTAX: Final = re.compile(r"^\s*\w+=|[^\w@%+=:,./\s-]")
_CONTAINERS: Final = {
    "compute": ("Compute", "TrainingJobCompute"), "source_code": ("SourceCode",), "distributed": ("MPI",),
    "stopping_condition": ("StoppingCondition",), "remote_debug_config": ("RemoteDebugConfig",),
}  # fmt: skip
"""Configurations of which each part is judged by itself, with their classes."""
_INPUT_MEMBERS: Final = {
    "s3_data": "S3Uri", "distribution": "S3DataDistributionType", "compression": "CompressionType",
    "record_wrapping": "RecordWrapperType", "instance_groups": "InstanceGroupNames",
}  # fmt: skip
"""Arguments of a TrainingInput that are not called as the members of a channel."""
_NO_COMMAND: Final = "the command is computed or missing: write one"
_NO_MAPPING: Final = "it is no mapping"
_NO_LIST: Final = "it is no list"
_BY_PLACE: Final = "its name depends on the version of the SDK: write it with its name"
_BY_TORCHRUN: Final = ("torch_distributed", "pytorchddp")
_NOT_BY_MPIRUN: Final = "torchrun starts the ranks in the place of mpirun: init_process_group finds the same ones"
_NO_MPI_OPTIONS: Final = "mpirun gets no options of a job file: write the command that starts it, and distributed: none"
_FOLLOWED: Final = "spotkeep launch follows the run; Ctrl-C leaves it running"
_BRINGS_ITS_SOURCE: Final = "the source goes to the deployment's bucket"

_LOGIN: Final = "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig"
_MEMBERS: Final = {
    "role": "RoleArn", "output_path": "OutputDataConfig", "output_data_config": "OutputDataConfig",
    "output_kms_key": "OutputDataConfig.KmsKeyId", "output_data_config.kms_key_id": "OutputDataConfig.KmsKeyId",
    "disable_output_compression": "OutputDataConfig.CompressionType",
    "output_data_config.compression_type": "OutputDataConfig.CompressionType", "networking": "VpcConfig",
    "subnets": "VpcConfig", "security_group_ids": "VpcConfig",
    "networking.enable_network_isolation": "EnableNetworkIsolation",
    "enable_network_isolation": "EnableNetworkIsolation",
    "networking.enable_inter_container_traffic_encryption": "EnableInterContainerTrafficEncryption",
    "encrypt_inter_container_traffic": "EnableInterContainerTrafficEncryption",
    "checkpoint_config": "CheckpointConfig", "checkpoint_s3_uri": "CheckpointConfig",
    "compute.volume_kms_key_id": "ResourceConfig.VolumeKmsKeyId", "volume_kms_key": "ResourceConfig.VolumeKmsKeyId",
    "train_volume_kms_key": "ResourceConfig.VolumeKmsKeyId",
    "compute.instance_groups": "ResourceConfig.InstanceGroups", "instance_groups": "ResourceConfig.InstanceGroups",
    "compute.training_plan_arn": "ResourceConfig.TrainingPlanArn", "training_plan": "ResourceConfig.TrainingPlanArn",
    "compute.instance_placement_config": "ResourceConfig.InstancePlacementConfig",
    "instance_placement_config": "ResourceConfig.InstancePlacementConfig",
    "compute.selected_instance_type": "ResourceConfig.SelectedInstanceType",
    "compute.selected_instance_count": "ResourceConfig.SelectedInstanceCount",
    "algorithm_name": "AlgorithmSpecification.AlgorithmName",
    "enable_sagemaker_metrics": "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "enable_cloudwatch_metrics": "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "training_image_config": "AlgorithmSpecification.TrainingImageConfig",
    "training_repository_access_mode": "AlgorithmSpecification.TrainingImageConfig",
    "training_image_config.training_repository_auth_config": _LOGIN,
    "training_repository_credentials_provider_arn": _LOGIN, "fit.experiment_config": "ExperimentConfig",
    "debugger_hook_config": "DebugHookConfig", "rules": "DebugRuleConfigurations",
    "profiler_config": "ProfilerConfig", "tensorboard_output_config": "TensorBoardOutputConfig",
    "retry_strategy": "RetryStrategy", "max_retry_attempts": "RetryStrategy",
    "infra_check_config": "InfraCheckConfig", "enable_infra_check": "InfraCheckConfig",
    "session_chaining_config": "SessionChainingConfig", "enable_session_tag_chaining": "SessionChainingConfig",
    "model_package_config": "ModelPackageConfig",
}  # fmt: skip
"""Arguments that have no field, each with the member of CreateTrainingJob that it becomes."""
NEVER_TAKEN: Final[Mapping[str, LeftOut]] = {
    **{path: MEANINGS[member] for path, member in _MEMBERS.items()},
    "input_s3_key_prefix": replaced(_BRINGS_ITS_SOURCE),
    "code_location": replaced(_BRINGS_ITS_SOURCE),
    "source_code.ignore_patterns": lost(
        "a launch leaves out the files that git ignores: name the patterns in .gitignore"
    ),
    "dependencies": lost("the SDK copies them into the source: copy them there"),
    "disable_profiler": replaced("SageMaker's profiler does not watch the job"),
    "container_log_level": replaced("it is for SageMaker's training toolkit"),
    "script_mode": replaced("a job file has a command"),
    "sagemaker_session": replaced("credentials and region are those of the command: --profile, --region"),
    "training_mode": lost("a run is not local: spotkeep rehearse tries the job on this machine"),
    "local_container_root": lost("a run is not local: spotkeep rehearse tries the job on this machine"),
    "image_uri_region": replaced("the launch chooses the image by region"),
    **{
        f"{image}.{name}": replaced("the launch chooses the image by region and instance type")
        for image in _IMAGES
        for name in ("region", "instance_type")
    },
    **dict.fromkeys(_CREDENTIALS, lost("a run reads a repository without a login: no credentials stand in a job file")),
    "model_uri": lost("a model to begin with is data: give it as a channel"),
    "model_channel_name": lost("a model to begin with is data: give it as a channel"),
    "compiler_config": lost("SageMaker's Training Compiler does not run"),
    "training_recipe": lost("image and script of a recipe do not stand in the call"),
    "recipe_overrides": lost("image and script of a recipe do not stand in the call"),
    "requirements_file": lost("requirements.txt at the source's root is installed: write install for another"),
    "fit.wait": replaced(_FOLLOWED),
    "fit.logs": replaced(_FOLLOWED),
    "fit.job_name": replaced("spotkeep launch --set run=NAME gives a run its name"),
    "fit.dry_run": replaced("spotkeep doctor checks a job file"),
    "fit.run_tensorboard_locally": lost("tensorboard --logdir reads the logs beside the checkpoints of a run"),
}
"""Arguments that have no field, with the meaning of leaving each out. The longest path that fits counts.

`fit.` are those of the call that starts the job.
"""
_NOT_HERE: Final[Mapping[str, LeftOut]] = {
    **NEVER_TAKEN,
    **dict.fromkeys(_LONGEST_WAITS, MEANINGS["StoppingCondition.MaxWaitTimeInSeconds"]),
    _PENDING: MEANINGS["StoppingCondition.MaxPendingTimeInSeconds"],
    "compute.instance_preferences": MEANINGS["ResourceConfig.InstancePreferences"],
    "container_arguments": MEANINGS["AlgorithmSpecification.ContainerArguments"],
    "distributed": lost(PROCESSES_OF_ITS_OWN),
    "distributed.smp": lost("SageMaker's model parallelism is not set up"),
    "distributed.mpi_additional_options": lost(_NO_MPI_OPTIONS),
    **dict.fromkeys(
        ("framework_version", "py_version", "transformers_version", "pytorch_version", "tensorflow_version"),
        replaced("that of the image counts"),
    ),
}
"""The same with arguments that have a field, and that a job does not use which has another one."""
_NEUTRAL: Final[Mapping[str, Any]] = {
    "output_data_config.compression_type": "GZIP",
    "training_image_config.training_repository_access_mode": "Platform",
    "training_repository_access_mode": "Platform",
}
"""Values that do not change a run."""


def import_arguments(
    values: Mapping[str, Any], left_out: list[LeftOut], *, trainer: str = "ModelTrainer", name: str
) -> ImportedJob:
    """Read the arguments of a trainer.

    Args:
        values: Each plain value by its path in the call, `compute.instance_type`, and the name of the class for each
            configuration.
        left_out: The parts that are left out already.
        trainer: The class of the trainer.
        name: The job's name where there is no `base_job_name`.
    """
    job = _SdkJob(values, left_out, trainer=trainer)
    job.read(name=name)
    return ImportedJob.of(job.fields, [*job.left_out, *job.not_taken()])


class _SdkJob:
    """A job document made of a trainer's arguments. Each argument is taken or left out by name.

    Attributes:
        fields: The document so far.
        left_out: The parts that are left out so far.
    """

    def __init__(self, values: Mapping[str, Any], left_out: list[LeftOut], *, trainer: str) -> None:
        self.fields: dict[str, Any] = {}
        self.left_out = [*left_out]
        self._trainer = trainer
        self._values = {path: value for path, value in values.items() if value is not None}
        self._not_taken = dict(self._values)

    def read(self, *, name: str) -> None:
        """Take each argument that a job file has a field for. `name` is the job's where no argument names it."""
        own_name = str(self._take("base_job_name") or name)
        self.fields["name"] = shortened_name(own_name, self.left_out, path="base_job_name")
        for path, field in _FIELDS.items():
            if field not in self.fields and path in self._not_taken:
                self.fields[field] = self._take(path)
        self._read_instances()
        self._read_capacity()
        self._read_checkpoints()
        self._read_image()
        if self._trainer == "ModelTrainer":
            self._read_source_code()
        else:
            self._read_entry_point()
        self._read_hyperparameters()
        self.fields["channels"] = list(self._channels())
        self.fields["tags"] = dict(_tags(self._take("tags"), self.left_out))
        definitions = self._take("metric_definitions")
        if not isinstance(definitions, list | None):
            self._leave_out("metric_definitions", _NO_LIST)
        given = definitions if isinstance(definitions, list) else ()
        self.fields["metrics"] = metrics_of(given, self.left_out, path="metric_definitions")
        self.fields["debug"] = True if self._take(*_DEBUG) else None

    def not_taken(self) -> Iterator[LeftOut]:
        """Yield each argument that was not taken and asks for something, with the meaning of leaving it out."""
        for path, value in self._not_taken.items():
            is_off = value in (False, "", [], {}) and not path.startswith("fit.")
            is_read = value in _CONTAINERS.get(path, ()) or value == _NEUTRAL.get(path)
            if not is_off and not is_read:
                by_place = path.startswith("argument ")
                yield LeftOut(field=path, why=_BY_PLACE) if by_place else meaning_of(path, _NOT_HERE)

    def _take(self, *paths: str) -> Any:
        """Take the first of some arguments that is there. Return None where none is."""
        return self._not_taken.pop(self._given(*paths), None)

    def _take_mapping(self, *paths: str) -> dict[str, Any]:
        path = self._given(*paths)
        value = self._take(path)
        if value is not None and not isinstance(value, dict):
            self._leave_out(path, _NO_MAPPING)
        return value if isinstance(value, dict) else {}

    def _given(self, *paths: str) -> str:
        """Return the name by which an argument is given. The first where it is not."""
        return next((path for path in paths if path in self._not_taken), paths[0])

    def _leave_out(self, field: str, why: str, *, replaced: bool = False) -> None:
        self.left_out.append(LeftOut(field=field, why=why, replaced=replaced))

    def _is_computed(self, *paths: str) -> bool:
        return any(each.field in paths for each in self.left_out)

    @property
    def _instance_count(self) -> int | None:
        """The number of instances. None where the script computes it."""
        count = self.fields.get("instance_count")
        unknown = self._is_computed("compute", "compute.instance_count", "instance_count", "train_instance_count")
        return count if isinstance(count, int) else None if unknown else 1

    def _read_instances(self) -> None:
        path = self._given(*_TYPES)
        one = self._take(path)
        if isinstance(one, str) and one.startswith("local"):
            self._leave_out(path, f"{one} is this machine: spotkeep rehearse tries a job on it")
        elif one is not None:
            self.fields["instance_type"] = one
        preferences = self._take("compute.instance_preferences")
        given = [
            {_member(key): value for key, value in each.items()}
            for each in (preferences if isinstance(preferences, list) else ())
            if isinstance(each, dict) and "instance_type" in each
        ]
        types, of_each, is_all = preferred_instances(given)
        if types:
            self.fields["instance_types"] = types
            self.fields.setdefault("instance_count", of_each)
        if not is_all or (preferences and not given):
            self.left_out.append(meaning_of("compute.instance_preferences", _NOT_HERE))

    def _read_capacity(self) -> None:
        self.fields["capacity"] = "spot" if self._take(*_SPOT) else "on-demand"
        if self.fields["capacity"] == "spot":
            path = self._given(*_LONGEST_WAITS)
            self.fields |= max_wait_of(self._take(path), self.fields.get("max_run"), self.left_out, path=path)
        else:
            self.fields |= longest_wait_of(self._take(_PENDING), self.left_out, path=_PENDING)
            path = self._given(*_LONGEST_WAITS)
            if path in self._not_taken and self._is_computed(*_SPOT):
                self._take(path)
                self._leave_out(path, "whether the job is on spot is computed: max_wait goes with capacity: spot")

    def _read_checkpoints(self) -> None:
        self.fields["checkpoints"] = any(self._values.get(path) for path in ("checkpoint_config", "checkpoint_s3_uri"))
        path = self._given(*_LOCAL_PATHS)
        self.left_out += checkpoints_elsewhere(self._take(path), path=path)

    def _read_image(self) -> None:
        """Read the image. It is given by its name, as an algorithm, or as a framework."""
        family = _FRAMEWORKS.get(self._trainer)
        retrieved = next((path for path in _IMAGES if self._values.get(path) == "retrieve"), None)
        if retrieved is not None:
            del self.fields["image"]
            self._read_retrieved_image(retrieved)
        elif family is None or "image" in self.fields or self._is_computed(*_IMAGES):
            return
        elif not any(name.startswith(f"{family}-") for name in FRAMEWORK_IMAGES):
            self._leave_out("framework", f"Spotkeep knows no image of {self._trainer}: write image")
        elif family == "huggingface" and "tensorflow_version" in self._not_taken:
            self._leave_out("framework", "Spotkeep knows images of Hugging Face with PyTorch alone: write image")
        else:
            self._read_framework(family)

    def _read_framework(self, family: str) -> None:
        path = "transformers_version" if family == "huggingface" else "framework_version"
        known = ", ".join(name for name in FRAMEWORK_IMAGES if name.startswith(f"{family}-"))
        version, computed = self._take(path), self._is_computed(path)
        if version is None:
            if not computed:
                self._leave_out(path, f"none is given: write framework, one of {known}")
            return
        wanted = f"{family}-{version}"
        try:
            framework = read_framework(wanted)
        except PydanticCustomError:
            named = printable_name(wanted)
            self._leave_out(path, f"Spotkeep knows no image of {named}, only of {known}: write image, or one of these")
            return
        self.fields["framework"] = framework
        if not re.search(r"\d[.-]\d", str(version)):
            self._leave_out(path, f"{framework} is the newest of {version} that Spotkeep knows", replaced=True)
        tag = FRAMEWORK_IMAGES[framework].path.partition(":")[2]
        pytorch, python = self._take("pytorch_version"), self._take("py_version")
        if pytorch is not None and not re.match(re.escape(str(pytorch)) + r"(?![0-9])", tag):
            self._leave_out("pytorch_version", f"the image of {framework} has PyTorch {tag.partition('-')[0]}")
        pythons = re.search(r"-(py3\d*)", tag)
        if python not in (None, "py3", pythons and pythons[1]):
            self._leave_out("py_version", f"the image of {framework} has {pythons[1] if pythons else 'one of its own'}")

    def _read_retrieved_image(self, path: str) -> None:
        """Read `image_uris.retrieve("xgboost", region, "1.7-1")`."""
        family, version = self._take(f"{path}.framework"), self._take(f"{path}.version")
        for name in ("py_version", "region", "instance_type"):
            self._take(f"{path}.{name}")  # The launch knows them.
        if self._take(f"{path}.image_scope") not in (None, "training") or self._is_computed(f"{path}.version"):
            self._leave_out(path, "it is not known to be an image for training: write image")
            return
        with_script = any(name in self._not_taken for name in ("entry_point", "source_code"))
        field, images = ("framework", FRAMEWORK_IMAGES) if with_script else ("algorithm", ALGORITHM_IMAGES)
        known = [name for name in images if re.match(re.escape(str(family)) + r"-\d", name)]
        wanted = str(family) if version is None else f"{family}-{version}"
        named = newest_named(wanted, images) if known and (version is not None or len(known) == 1) else None
        if named is not None:
            self.fields[field] = named
        elif known:
            self._leave_out(path, f"{printable_name(wanted)}: write {field}, one of {', '.join(known)}, or image")
        else:
            self._leave_out(path, f"Spotkeep knows no image of {printable_name(wanted)}: write image")

    def _read_source_code(self) -> None:
        """Read command, source and arguments as the drivers of the SDK's version 3 have them."""
        command, script = self._take("source_code.command"), self._take("source_code.entry_script")
        arguments, requirements = self._take("source_code.args"), self._take("source_code.requirements")
        if "source_code" in self._not_taken:
            # Without `requirements` the SDK installs nothing.
            self.fields["install"] = requirements or "none"
        self.fields["source"] = self._take("source_code.source_dir")
        if command is not None:
            if script is not None:
                self._leave_out("source_code.entry_script", "the SDK runs command alone", replaced=True)
            if "\n" in str(command).strip():
                why = "the SDK makes one line of its lines: if each is a command, write command as a block of lines"
                self._leave_out("source_code.command", why, replaced=True)
            # The SDK hands it to a shell, and no hyperparameters with it.
            self.fields |= {"command": _shell_command(str(command), _words(arguments)), "arguments": "none"}
            if "distributed" in self._not_taken:
                self._leave_out("distributed", "the SDK runs command alone", replaced=True)
                self._not_taken = {
                    path: value for path, value in self._not_taken.items() if not path.startswith("distributed")
                }
        elif script is None:
            if "source_code" in self._not_taken or any(each.field.startswith("source_code") for each in self.left_out):
                self._leave_out("command", _NO_COMMAND)
        else:
            self.fields |= {"command": command_of_script(str(script)), "arguments": "json"}
            if arguments:
                self._leave_out("source_code.args", "the SDK hands it to a command alone", replaced=True)
            distributed = self._take("distributed")
            if distributed == "Torchrun":
                self.fields["distributed"] = distributed_of(TORCHRUN, self._take(_PROCESSES))
            elif distributed == "MPI":
                self._read_mpi(str(script), self._take(_PROCESSES))
            elif distributed is not None:
                self._leave_out("distributed", PROCESSES_OF_ITS_OWN)

    def _read_entry_point(self) -> None:
        """Read command, source and arguments as SageMaker's training toolkit has them."""
        entry_point = self._take("container_entry_point")
        script = self._source_and_script()
        if entry_point:
            words = [*_words(entry_point), *_words(self._take("container_arguments"))]
            self.fields |= {"command": words, "arguments": "none"}
            if script is not None:
                self._leave_out("entry_point", "container_entry_point runs in its place", replaced=True)
            return
        if script is None:
            # Without code of the user's, the image's own entry point runs.
            if self._is_computed("entry_point", "container_entry_point"):
                self._leave_out("command", _NO_COMMAND)
            return
        self.fields["command"] = command_of_script(script)
        if not script.endswith((".py", ".sh")):
            self._leave_out("entry_point", f"{script} is no .py or .sh file: write the command that runs it")
        if self._trainer == "TensorFlow" and (model_directory := self._take("model_dir")) is not False:
            where = "with an S3 prefix" if model_directory is None else model_directory
            why = f"the SDK passes --model_dir {where}: write that hyperparameter if the script needs it"
            self._leave_out("model_dir", why)
        distribution = self._take_mapping("distribution", "distributions")
        for kind, settings in distribution.items():
            if isinstance(settings, dict) and settings.get("enabled") is False:
                continue
            known = isinstance(settings, dict) and len(distribution) == 1
            if known and kind in _BY_TORCHRUN and self._trainer in ("PyTorch", "HuggingFace"):
                self.fields["distributed"] = distributed_of(TORCHRUN, None)
                if kind != "torch_distributed":
                    self._leave_out(f"distribution.{kind}", _NOT_BY_MPIRUN, replaced=True)
                if settings.get("custom_mpi_options"):
                    why = "mpirun does not start the ranks: write variables of its -x into environment"
                    self._leave_out(f"distribution.{kind}.custom_mpi_options", why)
            elif known and kind == "mpi":
                self._read_mpi(script, settings.get("processes_per_host", 1))
                if settings.get("custom_mpi_options"):
                    self._leave_out("distribution.mpi.custom_mpi_options", _NO_MPI_OPTIONS)
            else:
                self._leave_out(f"distribution.{kind}", PROCESSES_OF_ITS_OWN)

    def _source_and_script(self) -> str | None:
        """Read the source. Return the place of the script in it, None where there is none."""
        given = self._take("entry_point")
        script = None if given is None else str(given)
        source = self._take("source_dir")
        repository = self._take_mapping("git_config")
        if "repo" in repository:
            self._read_git(repository)
            if source is not None:
                why = f"the command runs in the repository's root; its requirements.txt is not installed from {source}"
                self._leave_out("source_dir", why)
                script = script and posixpath.join(str(source), script)
        elif self._is_computed("git_config", "git_config.repo", "source_dir"):
            if source is not None:
                self._leave_out("source_dir", "the repository that it is in is computed: write source")
        elif source is not None:
            self.fields["source"] = source
        elif script is not None:
            folder, script = posixpath.split(script)
            self.fields |= {"source": folder or ".", "install": "none"}
            why = "the SDK sends this file alone, a launch the directory that it is in"
            self._leave_out("entry_point", why, replaced=True)
        return script

    def _read_git(self, repository: Mapping[str, Any]) -> None:
        """Read the repository of a source, without the login that may stand in its URL."""
        commit, branch = repository.get("commit"), repository.get("branch")
        url = re.sub("^(https?://)[^/@]*@", r"\1", str(repository["repo"]))
        if url != repository["repo"]:
            self.left_out.append(LeftOut(field="git_config.repo", why=NEVER_TAKEN[_CREDENTIALS[0]].why))
        pinned = {"commit": commit} if commit is not None else {} if branch is None else {"branch": branch}
        self.fields["source"] = {"git": url, **pinned}
        if not pinned:
            self._leave_out("git_config", "it names no commit: write one")
        elif commit is not None and not re.fullmatch("[0-9a-f]{40}", str(commit)):
            self._leave_out("git_config.commit", "write it in full, with 40 hex digits")
        for name in sorted({*repository} - {"repo", "commit", "branch"}):
            self.left_out.append(meaning_of(f"git_config.{name}", NEVER_TAKEN))

    def _read_mpi(self, script: str, processes: Any) -> None:
        self.fields |= {"command": mpi_command_of_script(script), "distributed": distributed_of(MPI, processes)}

    def _read_hyperparameters(self) -> None:
        given = self._take("hyperparameters")
        if isinstance(given, str):
            self._leave_out("hyperparameters", f"they are in the file {given}: write them into the job file")
        elif given is not None and not isinstance(given, dict):
            self._leave_out("hyperparameters", _NO_MAPPING)
        elif given:
            self.fields["hyperparameters"] = {name: self._text(value) for name, value in given.items()}

    def _text(self, value: Any) -> Any:
        """Return a hyperparameter as the SDK hands it over. A job file takes texts, numbers and booleans alone."""
        if self._trainer == "Estimator" and "source_dir" not in self._values:
            return value if isinstance(value, str | int | float) and not isinstance(value, bool) else str(value)
        if isinstance(value, str) and self._trainer != "ModelTrainer":
            return text_that_stays(value)
        return json.dumps(value) if value is None or isinstance(value, list | dict) else value

    def _channels(self) -> Iterator[dict[str, Any]]:
        mode = self._take(*_INPUT_MODES) or "File"
        for argument in ("input_data_config", "inputs"):
            given = self._take(argument)
            if isinstance(given, str) or (isinstance(given, dict) and {"s3_data", "file_system_id"} & {*given}):
                given = {"training": given}
            if isinstance(given, dict):
                given = [{"channel_name": name, "data_source": data} for name, data in given.items()]
            if not isinstance(given, list | None):
                self._leave_out(argument, _NO_LIST)
            for each in given if isinstance(given, list) else ():
                members = _channel_members(each)
                name = members.pop("channel_name", None)
                written = {_member(key): key for key in members}
                yield from channel_of(
                    name,
                    {_member(key): value for key, value in members.items()},
                    self.left_out,
                    path=f"inputs.{name}",
                    mode=mode,
                    instances=self._instance_count,
                    written=written.__getitem__,
                )


def _channel_members(channel: Any) -> dict[str, Any]:
    """Return the arguments of a channel and of its source of data in one mapping."""
    members = dict(channel) if isinstance(channel, dict) else {}
    for name in ("data_source", "s3_data_source", "file_system_data_source"):
        data = members.pop(name, None)
        members |= {"s3_uri": data} if isinstance(data, str) else data if isinstance(data, dict) else {}
    return members


def _member(name: str) -> str:
    """Return the name of an argument in CreateTrainingJob."""
    return _INPUT_MEMBERS.get(name) or "".join(word.capitalize() for word in name.split("_"))


def _tags(tags: Any, left_out: list[LeftOut]) -> Iterator[tuple[str, str]]:
    if isinstance(tags, dict):
        yield from tags.items()
        return
    if not isinstance(tags, list | None):
        left_out.append(LeftOut(field="tags", why=_NO_LIST))
    for tag in tags if isinstance(tags, list) else ():
        lowered = {str(key).lower(): value for key, value in tag.items()} if isinstance(tag, dict) else {}
        if {"key", "value"} <= set(lowered):
            yield lowered["key"], lowered["value"]
        else:
            left_out.append(LeftOut(field="tags", why="one of them has no key and value"))


def _words(given: Any) -> list[str]:
    return [str(each) for each in given] if isinstance(given, list) else [] if given is None else [str(given)]


def _shell_command(command: str, arguments: list[str]) -> list[str] | str:
    """Return the words of a command that the SDK hands to a shell. As a block where it needs one."""
    # The SDK splits the text and joins its words by one space.
    words = command.split()
    if not _SYNTAX.search(command) and _OF_BASH.isdisjoint(words[:1]):
        return [*words, *arguments]
    line = " ".join([*words, *map(shlex.quote, arguments)])
    # The SDK's shell ends at the first command that fails, too. Unlike it, a block sees a failure before a pipe.
    return f"set +u  # as the SageMaker SDK runs it\n{line}\n"
