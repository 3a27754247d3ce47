"""Reads a job document out of a script that starts a training job. Pure. Nothing runs.

The script uses the SageMaker SDK, or calls CreateTrainingJob. Literals in the calls are taken, arithmetic of them, and
names that the script assigns once. The rest is named.

Source: https://sagemaker.readthedocs.io/en/stable/ (ModelTrainer, version 3, and Estimator and the frameworks, version
2)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from spotkeep_cli.importing.script_values import (
    Computed,
    Configuration,
    ScriptValues,
    called,
    computed_in,
    imported_names,
)
from spotkeep_cli.importing.sdk_arguments import NEVER_TAKEN, import_arguments
from spotkeep_cli.importing.training_job import MEANINGS, ImportedJob, LeftOut, import_request, meaning_of

_TRAINERS: Final[Mapping[str, tuple[str, ...]]] = {
    "ModelTrainer": (),
    "Estimator": ("image_uri", "role", "instance_count", "instance_type"),
    "HuggingFace": ("py_version", "entry_point", "transformers_version", "tensorflow_version", "pytorch_version"),
    "TensorFlow": (),
    **dict.fromkeys(("PyTorch", "XGBoost", "SKLearn", "MXNet", "Chainer", "RLEstimator"), ("entry_point",)),
}
"""Each class that is read, with those positional arguments that versions 1 and 2 of the SDK have in common."""
_INPUT: Final = ("s3_data", "distribution", "compression", "content_type", "record_wrapping", "s3_data_type")
_FILE_SYSTEM: Final = ("file_system_id", "file_system_type", "directory_path", "file_system_access_mode")
_CONFIGURATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("SourceCode", "Compute", "StoppingCondition", "CheckpointConfig", "InputData", "OutputDataConfig", "Tag",
         "Channel", "DataSource", "S3DataSource", "FileSystemDataSource", "DatasetSource", "Networking", "Torchrun",
         "MPI", "SMP", "MetricDefinition", "RemoteDebugConfig", "RetryStrategy", "InfraCheckConfig",
         "SessionChainingConfig", "TensorBoardOutputConfig", "TrainingImageConfig", "TrainingRepositoryAuthConfig",
         "InstancePreference", "InstancePlacementConfig", "PlacementSpecification", "ModelPackageConfig",
         "HubAccessConfig", "ModelAccessConfig", "ResourceConfig", "VpcConfig", "AlgorithmSpecification",
         "TrainingJobCompute", "MlflowConfig", "ExperimentConfig", "ProfilerConfig", "DebugHookConfig"),
        (),
    ),
    "InstanceGroup": ("instance_group_name", "instance_type", "instance_count"),
    "ShuffleConfig": ("seed",),
    "TrainingInput": _INPUT,
    "s3_input": _INPUT,
    "FileSystemInput": _FILE_SYSTEM,
    "retrieve": ("framework", "region", "version", "py_version", "instance_type", "accelerator_type", "image_scope"),
}  # fmt: skip
"""Each class that is read, with its positional arguments. `retrieve` is that of `sagemaker.image_uris`."""
_ALGORITHMS: Final = {
    "KMeans": "kmeans", "PCA": "pca", "LinearLearner": "linear-learner", "LDA": "lda", "NTM": "ntm", "KNN": "knn",
    "FactorizationMachines": "factorization-machines", "IPInsights": "ipinsights", "Object2Vec": "object2vec",
    "RandomCutForest": "randomcutforest",
}  # fmt: skip
_NOT_READ: Final[Mapping[str, str]] = {
    **{
        name: f"it is a built-in algorithm: write algorithm: {algorithm}, its hyperparameters and channels"
        for name, algorithm in _ALGORITHMS.items()
    },
    "AlgorithmEstimator": "an algorithm of AWS Marketplace has no field in a job file",
    "JumpStartEstimator": "image and script of a JumpStart model do not stand in the call",
    "from_jumpstart_config": "image and script of a JumpStart model do not stand in the call",
    "from_recipe": "image and script of a recipe do not stand in the call",
    "attach": "it names a training job: spotkeep import NAME reads that",
    **dict.fromkeys(
        ("SFTTrainer", "DPOTrainer", "CPTTrainer", "RLVRTrainer", "RLAIFTrainer", "MultiTurnRLTrainer"),
        "its image and script do not stand in the call",
    ),
    "SpotTrainer": "it launches runs itself, with the fields of a job file",
    "RemoteExecutor": "a remote function has no script: write one",
}
"""Other ways of the SDK to start training jobs, and the next step for each."""
_BESIDE: Final[Mapping[str, str]] = {
    "HyperparameterTuner": "a tuner makes many jobs of one: write sweep for its trials",
    "TrainingStep": "a pipeline starts the job: spotkeep launch does it once",
    "TuningStep": "a pipeline starts the jobs: write sweep for its trials",
    "PipelineSession": "a pipeline starts the job: spotkeep launch does it once",
    "TrainingQueue": "a queue of AWS Batch starts the job: write queue",
    "LocalSession": "the job runs on this machine: use spotkeep rehearse",
}
"""Calls that change the number, the time or the place of the trainer's job starts."""

