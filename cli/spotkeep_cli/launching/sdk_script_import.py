"""Reads a job document out of the arguments that the SageMaker SDK's trainers take. Pure: nothing runs.

Of a script, what stands in the call is taken: literals, arithmetic of them, names that it assigns once. The rest is
named.

Source: https://sagemaker.readthedocs.io/en/stable/ (ModelTrainer, version 3; Estimator and the frameworks, version 2)
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pydantic_core import PydanticCustomError

from spotkeep_cli.launching.training_job_import import (
    SPOTKEEPS_OWN,
    ImportedJob,
    LeftOut,
    command_of_script,
    metrics_of,
    name_of_job,
)
from spotkeep_jobs.document.reading import printable_name
from spotkeep_jobs.document.values import read_framework

_FRAMEWORKS: Final = {
    "PyTorch": "pytorch", "TensorFlow": "tensorflow", "HuggingFace": "huggingface", "XGBoost": "xgboost",
    "SKLearn": "sklearn",
}  # fmt: skip
_TRAINERS: Final = frozenset({"ModelTrainer", "Estimator", *_FRAMEWORKS})
_CONFIGURATIONS: Final = frozenset(
    {"SourceCode", "Compute", "StoppingCondition", "CheckpointConfig", "InputData", "OutputDataConfig", "Tag",
     "Channel", "DataSource", "S3DataSource", "Networking", "Torchrun", "MPI"}
)  # fmt: skip
_FIELDS: Final = {
    "base_job_name": "name",
    "training_image": "image", "image_uri": "image",
    "source_code.source_dir": "source", "source_dir": "source",
    "source_code.requirements": "install",
    "compute.instance_type": "instance_type", "instance_type": "instance_type",
    "compute.instance_count": "instance_count", "instance_count": "instance_count",
    "compute.volume_size_in_gb": "volume_size_gb", "volume_size": "volume_size_gb",
    "compute.keep_alive_period_in_seconds": "keep_alive", "keep_alive_period_in_seconds": "keep_alive",
    "stopping_condition.max_runtime_in_seconds": "max_run", "max_run": "max_run",
    "hyperparameters": "hyperparameters", "environment": "environment", "enable_remote_debug": "debug",
}  # fmt: skip
"""By its path in the script's call, which field of the job document it is."""
_SPOT: Final = ("compute.enable_managed_spot_training", "use_spot_instances")
_LONGEST_WAITS: Final = ("stopping_condition.max_wait_time_in_seconds", "max_wait")
_SCRIPTS: Final = ("source_code.entry_script", "entry_point")
_SOURCES: Final = ("source_code.source_dir", "source_dir")
_INSTANCES: Final = ("compute.instance_count", "instance_count")
_COMMAND: Final = "source_code.command"
_PROCESSES: Final = "distributed.process_count_per_node"
_CHECKPOINTS: Final = "checkpoint_config.local_path"
_CHECKPOINT_DIRECTORY: Final = "/opt/ml/checkpoints"
_NEEDS_A_SHELL: Final = re.compile(r"^\s*\w+=|[^\w@%+=:,./\s-]")
_S3_PREFIX: Final = {"s3_data_type": "S3Prefix", "s3_data_distribution_type": "FullyReplicated"}
"""What a source of data says of itself that is the prefix of a channel, and all of it on each instance."""
_INPUT_MODES: Final = ("training_input_mode", "input_mode")
_OWN: Final = {
    "role": SPOTKEEPS_OWN["RoleArn"],
    "output_path": SPOTKEEPS_OWN["OutputDataConfig"],
    "output_data_config": SPOTKEEPS_OWN["OutputDataConfig"],
    "input_s3_key_prefix": "the source goes to the deployment's bucket",
    "networking": SPOTKEEPS_OWN["VpcConfig"],
    "subnets": SPOTKEEPS_OWN["VpcConfig"],
    "security_group_ids": SPOTKEEPS_OWN["VpcConfig"],
    "checkpoint_config": SPOTKEEPS_OWN["CheckpointConfig"],
    "checkpoint_s3_uri": SPOTKEEPS_OWN["CheckpointConfig"],
}
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
}  # fmt: skip
_LARGEST: Final = 10**12
"""Above it nothing is multiplied: a script may hold `"a" * 10**12`."""


