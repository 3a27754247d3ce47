"""Checks of `doctor` that the launcher cannot make.

They see the files on this machine, and settings that are allowed but rarely meant. Nothing here refuses a job. Each
warning names the likely effect and the remedy.
"""

from __future__ import annotations

import ast
import json
import posixpath
import re
import shutil
import subprocess
import warnings as python_warnings
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from spotkeep_cli.bounded_reading import read_file
from spotkeep_fleet.ranks import torchrun_line
from spotkeep_jobs.document.command import read_command
from spotkeep_jobs.document.distributed import NO_RANKS
from spotkeep_jobs.document.instance_types import several_gpus
from spotkeep_jobs.document.shell_text import SHELLS, is_block, lines_of, programs_of
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_cli.launching.preparation import PreparedJob

_CHANGES_NO_FILES = frozenset({"cd", "echo", "export", "mkdir", "pip", "pip3", "set", "source", "."})
_ECHO_INTO_A_FILE = re.compile(r"\becho\b.*>\s*[^\s&]")
_INSIDE_PARENTHESES = re.compile(r"\(\s*cd\b")
_PYTHONS = re.compile(r"python(3(\.\d+)?)?")
_KEEPS = re.compile(r"spotkeep|SPOTKEEP_CHECKPOINT_DIR|/opt/ml/checkpoints")
"""The library, or the folder that comes back with a run."""
_SAVES = re.compile(
    r"ModelCheckpoint|save_checkpoint|save_pretrained|TrainingArguments|orbax|save_file|"
    r"\b(torch|np|numpy|jnp|pt|model|booster|bst)\.save\w*\(|\b(joblib|pickle|dill|cloudpickle|torch)\.dump\(|"
    r"\.save_(model|weights|state)\(|\bto_pickle\("
)
"""The calls that save a training's state."""
_CONFIGURES = frozenset({".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini"})
_MANY_GPUS_USED = re.compile(
    r"lightning|accelerate|transformers|deepspeed|fairscale|mp\.spawn|multiprocessing\.spawn|start_processes|"
    r"nn\.DataParallel|DataParallel\(|elastic_launch|torchrun|tensorflow|keras|\bjax\b|horovod|\bray\b"
)
"""The libraries and calls that use several GPUs from one process, or that start a process for each."""
_IMPORTS_TORCH = re.compile(r"^\s*(import|from) torch\b", re.MULTILINE)
_MANY_BYTES = 20 * 1024 * 1024
_MOST_SCRIPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A job, and one program that its command runs.

    Attributes:
        fields: The document.
        block: The lines for bash that form the command, or None for a command of words.
        command: The words of the program.
        directory: Its working directory in the source.
        prepared: The job with its packed source.
    """

    fields: Mapping[str, Any]
    block: str | None
    command: tuple[str, ...]
    directory: PurePosixPath
    prepared: PreparedJob

    @property
    def files(self) -> frozenset[PurePosixPath]:
        return frozenset(self.prepared.archive.files if self.prepared.archive else ())

    def text_of(self, path: PurePosixPath) -> str | None:
        """Return a source file's text. None when it is not in the source, or no text of a script's size."""
        archive = self.prepared.archive
        if archive is None or path not in self.files:
            return None
        try:
            return read_file(archive.origin / path, most_bytes=_MOST_SCRIPT_BYTES).decode("utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    @property
    def script(self) -> PurePosixPath | None:
        """The Python file the command starts, as the command names it."""
        words = list(self.command)
        if (line := torchrun_line(words)) is not None:
            of_a_module = {"-m", "--module"} & {option[0] for option in line.options}
            words = ["python", "-m", *line.rest] if of_a_module else list(line.rest)
        if words and _PYTHONS.fullmatch(PurePosixPath(words[0]).name):
            words = words[1:]
            while words and words[0].startswith("-") and words[0] not in {"-m", "-c"}:
                words = words[1:]
            if words[:1] == ["-m"] and len(words) > 1:
                return self._module(words[1])
        if not words or not words[0].endswith(".py") or "$" in words[0]:
            return None
        return PurePosixPath(posixpath.normpath(self.directory / words[0]))

    def _module(self, name: str) -> PurePosixPath | None:
        path = self.directory / PurePosixPath(*name.split("."))
        candidates = [path.with_suffix(".py"), path / "__main__.py"]
        return next((candidate for candidate in candidates if candidate in self.files), None)


def check_job(prepared: PreparedJob) -> list[Problem]:
    """Return every warning about a job, in the order a person would fix them."""
    jobs = _jobs(prepared)
    of_a_program = (_script_is_there, _script_compiles, _shell)
    of_the_job = (
        *(_requirements, _script_saves, _script_counts_steps, _checkpoints, _one_process_for_several_gpus),
        *(_blocks_are_read, _source_size),
    )
    found = [warning for check in of_a_program for job in jobs for warning in check(job)]
    return [*found, *(warning for check in of_the_job for warning in check(jobs[-1]))]


def source_warnings(prepared: PreparedJob) -> list[Problem]:
    """Return the warnings about a source that is missing, or lacks the script. A launch shows these."""
    return [warning for job in _jobs(prepared) for warning in _script_is_there(job)]


def _jobs(prepared: PreparedJob) -> list[_Job]:
    """Return the job with each program that its command runs, as far as it is known where that runs. One at least."""
    fields = prepared.document.fields
    try:
        command = read_command(fields.get("command"))
    except PydanticCustomError:
        command = []  # The launcher's validation says so.
    block = command if isinstance(command, str) else None
    writes = block is not None and _ECHO_INTO_A_FILE.search(block) is not None
    directory, found = PurePosixPath(), []
    for words in programs_of(command):
        if block is not None and words[0] == "cd":
            if (
                len(words) != 2
                or words[1][:1] in {"", "-", "~"}
                or "$" in words[1]
                or _INSIDE_PARENTHESES.search(block)
            ):
                break  # Where the rest runs is not known.
            directory = PurePosixPath(posixpath.normpath(directory / words[1]))
        found.append(_Job(fields=fields, block=block, command=words, directory=directory, prepared=prepared))
        leaves_files = PurePosixPath(words[0]).name not in _CHANGES_NO_FILES or (words[0] == "echo" and writes)
        if block is not None and leaves_files and not found[-1].script:
            break  # Its files are not known: a checkout, an unpacked archive.
    return found or [_Job(fields=fields, block=block, command=(), directory=directory, prepared=prepared)]


def _script_is_there(job: _Job) -> Iterator[Problem]:
    script = job.script
    if script is None or script.is_absolute():
        return
    if job.fields.get("source") is None:
        yield Problem(
            field="source",
            found="nothing",
            problem=f"no source is given, so the image itself must hold {script}",
            fix="add `source: .` to send the directory of the job file",
        )
    elif job.files and script not in job.files:
        origin = job.prepared.archive.origin if job.prepared.archive else None
        on_disk = origin is not None and (origin / script).is_file()
        nearest = sorted(path for path in job.files if path.name == script.name)
        fix = "name a file of the source; the command runs in its top directory"
        if on_disk:
            fix = (
                "it is there and stays behind: git ignores it (`git check-ignore -v` says by which line), or it lies "
                "behind a link, in a submodule that is not checked out, or in a folder that is never packed (.venv)"
            )
        elif nearest:
            fix = f"did you mean {nearest[0]}? Paths are relative to the source"
        yield Problem(
            field="command",
            found=" ".join(job.command),
            problem=f"{script} is not among the {len(job.files)} files of the source",
            fix=fix,
        )


def _script_compiles(job: _Job) -> Iterator[Problem]:
    script = job.script
    text = job.text_of(script) if script is not None else None
    if text is None:
        return
    try:
        with python_warnings.catch_warnings():
            python_warnings.simplefilter("ignore")
            ast.parse(text, filename=str(script))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        place = f"{script}:{line}" if line else str(script)
        yield Problem(
            field="command",
            found=" ".join(job.command),
            problem=f"{place} does not compile: {getattr(error, 'msg', None) or error}",
            fix="correct it; on the instance it would fail after the instance is paid for",
        )


def _requirements(job: _Job) -> Iterator[Problem]:
    install = job.fields.get("install", "auto")
    if not job.files or not isinstance(install, str) or install == "none":
        return
    path = PurePosixPath("requirements.txt" if install == "auto" else install)
    if path not in job.files:
        if install != "auto":
            yield Problem(
                field="install",
                found=install,
                problem=f"{path} is not among the {len(job.files)} files of the source",
                fix="name a file of the source; paths are relative to its top directory, and git ignores none of them",
            )
        return
    lines = (job.text_of(path) or "").replace("\\\n", " ").splitlines()
    asked = [line for line in map(str.strip, lines) if line and line[0] not in "#-"]
    bare = [line for line in asked if "--hash=" not in line]
    if bare and len(bare) < len(asked):
        yield Problem(
            field="install",
            found=str(path),
            problem=f"{len(bare)} of {len(asked)} requirements have no hash, {bare[0]} first: pip then installs none",
            fix="give every requirement its hashes, dependencies too (pip-compile --generate-hashes), or give none",
        )


def _script_saves(job: _Job) -> Iterator[Problem]:
    if job.fields.get("checkpoints", True) is not True or not job.files or job.script is None:
        return
    texts = [job.text_of(path) or "" for path in job.files if path.suffix in _CONFIGURES]
    given = json.dumps([job.fields.get(name) for name in ("command", "setup", "hyperparameters", "environment")])
    if any(map(_KEEPS.search, [*texts, given])):
        return
    if any(map(_SAVES.search, texts)):
        yield Problem(
            field="checkpoints",
            found="true",
            problem="the source saves, and neither it nor the job file names the folder that comes back after an "
            "interruption, /opt/ml/checkpoints",
            fix="save below os.environ.get('SPOTKEEP_CHECKPOINT_DIR', 'checkpoints') and load from there, or give the "
            "folder as a hyperparameter; or set `checkpoints: false`",
        )
        return
    yield Problem(
        field="checkpoints",
        found="true",
        problem="no file of the source seems to save a checkpoint: an interruption would start it from zero",
        fix="wrap the loop in spotkeep.Checkpointer, then prove it: spotkeep rehearse; or set `checkpoints: false`",
    )


def _script_counts_steps(job: _Job) -> Iterator[Problem]:
    sweep = job.fields.get("sweep")
    if not isinstance(sweep, dict) or sweep.get("search") != "asha" or not job.files or job.script is None:
        return
    texts = [job.text_of(path) for path in job.files if path.suffix == ".py"]
    if texts and not any(text and "spotkeep" in text for text in texts):
        yield Problem(
            field="sweep.search",
            found="asha",
            problem="no file of the source uses Spotkeep's library, which counts the steps at which asha pauses a "
            "trial: every trial would train to its end",
            fix="count steps with spotkeep.Checkpointer or an adapter, or choose random, sobol or tpe",
        )


def _checkpoints(job: _Job) -> Iterator[Problem]:
    if job.fields.get("checkpoints", True) is False and job.fields.get("capacity", "spot") == "spot":
        yield Problem(
            field="checkpoints",
            found="false",
            problem="on spot without checkpoints every interruption starts from zero",
            fix="save checkpoints (spotkeep.Checkpointer), or choose `capacity: on-demand`",
        )


def _one_process_for_several_gpus(job: _Job) -> Iterator[Problem]:
    named = job.fields.get("instance_types") or job.fields.get("instance_type") or ()
    types = [named] if isinstance(named, str) else named if isinstance(named, list | tuple) else []
    several = next(((each, gpus) for each in types if isinstance(each, str) and (gpus := several_gpus(each))), None)
    script = job.script
    if several is None or script is None or _starts_ranks(job.fields):
        return
    if not _PYTHONS.fullmatch(PurePosixPath(job.command[0]).name):
        return
    texts = [job.text_of(path) or "" for path in job.files if path.suffix == ".py"]
    if not any(map(_IMPORTS_TORCH.search, texts)) or any(map(_MANY_GPUS_USED.search, texts)):
        return
    instance_type, gpus = several
    yield Problem(
        field="command",
        found=" ".join(job.command),
        problem=f"{instance_type} has {gpus} GPUs, and plain python starts one process, which trains on one of them",
        fix="start a process for each: distributed: torchrun; or choose a type with one GPU",
    )


def _starts_ranks(fields: Mapping[str, Any]) -> bool:
    asked = fields.get("distributed")
    launcher = asked.get("launcher") if isinstance(asked, dict) else asked
    return launcher not in (None, NO_RANKS)


def _shell(job: _Job) -> Iterator[Problem]:
    # In a block a notice goes through shells to their programs.
    if not job.command or job.block is not None or PurePosixPath(job.command[0]).name not in SHELLS:
        return
    script = next((path for path in map(PurePosixPath, job.command[1:]) if path in job.files), None)
    text = job.text_of(script) if script is not None else None
    inline = " ".join(job.command[1:])
    if re.search(r"(^|[\s;&])exec\s", text if text is not None else inline):
        return
    yield Problem(
        field="command",
        found=" ".join(job.command),
        problem="a shell does not pass SIGTERM on, so the script would not save when its capacity goes away",
        fix="start the last command of the shell script with `exec`, or give the command without a shell",
    )


def _blocks_are_read(job: _Job) -> Iterator[Problem]:
    bash = shutil.which("bash")
    for name in ("command", "setup"):
        text = job.fields.get(name)
        if bash is None or not isinstance(text, str) or not is_block(text):
            continue
        read = subprocess.run(
            [bash, "-n", "-c", lines_of(text)], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        said = read.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
        if read.returncode:
            yield Problem(
                field=name,
                found="a block of lines",
                problem=f"bash cannot read it: {said.partition('-c: ')[2] or said}",
                fix="correct it; the job would fail on the instance, before its first line",
            )


def _source_size(job: _Job) -> Iterator[Problem]:
    archive = job.prepared.archive
    if archive is not None and len(archive.content) > _MANY_BYTES:
        yield Problem(
            field="source",
            found=f"{len(archive.content) / 1e6:,.1f} MB packed",
            problem="is large for code: every start and every resume downloads it",
            fix="leave data out with .gitignore and give it as a channel",
        )