_COLLECTIONS: Final = frozenset(
    {"hyperparameters", "environment", "tags", "metric_definitions", "inputs", "input_data_config", "git_config"}
)
"""Arguments of many entries. Each entry that the script computes is named, and the others are read."""
_SDK_3_DEFAULTS: Final = {
    "compute.instance_type": "ml.m5.xlarge", "compute.instance_count": 1, "compute.volume_size_in_gb": 30,
    "stopping_condition.max_runtime_in_seconds": 3_600,
}  # fmt: skip
"""The values of a ModelTrainer where its script gives none. Source: `sagemaker/train/defaults.py`."""

_REQUESTS: Final = frozenset({"create_training_job", "create"})
"""The calls of boto3 and of `TrainingJob` of sagemaker-core that have a request as their arguments."""
_STARTS: Final = {
    "fit": ("inputs", "wait", "logs", "job_name", "experiment_config"),
    "train": ("input_data_config", "wait", "logs", "dry_run"),
}
"""The methods that start the job of a trainer, with their positional arguments."""
_DATA: Final = frozenset({"inputs", "input_data_config"})
_CHAINED: Final = frozenset(
    {"checkpoint_config", "metric_definitions", "remote_debug_config", "tensorboard_output_config", "retry_strategy",
     "infra_check_config", "session_chaining_config"}
)  # fmt: skip
"""The settings of the methods `with_...` of a ModelTrainer."""
_LONGEST_PATH: Final = 50
"""The most calls and attributes that are followed. `trainer.with_a().with_b()` has five."""
_MOST_NAMED: Final = 10
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_CHOICES: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case)
"""Statements whose bodies run only in some cases."""
_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def import_script(text: str, *, name: str) -> ImportedJob:
    """Read a script of the SageMaker SDK, or one that calls CreateTrainingJob.

    Args:
        text: The script.
        name: The job's name where the script gives none.

    Raises:
        ValueError: It is not Python, or holds not exactly one trainer or request.
    """
    tree = ast.parse(text)
    names = imported_names(tree)
    calls = sorted((node for node in ast.walk(tree) if isinstance(node, ast.Call)), key=lambda call: call.lineno)
    trainer = _only_trainer(tree, calls, names)
    kind = called(trainer, names)
    reading = _ScriptReading(ScriptValues(tree, positional=_CONFIGURATIONS, before=trainer.lineno))
    reading.left_out += [*_beside(calls, names), *_repeated(tree, trainer, kind)]
    if kind in _REQUESTS:
        request = reading.request(trainer)
        try:
            job = import_request(request, name=name)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{kind} in line {trainer.lineno} has no request ({type(error).__name__}: {error})"
            ) from error
        return ImportedJob.of(job.fields, [*reading.left_out, *job.left_out])
    reading.take_arguments(trainer, positional=_TRAINERS[kind])
    reading.take_later(tree, calls, trainer)
    if kind == "ModelTrainer":
        reading.add_sdk_3_defaults()
    return import_arguments(reading.values, reading.left_out, trainer=kind, name=name)


def _only_trainer(tree: ast.Module, calls: Sequence[ast.Call], names: Mapping[str, str]) -> ast.Call:
    found = [call for call in calls if called(call, names) in _TRAINERS or _is_request(call)]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(f"{called(call, names)} in line {call.lineno}" for call in found[:_MOST_NAMED])
        raise ValueError(f"one job file is one job, and it has {len(found)} trainers: {places}")
    ours = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and "sagemaker" in (node.module or "").split(".")
        for alias in node.names
    }
    not_read = [
        f"{called(call, names)} in line {call.lineno} is not read: {_NOT_READ[called(call, names)]}"
        for call in calls
        if called(call, names) in _NOT_READ and {"sagemaker", *ours} & {*_beginnings(_path_of(call.func))}
    ]
    raise ValueError(
        ". ".join(not_read[:_MOST_NAMED]) or "it has no ModelTrainer, no estimator and no create_training_job"
    )


