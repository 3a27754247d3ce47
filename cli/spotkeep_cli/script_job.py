"""A job file for a training script, made of what stands in the script. The script is read, and never imported or run.

Python 3.9 and the standard library suffice.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from spotkeep_fleet.printable_text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CHECKPOINTS = "/opt/ml/checkpoints"
"""The folder that comes back with a run, in every job."""
JOB_FILE = "job.yaml"
_MOST_COMMAND = 45
"""The most characters of a next command that its effect stands behind, in a terminal of 80 columns."""

_CHECKPOINT_NAME = re.compile(r"checkpoint|ckpt|snapshot", re.IGNORECASE)
_OUTPUT_NAME = re.compile(r"(output|out|save|work|log|default.?root)[-_]?(dir|path|folder)$|^out$", re.IGNORECASE)
_DATA_NAME = re.compile(r"data|dataset|train[-_](dir|file)|corpus|images?", re.IGNORECASE)
_MODEL_NAME = re.compile(r"^model[-_](dir|path|out)", re.IGNORECASE)
_PATH_NAME = re.compile(r"dir|path|folder|file|root|^out$|data|checkpoint|ckpt|snapshot", re.IGNORECASE)
_OF_JOBS = ("SM_", "SPOTKEEP_")
_SAVING_CALLS = frozenset(
    {"save", "savez", "savez_compressed", "save_model", "save_weights", "save_checkpoint", "save_pretrained", "dump"}
)
_SAVING_WORDS = frozenset(
    {"output_dir", "dirpath", "default_root_dir", "checkpoint_dir", "ckpt_dir", "save_dir", "filepath"}
)
_FRAMEWORKS = (
    ("transformers", "huggingface"),
    ("torch", "pytorch"),
    ("tensorflow", "tensorflow"),
    ("xgboost", "xgboost"),
)
"""Modules whose import tells the image of AWS, and the value of `framework`. The first that is imported counts."""
_IN_ALL_IMAGES = frozenset(
    {"numpy", "pandas", "scipy", "sklearn", "joblib", "torch", "torchvision", "torchaudio", "PIL", "yaml", "boto3"}
)
_PACKAGES = {
    "cv2": "opencv-python-headless",
    "skimage": "scikit-image",
    "wandb": "wandb",
    "pytorch_lightning": "pytorch-lightning",
}
"""Packages with another name than their module. `_` and `-` are alike to pip."""


@dataclass(frozen=True)
class Argument:
    """An argument of the script's argparse.

    Attributes:
        name: The name without its dashes, for example `epochs`.
        line: The line of the script.
        default: The literal default. None where the script computes it or names none.
        required: True where the script ends without it.
        positional: True for an argument without a name on the command line.
        is_path: True where the value may be a path.
        from_job: True where the default is a variable that jobs set.
    """

    name: str
    line: int
    default: Any
    required: bool
    positional: bool
    is_path: bool
    from_job: bool


@dataclass
class Script:
    """The facts that stand in a script.

    Attributes:
        arguments: The arguments of its argparse, in order.
        modules: The names of the modules that it imports, without their submodules.
        saves: The lines that save to a place that stands in the script, with the place.
        names_folder: True where the script names the folder that comes back, or the variable with it.
        is_a_rank: True where the script joins other ranks of `torch.distributed`.
    """

    arguments: list[Argument] = field(default_factory=list)
    modules: set[str] = field(default_factory=set)
    saves: list[tuple[int, str]] = field(default_factory=list)
    names_folder: bool = False
    is_a_rank: bool = False


@dataclass(frozen=True)
class ScriptJob:
    """A job file that is to be written.

    Attributes:
        path: Its path.
        text: Its content.
        remarks: The lines to print about it.
    """

    path: Path
    text: str
    remarks: Sequence[str]


def job_file_of(script: Path) -> ScriptJob:
    """Return a job file for a script. It lies here where the script is below this folder, else beside the script.

    Args:
        script: The path of the script.

    Raises:
        SyntaxError: The script is no Python that this version reads.
        UnicodeDecodeError: The script is no text in UTF-8.
    """
    here = Path.cwd().resolve()
    resolved = script.resolve()
    folder = here if here in resolved.parents else resolved.parent
    inside = resolved.relative_to(folder).as_posix()
    path = (Path() if folder == here else script.parent) / JOB_FILE
    read = read_script(resolved.read_text(encoding="utf-8"))
    return _written(read, path=path, folder=folder, inside=inside)


def read_script(source: str) -> Script:
    """Read the source of a script.

    Raises:
        SyntaxError: It is no Python that this version reads.
    """
    found = Script(names_folder="SPOTKEEP_CHECKPOINT_DIR" in source or CHECKPOINTS in source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.modules.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Call):
            found.is_a_rank |= _called(node) == "init_process_group"
            if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                found.arguments += [argument for argument in (_argument(node),) if argument is not None]
            else:
                found.saves += [(node.lineno, place) for place in _places(node)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            found.saves += [(node.lineno, place) for place in _assigned_place(node)]
    found.arguments.sort(key=lambda each: each.line)
    found.saves = sorted(set(found.saves))
    return found


def _argument(call: ast.Call) -> Argument | None:
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    words = {each.arg: each.value for each in call.keywords if each.arg is not None}
    action = _literal(words.get("action"))
    if not flags or ("action" in words and action not in (None, "store")):
        return None  # A switch takes no value, and `--name value` would end the script.
    name = next((flag for flag in flags if flag.startswith("--")), flags[0])
    default_text = "" if "default" not in words else ast.unparse(words["default"])
    type_text = "" if "type" not in words else ast.unparse(words["type"])
    default = _literal(words.get("default"))
    positional = not name.startswith("-")
    return Argument(
        name=name.lstrip("-"),
        line=call.lineno,
        default=default,
        required=_literal(words.get("nargs")) not in ("?", "*")
        if positional
        else _literal(words.get("required")) is True,
        positional=positional,
        is_path=type_text.endswith("Path") or (type_text in ("", "str") and not isinstance(default, (int, float))),
        from_job=any(prefix in default_text for prefix in _OF_JOBS),
    )


def _literal(node: ast.expr | None) -> Any:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


def _text_of(node: ast.expr) -> str | None:
    """Return a text that stands in the script, or the known beginning of one that is put together."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr) and node.values:
        begin = _text_of(node.values[0]) or ""
        return begin.rpartition("/")[0] or begin or None
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).endswith(("Path", "path.join", "open")):
        return _text_of(node.args[0])
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add, ast.Mod)):
        return _text_of(node.left)
    return None


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _places(call: ast.Call) -> Iterator[str]:
    name = _called(call)
    given = [each.value for each in call.keywords if each.arg in _SAVING_WORDS]
    if name in _SAVING_CALLS:
        given += call.args[:2]
    for text in map(_text_of, given):
        if text and not text.startswith("/opt/ml/") and re.search(r"[\w.]", text) and " " not in text:
            yield text