_LARGEST_ARGUMENT: Final = 100_000
"""How many values and characters an argument of the trainer comes to at most, all that it is put together from."""


class _ComputedError(ValueError):
    """A value that the script computes when it runs."""


class _TooLargeError(ValueError):
    """An argument comes to more than is read."""


def import_script(text: str, *, name: str) -> ImportedJob:
    """Read a script.

    Args:
        text: The script.
        name: What the job is called where the script has no `base_job_name`.

    Raises:
        ValueError: It is not Python, or holds not exactly one trainer.
    """
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    trainers = [call for call in calls if _called(call) in _TRAINERS]
    if len(trainers) != 1:
        lines = ", ".join(str(call.lineno) for call in trainers) or "none"
        raise ValueError(f"one ModelTrainer or estimator is wanted, and it has {len(trainers)}; lines: {lines}")
    reading = _Reading(_assigned_once(tree))
    for path, node in _arguments(trainers[0]):
        reading.take(path, node)
    for call in calls:
        if _called(call) in ("train", "fit") and isinstance(call.func, ast.Attribute):
            for node in call.args[:1]:
                reading.take("inputs", node)
            for path, node in _arguments(call):
                if path in ("inputs", "input_data_config"):
                    reading.take(path, node)
    framework = _FRAMEWORKS.get(_called(trainers[0]))
    return import_arguments(reading.values, reading.left_out, framework=framework, name=name)


def import_arguments(
    values: Mapping[str, Any], left_out: list[LeftOut], *, framework: str | None = None, name: str
) -> ImportedJob:
    """Read the arguments of a trainer.

    Args:
        values: Each plain value by its path in the call, `compute.instance_type`; the name of its class for each
            configuration.
        left_out: What is left out already.
        framework: The framework that the estimator's class stands for; None where it stands for none.
        name: What the job is called where there is no `base_job_name`.
    """
    read = {*_FIELDS, *_SPOT, *_LONGEST_WAITS, *_SCRIPTS, *_INPUT_MODES, _COMMAND, _PROCESSES, _CHECKPOINTS}
    read |= {"inputs", "input_data_config", "tags", "metric_definitions", "framework_version", "source_code", "compute",
        "stopping_condition", "source_code.args", "distributed"}  # fmt: skip
    left_out = [*left_out]
    fields: dict[str, Any] = {"name": name}
    fields |= {field: values[path] for path, field in _FIELDS.items() if values.get(path) is not None}
    fields["name"] = name_of_job(str(fields["name"]))
    for path, value in values.items():
        if path in _OWN:
            left_out.append(LeftOut(field=path, why=_OWN[path], replaced=True))
        elif (path.startswith("networking.enable_") and value) or (
            path not in read and path.partition(".")[0] not in _OWN
        ):
            left_out.append(LeftOut(field=path, why="a job file has no field for it"))
    if str(values.get(_CHECKPOINTS, _CHECKPOINT_DIRECTORY)).rstrip("/") != _CHECKPOINT_DIRECTORY:
        left_out.append(LeftOut(field=_CHECKPOINTS, why=f"checkpoints are in {_CHECKPOINT_DIRECTORY}"))
    spot = bool(_first(values, _SPOT))
    fields["capacity"] = "spot" if spot else "on-demand"
    fields["checkpoints"] = bool(values.get("checkpoint_config") or values.get("checkpoint_s3_uri"))
    longest = _first(values, _LONGEST_WAITS) if spot else None
    if longest is not None and longest == fields.get("max_run"):
        path = next(path for path in _LONGEST_WAITS if values.get(path) is not None)
        left_out.append(LeftOut(field=path, why="it leaves no time to wait", replaced=True))
    elif longest is not None:
        fields["max_wait"] = longest
    fields |= _command(values, left_out)
    if "source_code" in values:
        fields.setdefault("install", "none")  # Without `requirements` the SDK's version 3 installs nothing.
    if framework is not None and "image" not in fields:
        wanted = "-".join([framework, *([str(values["framework_version"])] if values.get("framework_version") else [])])
        try:
            fields["framework"] = read_framework(wanted)
        except PydanticCustomError as error:
            left_out.append(LeftOut(field="framework_version", why=f"{printable_name(wanted)} {error.message()}"))
    fields["channels"] = list(_channels(values, left_out))
    fields["tags"] = dict(_tags(values.get("tags"), left_out))
    definitions = values.get("metric_definitions")
    given = definitions if isinstance(definitions, list) else ()
    fields["metrics"] = metrics_of(given, left_out, path="metric_definitions")
    return ImportedJob.of(fields, left_out)