def _is_request(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="create_training_job"):
            return True
        case ast.Attribute(attr="create", value=ast.Name(id="TrainingJob") | ast.Attribute(attr="TrainingJob")):
            return True
    return False


def _beside(calls: Sequence[ast.Call], names: Mapping[str, str]) -> Iterator[LeftOut]:
    for call in calls:
        if called(call, names) in _BESIDE:
            kind = called(call, names)
            yield LeftOut(field=f"{kind} (line {call.lineno})", why=_BESIDE[kind])


def _repeated(tree: ast.Module, call: ast.Call, kind: str) -> Iterator[LeftOut]:
    around = {inner: node for node in ast.walk(tree) for inner in ast.iter_child_nodes(node)}
    node: ast.AST = call
    while node in around and not isinstance(node, _LOOPS):
        node = around[node]
    if isinstance(node, _LOOPS):
        why = "it stands in a loop, and one job file is one job: write sweep, or launch the file several times"
        yield LeftOut(field=f"{kind} (line {call.lineno})", why=why)


def _why_computed(computed: Computed) -> str:
    return f"the script computes it: {computed.text!r}"


class _ScriptReading:
    """Gathers the arguments of a script's calls.

    Attributes:
        values: The values read, by the argument's path.
        left_out: Values that the script computes, and calls that it makes more than once.
    """

    def __init__(self, script: ScriptValues) -> None:
        self.values = dict[str, Any]()
        self.left_out = list[LeftOut]()
        self._script = script

    def take_arguments(self, call: ast.Call, *, positional: tuple[str, ...]) -> None:
        """Take the arguments of the trainer."""
        for path, value in self._script.arguments(call, positional=positional).items():
            self._add(path, value)

    def take_later(self, tree: ast.Module, calls: Sequence[ast.Call], trainer: ast.Call) -> None:
        """Take later settings of the trainer, by `with_...`, by attributes, or in the call that starts it."""
        variables = _variables_of(tree, trainer)
        methods = [(call, call.func) for call in calls if isinstance(call.func, ast.Attribute)]
        starts = [(call, method) for call, method in methods if method.attr in _STARTS]
        own = [call for call, method in starts if _is_of(method.value, trainer, variables)]
        own = own or [call for call, _ in starts]
        order = _Order(tree, trainer, start=own[0] if own else None)
        for call, called_of in methods:
            method, chained = called_of.attr, called_of.attr.removeprefix("with_")
            if chained in _CHAINED or (chained != method and _is_of(called_of.value, trainer, variables)):
                if (why := order.why_too_late(call)) is None:
                    self._take_chained(call, chained)
                else:
                    self.left_out.append(LeftOut(field=chained, why=why))
            elif method == "set_hyperparameters":
                given = self._script.arguments(call, positional=())
                if (why := order.why_not_its(call)) is None:
                    self._merge("hyperparameters", given)
                else:
                    self.left_out += [LeftOut(field=f"hyperparameters.{name}", why=why) for name in given]
        for place, call in enumerate(own):
            self._take_start(tree, call, is_first=place == 0)
        for node in ast.walk(tree):
            match node:
                case ast.Assign() | ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                    self._take_attributes(node, variables, order)
                case ast.Call(func=ast.Name(id="setattr"), args=[target, name, _]) if ast.unparse(target) in variables:
                    field = name.value if isinstance(name, ast.Constant) else ast.unparse(name)
                    why = f"the script sets it by setattr, in line {node.lineno}"
                    self.left_out.append(LeftOut(field=str(field), why=why))

    def add_sdk_3_defaults(self) -> None:
        """Add the defaults of a ModelTrainer where its script gives no value."""
        computed = {each.field for each in self.left_out}
        if any(field.startswith("**") for field in computed):
            return  # It may say so there.
        several = {"compute.instance_groups", "compute.instance_preferences"} & {*self.values, *computed}
        for path, value in _SDK_3_DEFAULTS.items():
            configuration, _, last = path.partition(".")
            if {path, configuration} & computed or (several and last != "volume_size_in_gb"):
                continue
            # A StoppingCondition without its time sends none, and AWS's own is a day.
            if configuration == "compute" or configuration not in self.values or path in self.values:
                self.values[path] = value if self.values.get(path) is None else self.values[path]

    def request(self, call: ast.Call) -> dict[str, Any]:
        """Return the request that a call of CreateTrainingJob sends, without the values that the script computes."""
        given = self._script.arguments(call, positional=())
        if isinstance(call.func, ast.Attribute) and call.func.attr == "create":
            given = _as_request(Configuration("TrainingJob", given))
        known = self._without_computed(given, "")
        return known if isinstance(known, dict) else {}

    def _without_computed(self, value: Any, path: str) -> Any:
        if isinstance(value, dict):
            pruned = {name: self._without_computed(each, f"{path}.{name}".strip(".")) for name, each in value.items()}
            return {name: each for name, each in pruned.items() if not isinstance(each, Computed)}
        if isinstance(value, list) and not any(computed_in(each) for each in value if not isinstance(each, dict)):
            return [self._without_computed(each, f"{path}.{place}") for place, each in enumerate(value)]
        if (computed := computed_in(value)) is not None:
            meaning = meaning_of(path)
            known = meaning.field in MEANINGS and meaning.replaced
            self.left_out.append(meaning if known else LeftOut(field=path, why=_why_computed(computed)))
            return computed
        return value

    def _add(self, path: str, value: Any) -> None:
        """Add an argument, and the arguments of a configuration object in it, each by its path."""
        if isinstance(value, Configuration) and path not in _COLLECTIONS:
            self.values[path] = value.kind
            for name, inner in value.items():
                self._add(f"{path}.{name}", inner)
        elif path in _COLLECTIONS and isinstance(value, dict | list):
            self.values[path] = self._entries(path, value)
        elif (computed := computed_in(value)) is None:
            self.values[path] = value
        elif computed.text.endswith("Mode.SAGEMAKER_TRAINING_JOB"):
            return
        elif meaning_of(path, NEVER_TAKEN).field in NEVER_TAKEN:
            self.values[path] = True
        else:
            self.left_out.append(LeftOut(field=path, why=_why_computed(computed)))

    def _entries(self, path: str, entries: dict[str, Any] | list[Any]) -> Any:
        """Return the entries that the script does not compute. The others are left out by name."""
        if isinstance(entries, Configuration) and computed_in(entries) is None:
            return entries
        items = [*entries.items()] if isinstance(entries, dict) else [(_label(each, place), each)
            for place, each in enumerate(entries)]  # fmt: skip
        kept = []
        for name, value in items:
            if (computed := computed_in(value)) is None:
                kept.append((name, value))
            elif f"{path}.{name}" in NEVER_TAKEN:
                kept.append((name, True))
            else:
                self.left_out.append(LeftOut(field=f"{path}.{name}", why=_why_computed(computed)))
        return dict(kept) if isinstance(entries, dict) else [value for _, value in kept]

    def _merge(self, path: str, entries: dict[str, Any]) -> None:
        before = self.values.get(path)
        kept = (
            {name: value for name, value in before.items() if name not in entries} if isinstance(before, dict) else {}
        )
        self.values[path] = kept | self._entries(path, entries)

    def _replace(self, path: str, value: Any) -> None:
        """Add an argument in the place of its earlier value."""
        self.values = {each: value for each, value in self.values.items() if not f"{each}.".startswith(f"{path}.")}
        self.left_out = [each for each in self.left_out if not f"{each.field}.".startswith(f"{path}.")]
        self._add(path, value)

    def _take_chained(self, call: ast.Call, path: str) -> None:
        given = self._script.arguments(call, positional=(path,))
        self._replace(path, next((value for value in given.values() if value is not None), True))

    def _take_start(self, tree: ast.Module, call: ast.Call, *, is_first: bool) -> None:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if not is_first:
            why = "it starts another job, and one job file is one job"
            self.left_out.append(LeftOut(field=f"{method} (line {call.lineno})", why=why))
            return
        self.left_out += _repeated(tree, call, method)
        for name, value in self._script.arguments(call, positional=_STARTS[method]).items():
            if name not in _DATA:
                self._add(f"fit.{name}", value)
                continue
            before = self.values.get(name)
            self._add(name, value)
            if isinstance(before, list) and isinstance(value, list):
                # As the SDK does it: one of the same name stands in the place of the trainer's.
                later = {_label(each, place) for place, each in enumerate(value)}
                kept = [each for place, each in enumerate(before) if _label(each, place) not in later]
                self.values[name] = [*kept, *self.values[name]]

    def _take_attributes(
        self, node: ast.Assign | ast.AugAssign | ast.AnnAssign, variables: set[str], order: _Order
    ) -> None:
        """Take `estimator.max_run = 60`. A value that is set in another way is left out by name."""
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        in_a_tuple = [each for target in targets if isinstance(target, ast.Tuple | ast.List) for each in target.elts]
        for target in [*targets, *in_a_tuple]:
            begun = target.value if isinstance(target, ast.Subscript) else target
            base = next((each for each in _beginnings(_path_of(begun)) if each in variables), None)
            if base is None or base == ast.unparse(target):
                continue
            path = ast.unparse(target).removeprefix(f"{base}.")
            why = order.why_not_its(node)
            is_plain = isinstance(target, ast.Attribute) and target not in in_a_tuple
            if why is None and is_plain and not isinstance(node, ast.AugAssign) and node.value is not None:
                self._replace(path, self._script.value(node.value))
            else:
                why = why or f"the script sets it later, in line {node.lineno}"
                self.left_out.append(LeftOut(field=path, why=why))