def _assigned_place(node: ast.Assign | ast.AnnAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    named = any(isinstance(each, ast.Name) and _CHECKPOINT_NAME.search(each.id) for each in targets)
    text = _text_of(node.value) if named and node.value is not None else None
    if text and not text.startswith("/opt/ml/") and "*" not in text:
        yield text


def _written(script: Script, *, path: Path, folder: Path, inside: str) -> ScriptJob:
    checkpoints = _checkpoint_argument(script)
    values: list[tuple[str, Any, str]] = []
    words = ["python", inside]
    remarks: list[str] = []
    for argument in script.arguments:
        where = f"{inside}:{argument.line}"
        if argument.from_job:
            continue
        if argument.positional:
            if argument is checkpoints:
                words.append(CHECKPOINTS)
            elif argument.required:
                words.append("CHANGE_ME")
                remarks.append(f"{where}: {argument.name} has no default. Write its value in place of CHANGE_ME.")
        elif argument is checkpoints:
            values.append((argument.name, CHECKPOINTS, "comes back with the run"))
        elif argument.is_path and _MODEL_NAME.search(argument.name):
            values.append((argument.name, "/opt/ml/model", "becomes the model artifact"))
        elif argument.required and argument.default is None:
            remarks.append(f"{where}: --{argument.name} has no default. Write its value in place of CHANGE_ME.")
            values.append((argument.name, "CHANGE_ME", "has no default"))
        elif isinstance(argument.default, (str, int, float)) and not isinstance(argument.default, bool):
            values.append((argument.name, argument.default, ""))
        if argument is not checkpoints and argument.is_path and _DATA_NAME.search(argument.name):
            remarks.append(
                f"{where}: {argument.name} looks like data. For data in S3 name them in `channels`, "
                "and give it /opt/ml/input/data/train."
            )
    remarks += _on_saving(script, checkpoints, inside=inside)
    lines = [
        f"# Written by `spotkeep init {shlex.quote(inside)}`. `spotkeep doctor {JOB_FILE}` checks it.",
        f"name: {_job_name(inside, folder)}",
        "source: .",
        f"command: {_scalar(shlex.join(words))}",
    ]
    if script.is_a_rank:
        lines.append("distributed: torchrun")
    framework = next((value for module, value in _FRAMEWORKS if module in script.modules), None)
    if framework:
        lines.append(f"framework: {framework}")
    lines += _requirements(script, folder=folder, framework=framework)
    lines += [
        "instance_type: ml.m5.large",
        "capacity: spot",
        "max_run: 12h",
        "max_wait: 1d",
    ]
    if values:
        lines.append("hyperparameters:")
        lines += [f"  {name}: {_scalar(value)}{f'  # {why}' if why else ''}" for name, value, why in values]
    lines.append("notify: [completed, failed, stopped]")
    changes = [
        f"{path}:{_line_of(lines, 'instance_type:')}: the instance type, for example ml.g5.2xlarge for a GPU",
        f"{path}:{_line_of(lines, 'max_run:')}: the longest that the training may take, and the wait included",
        *remarks,
    ]
    shown = shlex.quote(str(path))
    starter = ["torchrun", "--nproc-per-node", "2"] if script.is_a_rank else ["python"]
    steps = {
        f"spotkeep rehearse -- {shlex.join([*starter, inside])}": "takes its machine away, here",
        f"spotkeep rehearse {shown}": "does so with a whole deployment",
        f"spotkeep launch {shown}": "launches it",
    }
    width = max(map(len, steps))
    width, gap = (width, "  ") if width <= _MOST_COMMAND else (0, "\n        ")
    said = [
        "",
        "Lines to change:",
        *(f"  {change}" for change in changes),
        "",
        *(
            f"{'      ' if at else 'Next: '}{command.ljust(width)}{gap}{effect}"
            for at, (command, effect) in enumerate(steps.items())
        ),
    ]
    return ScriptJob(path=path, text=printable("\n".join(lines) + "\n"), remarks=said)


def _checkpoint_argument(script: Script) -> Argument | None:
    paths = [each for each in script.arguments if each.is_path and _PATH_NAME.search(each.name)]
    named = [each for each in paths if _CHECKPOINT_NAME.search(each.name)]
    return next(iter([*named, *(each for each in paths if _OUTPUT_NAME.search(each.name))]), None)


def _on_saving(script: Script, checkpoints: Argument | None, *, inside: str) -> Iterator[str]:
    if "spotkeep" in script.modules or script.names_folder:
        return
    if checkpoints is not None:
        if not checkpoints.from_job and checkpoints.default != CHECKPOINTS:
            yield (
                f"{inside}:{checkpoints.line}: --{checkpoints.name} is taken for the checkpoint folder. "
                f"The job sets it to {CHECKPOINTS}, and the script must resume from the newest file there."
            )
        return
    if script.saves:
        for line, place in script.saves:
            folder = str(PurePosixPath(place).parent) if PurePosixPath(place).suffix else place
            yield (
                f"{inside}:{line}: saves to {place!r}, which an interruption deletes. "
                f"Save below os.environ.get('SPOTKEEP_CHECKPOINT_DIR', {folder!r}), and resume from there."
            )
        return
    yield (
        f"{inside}: found no line that saves a checkpoint. Only {CHECKPOINTS} comes back after an interruption. "
        "Save below os.environ.get('SPOTKEEP_CHECKPOINT_DIR', 'checkpoints'), and resume from there."
    )


def _requirements(script: Script, *, folder: Path, framework: str | None) -> Iterator[str]:
    listed = folder / "requirements.txt"
    # Those of a project that `spotkeep init` wrote are for its CDK app, and no job needs them.
    of_app = listed.is_file() and "spotkeep[cdk]" in listed.read_text(encoding="utf-8", errors="replace")
    if (listed.is_file() and not of_app) or (folder / "pyproject.toml").is_file():
        return  # `install: auto`, the default, takes them.
    # A list of the standard library's modules is there from Python 3.10 on.
    known = frozenset(getattr(sys, "stdlib_module_names", ())) | frozenset(sys.builtin_module_names)
    own = {path.stem for path in folder.glob("*.py")} | {path.name for path in folder.iterdir() if path.is_dir()}
    image = {module for module, value in _FRAMEWORKS if value == framework} | {"spotkeep"}
    others = sorted(
        module for module in script.modules - known - own - _IN_ALL_IMAGES - image if not _in_library(module)
    )
    if others:
        yield f"install: [{', '.join(_PACKAGES.get(module, module) for module in others)}]"
    elif of_app:
        yield "install: none"


def _in_library(module: str) -> bool:
    """Return True for a module of the standard library, on Python 3.9, which has no list of them."""
    if hasattr(sys, "stdlib_module_names"):
        return False
    library = Path(ast.__file__).parent
    return (library / f"{module}.py").exists() or (library / module / "__init__.py").exists()


def _job_name(inside: str, folder: Path) -> str:
    stem = Path(inside).stem
    chosen = folder.name if stem in ("train", "main", "run", "__main__") and folder.name else stem
    words = re.findall(r"[A-Za-z0-9]+", chosen)
    return "-".join(words)[:43].strip("-") or "training"


def _line_of(lines: Sequence[str], start: str) -> int:
    return next(number for number, line in enumerate(lines, start=1) if line.startswith(start))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z/][\w ./=-]*", value) and value.lower() not in (
            "true",
            "false",
            "yes",
            "no",
            "on",
            "off",
            "null",
            "y",
            "n",
        )
        return value if plain and value == value.strip() else json.dumps(value)
    return repr(value)