def _command(values: Mapping[str, Any], left_out: list[LeftOut]) -> dict[str, Any]:
    """Return command, source and arguments as the SDK's own driver in the container has them."""
    script, command = _first(values, _SCRIPTS), values.get(_COMMAND)
    if command is not None:
        # The SDK hands it to a shell, and no hyperparameters with it.
        given = values.get("source_code.args")
        arguments = [str(each) for each in given] if isinstance(given, list) else []
        words = [*str(command).split(), *arguments]
        if _NEEDS_A_SHELL.search(str(command)):
            # The SDK's shell ends at the first command that fails. Unlike it, this one sees a failure before a pipe.
            text = " ".join([*str(command).split(), shlex.join(arguments)]).rstrip()
            words = ["bash", "-eo", "pipefail", "-c", text]
        return {"command": words, "arguments": "none"}
    if script is None:
        # Without code of the user's, the image's own entry point runs.
        if "source_code" in values or any(each.field in (*_SCRIPTS, _COMMAND, "source_code") for each in left_out):
            left_out.append(LeftOut(field="command", why="what trains is computed or missing: write a command"))
        return {}
    # The version 3 hands over values as JSON, the estimators of version 2 as SageMaker's toolkit does.
    form = {"arguments": "json"} if "source_code" in values else {}
    words = command_of_script(str(script))
    if values.get("source_code.args"):
        left_out.append(LeftOut(field="source_code.args", why="the SDK hands it to a command alone", replaced=True))
    if values.get("distributed") == "Torchrun" and (_first(values, _INSTANCES) or 1) == 1:
        words = ["torchrun", "--standalone", f"--nproc-per-node={values.get(_PROCESSES) or 'auto'}", str(script)]
    elif values.get("distributed"):
        why = "only Torchrun on one instance is imported: give the command that starts the processes"
        left_out.append(LeftOut(field="distributed", why=why))
    return {"command": words, "source": _first(values, _SOURCES) or ".", **form}


def _channels(values: Mapping[str, Any], left_out: list[LeftOut]) -> Iterator[dict[str, Any]]:
    given = values.get("inputs", values.get("input_data_config"))
    if isinstance(given, str):
        given = {"training": given}
    if isinstance(given, dict):
        given = [{"channel_name": name, "data_source": data} for name, data in given.items()]
    mode = _first(values, _INPUT_MODES) or "File"
    for each in given if isinstance(given, list) else ():
        channel = each if isinstance(each, dict) else {}
        name, uri = channel.get("channel_name"), _s3_prefix(channel.get("data_source"))
        if uri is None:
            left_out.append(LeftOut(field=f"inputs.{name}", why="a channel is an S3 prefix, s3://bucket/prefix/"))
            continue
        left_out += [
            LeftOut(field=f"inputs.{name}.{key}", why="a job file has no field for it")
            for key in sorted(set(channel) - {"channel_name", "data_source", "input_mode", "content_type"})
        ]
        content = {"content_type": channel["content_type"]} if "content_type" in channel else {}
        yield {"name": name, "uri": uri, "input_mode": channel.get("input_mode", mode), **content}


def _s3_prefix(data: Any) -> str | None:
    """Return the S3 prefix that a source of data is; None for one that is more, or something else."""
    if isinstance(data, dict):
        data = data.get("s3_data_source", data)
    if isinstance(data, dict):
        plain = all(_S3_PREFIX.get(key) == value for key, value in data.items() if key != "s3_uri")
        data = data.get("s3_uri") if plain else None
    return data if isinstance(data, str) and data.startswith("s3://") else None


def _tags(tags: Any, left_out: list[LeftOut]) -> Iterator[tuple[str, str]]:
    if isinstance(tags, dict):
        yield from tags.items()
        return
    for tag in tags if isinstance(tags, list) else ():
        lowered = {str(key).lower(): value for key, value in tag.items()} if isinstance(tag, dict) else {}
        if {"key", "value"} <= set(lowered):
            yield lowered["key"], lowered["value"]
        else:
            left_out.append(LeftOut(field="tags", why="one of them has no key and value"))