class _Order:
    """The order of a statement and the calls that make a trainer and start it.

    Args:
        tree: The script.
        trainer: The call that makes the trainer.
        start: The first call that starts its job. None where there is none.
    """

    def __init__(self, tree: ast.Module, trainer: ast.Call, *, start: ast.Call | None) -> None:
        self._above = {inner: outer for outer in ast.walk(tree) for inner in ast.iter_child_nodes(outer)}
        self._around_trainer = {*self._around(trainer)}
        self._start = start

    def why_not_its(self, node: ast.stmt | ast.expr) -> str | None:
        """Return the reason that a value from a statement is not known to be the job's. None where it is."""
        for each in self._around(node):
            is_main = isinstance(each, ast.If) and ast.unparse(each.test).startswith("__name__")
            if isinstance(each, _CHOICES) and each not in self._around_trainer and not is_main:
                return f"the script sets it in some cases alone, in line {node.lineno}"
        return self.why_too_late(node)

    def why_too_late(self, node: ast.stmt | ast.expr) -> str | None:
        """Return the reason that a value from a statement comes too late for the job. None where it does not."""
        if (
            self._start is None
            or node.lineno <= self._start.lineno
            or self._block(node) is not self._block(self._start)
        ):
            return None
        return f"the script sets it after it has started the job, in line {node.lineno}"

    def _block(self, node: ast.AST) -> ast.AST | None:
        """Return the function that a node is in."""
        return next((each for each in self._around(node) if isinstance(each, _FUNCTIONS)), None)

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        while (above := self._above.get(node)) is not None:
            yield above
            node = above