def _first(values: Mapping[str, Any], paths: tuple[str, ...]) -> Any:
    return next((values[path] for path in paths if values.get(path) is not None), None)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _arguments(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, keyword.value


def _assigned_once(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what each name stands for that the script assigns in one place, wherever that is."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for inner in ast.walk(target):
                    if isinstance(inner, ast.Name):
                        found.setdefault(inner.id, []).append(node.value if inner is target else None)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.NamedExpr) and isinstance(
            node.target, ast.Name
        ):
            found.setdefault(node.target.id, []).append(node.value if isinstance(node, ast.AnnAssign) else None)
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(None)
    return {name: values[0] for name, values in found.items() if len(values) == 1 and values[0] is not None}


class _Reading:
    """Evaluates the arguments of a script's calls.

    Names may stand for names that stand for names: what an argument comes to is bounded, not what the script is long.

    Attributes:
        values: What was read, by the path of its argument.
        left_out: What the script computes.
    """

    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.values = dict[str, Any]()
        self.left_out = list[LeftOut]()
        self._names = names
        self._open = set[str]()
        self._size_left = 0

    def take(self, path: str, node: ast.expr) -> None:
        """Evaluate an argument, and the arguments of a configuration object in it, each by its path."""
        self._size_left = _LARGEST_ARGUMENT
        before = dict(self.values), [*self.left_out]
        try:
            self._take(path, node)
        except (_TooLargeError, RecursionError):
            self.values, self.left_out = before
            self._leave_out(path, node)

    def _take(self, path: str, node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            try:
                with self._opened(node) as meant:
                    self._take(path, meant)
            except _ComputedError:
                self._leave_out(path, node)
        elif isinstance(node, ast.Call) and _called(node) in _CONFIGURATIONS:
            self._add_size(1)
            self.values[path] = _called(node)
            for inner, argument in _arguments(node):
                self._take(f"{path}.{inner}", argument)
        else:
            try:
                self.values[path] = self._value(node)
            except (_ComputedError, RecursionError):
                self._leave_out(path, node)

    def _leave_out(self, path: str, node: ast.expr) -> None:
        if path in _OWN:
            self.values[path] = True
        else:
            self.left_out.append(LeftOut(field=path, why=f"the script computes it: {ast.unparse(node)[:80]!r}"))

    @contextmanager
    def _opened(self, name: ast.Name) -> Iterator[ast.expr]:
        """Give what a name stands for; within, the name stands for nothing, so one that stands for itself ends."""
        if name.id not in self._names or name.id in self._open:
            raise _ComputedError
        self._open.add(name.id)
        try:
            yield self._names[name.id]
        finally:
            self._open.remove(name.id)

    def _add_size(self, size: int) -> None:
        self._size_left -= size
        if self._size_left < 0:
            raise _TooLargeError

    def _value(self, node: ast.expr) -> Any:
        self._add_size(1)
        match node:
            case ast.Constant(value=str() as text):
                return self._sized(text)
            case ast.Constant(value=int() | float() | None as value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item) for item in items]
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {self._text(key): self._value(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -_number(self._value(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                first, second = self._value(left), self._value(right)
                if isinstance(first, str) and isinstance(second, str) and isinstance(op, ast.Add):
                    return self._sized(first + second)
                return _OPERATORS[type(op)](_number(first), _number(second))
            case ast.JoinedStr(values=parts):
                return self._sized("".join(self._text(part) for part in parts))
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self._text(value)
            case ast.Name():
                with self._opened(node) as meant:
                    return self._value(meant)
            case ast.Call() if _called(node) in _CONFIGURATIONS:
                return {path: self._value(argument) for path, argument in _arguments(node)}
        raise _ComputedError

    def _text(self, node: ast.expr) -> str:
        value = self._value(node)
        if not isinstance(value, str | int | float):
            raise _ComputedError
        return str(value)

    def _sized(self, text: str) -> str:
        self._add_size(len(text))
        return text


def _number(value: Any) -> int | float:
    if not isinstance(value, int | float) or abs(value) > _LARGEST:
        raise _ComputedError
    return value