def _variables_of(tree: ast.Module, trainer: ast.Call) -> set[str]:
    """Return the variables that stand for the trainer, such as `estimator`, `self.estimator`, `made()`."""
    makers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS) and any(inner is trainer for inner in ast.walk(node))
    }
    assigned = [
        (node.value, target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    ]
    found = {
        ast.unparse(target)
        for value, target in assigned
        if any(inner is trainer for inner in ast.walk(value))
        or (isinstance(value, ast.Call) and getattr(value.func, "attr", getattr(value.func, "id", "")) in makers)
    }
    # In the order of the script: a second name comes after the first.
    for value, target in assigned:
        if isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value) in found:
            found.add(ast.unparse(target))
    return found


def _is_of(receiver: ast.expr, trainer: ast.Call, variables: set[str]) -> bool:
    """Return True if a method is called on the trainer, or on the value that another of its methods returned."""
    path = _path_of(receiver)
    return any(node is trainer for node in path) or bool(variables & {*_beginnings(path)})


def _path_of(node: ast.expr) -> list[ast.expr]:
    """Return the calls and attributes of `a.b().c`, the last one first, and no more than a person writes."""
    path = [node]
    while len(path) < _LONGEST_PATH and isinstance(path[-1], ast.Call | ast.Attribute):
        path.append(path[-1].func if isinstance(path[-1], ast.Call) else path[-1].value)
    return path


def _beginnings(path: list[ast.expr]) -> Iterator[str]:
    """Yield `a` and `a.b` of the path of `a.b().c`."""
    name = ""
    for node in reversed(path):
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.Attribute) and name:
            name = f"{name}.{node.attr}"
        else:
            return
        yield name


def _label(entry: Any, place: int) -> Any:
    """Return the name of an entry of a list where it has one, else its place."""
    names = (
        (entry.get(key) for key in ("channel_name", "key", "Key", "name", "Name")) if isinstance(entry, dict) else ()
    )
    return next((name for name in names if isinstance(name, str)), place)


def _as_request(value: Any) -> Any:
    """Return arguments of sagemaker-core with the request's names, such as `S3Uri` for `s3_uri`."""
    if isinstance(value, Configuration):
        members = {name: "".join(map(str.capitalize, name.split("_"))).replace("InGb", "InGB") for name in value}
        return {member: _as_request(value[name]) for name, member in members.items()}
    return [_as_request(each) for each in value] if isinstance(value, list) else value
