"""Checks of a job that the launcher cannot make.

They see the files on this machine, and settings that are allowed but rarely meant. Each warning names the likely effect
and the remedy. `missing_scripts` alone refuses a job.
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
from difflib import get_close_matches
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic_core import PydanticCustomError

from spotkeep_cli.bounded_reading import read_file
from spotkeep_cli.launching.source_archive import named
from spotkeep_cli.launching.used_files import used_files
from spotkeep_fleet.ranks import torchrun_line
from spotkeep_jobs.document.capacity import SPOT_WITHOUT_CHECKPOINTS
from spotkeep_jobs.document.command import read_command
from spotkeep_jobs.document.distributed import NO_RANKS
from spotkeep_jobs.document.instance_types import several_gpus
from spotkeep_jobs.document.shell_text import SHELLS, is_block, lines_of, programs_of
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from spotkeep_cli.launching.preparation import PreparedJob

_CHANGES_NO_FILES = frozenset({"cd", "echo", "export", "mkdir", "pip", "pip3", "set", "source", "."})
_ECHO_INTO_A_FILE = re.compile(r"\becho\b.*>\s*[^\s&]")
_INSIDE_PARENTHESES = re.compile(r"\(\s*cd\b")
_PYTHONS = re.compile(r"python(3(\.\d+)?)?")
_NAMES_THE_FOLDER = re.compile(r"^[^#\n]*(SPOTKEEP_CHECKPOINT_DIR|/opt/ml/checkpoints)", re.MULTILINE)
"""The folder that comes back with a run, outside of a comment."""
_NAMES_THE_LIBRARY = re.compile(r"^[^#\n]*\bspotkeep\b", re.MULTILINE)
_SAVES_WITH_IT = re.compile(r"^[^#\n]*\b(Checkpointer|ResumableTraining|integrations|report_saved)\b", re.MULTILINE)
_SAVES = re.compile(
    r"ModelCheckpoint|save_checkpoint|save_pretrained|TrainingArguments|orbax|save_file|"
    r"\b(torch|np|numpy|jnp|pt|model|booster|bst)\.save\w*\(|\b(joblib|pickle|dill|cloudpickle|torch)\.dump\(|"
    r"\.save_(model|weights|state)\(|\bto_pickle\("
)
"""The calls that save a training's state."""
_SCRIPTS = frozenset({".py", ".sh", ".bash"})
_CONFIGURES = frozenset({".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini"})
_MANY_GPUS_USED = re.compile(
    r"lightning|accelerate|transformers|deepspeed|fairscale|mp\.spawn|multiprocessing\.spawn|start_processes|"
    r"nn\.DataParallel|DataParallel\(|elastic_launch|torchrun|tensorflow|keras|\bjax\b|horovod|\bray\b"
)
"""The libraries and calls that use several GPUs from one process, or that start a process for each."""
_IMPORTS_TORCH = re.compile(r"^\s*(import|from) torch\b", re.MULTILINE)
_STARTS_FROM_ZERO = "on spot without checkpoints every interruption starts from zero"
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
        follows_others: True where programs that run before it may have made files.
    """

    fields: Mapping[str, Any]
    block: str | None
    command: tuple[str, ...]
    directory: PurePosixPath
    prepared: PreparedJob
    follows_others: bool = False

    @cached_property
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


def with_checks(warnings: Iterable[Problem], prepared: PreparedJob) -> list[Problem]:
    """Return the launcher's warnings and those of `check_job`, which names the same fault with its line and a fix.

    Args:
        warnings: The warnings of the launcher's rules.
        prepared: The job with its packed source.
    """
    found = check_job(prepared)
    known = SPOT_WITHOUT_CHECKPOINTS if any(each.problem == _STARTS_FROM_ZERO for each in found) else None
    return [*(each for each in warnings if each.problem != known), *found]


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
    """Return the warnings about a source that is missing, or may lack the script. A launch shows these."""
    return [warning for job in _jobs(prepared) for warning in _script_is_there(job)]


def missing_scripts(prepared: PreparedJob) -> list[Problem]:
    """Return the problems of a command that starts a script which is neither in the source nor in any image."""
    return [problem for job in _jobs(prepared) if _is_surely_missing(job) for problem in _missing(job)]


def _jobs(prepared: PreparedJob) -> list[_Job]:
    """Return the job with each program that its command runs, as far as it is known where that runs. One at least."""
    fields = prepared.document.fields
    try:
        command = read_command(fields.get("command"))
    except PydanticCustomError:
        command = []  # The launcher's validation says so.
    block = command if isinstance(command, str) else None
    writes = block is not None and _ECHO_INTO_A_FILE.search(block) is not None
    directory, found = PurePosixPath(), list[_Job]()
    follows_others = fields.get("setup") is not None
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
        found.append(
            _Job(
                fields=fields,
                block=block,
                command=words,
                directory=directory,
                prepared=prepared,
                follows_others=follows_others,
            )
        )
        leaves_files = PurePosixPath(words[0]).name not in _CHANGES_NO_FILES or (words[0] == "echo" and writes)
        if block is not None and leaves_files and not found[-1].script:
            break  # Its files are not known: a checkout, an unpacked archive.
        follows_others |= leaves_files
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
    elif not _is_surely_missing(job):
        yield from _missing(job)


def _is_surely_missing(job: _Job) -> bool:
    """Return True if no image can have a script, because Python looks for it below the source, where it is not.

    A program in its own right may be on the PATH of the image, and a path that leaves the source may lead into it.
    """
    script = job.script
    if script is None or script.is_absolute() or script.parts[:1] == ("..",):
        return False
    return bool(job.files) and script not in job.files and job.command[0] != str(script) and not job.follows_others


def _missing(job: _Job) -> Iterator[Problem]:
    script = job.script
    if script is None or not job.files or script in job.files:
        return
    origin = job.prepared.archive.origin if job.prepared.archive else None
    on_disk = origin is not None and (origin / script).is_file()
    if on_disk:
        fix = (
            "it is there and stays behind: git ignores it (`git check-ignore -v` says by which line), or it lies "
            "behind a link, in a submodule that is not checked out, or in a folder that is never packed (.venv)"
        )
    elif nearest := _nearest(script, job.files):
        fix = f"did you mean {nearest}? Paths are relative to the source"
    else:
        scripts = sorted(path for path in job.files if path.suffix == ".py")
        there = f"the source has {named(scripts)}" if scripts else "the source has no Python file"
        fix = f"name a file of the source, where the command runs; {there}"
    yield Problem(
        field="command",
        found=" ".join(job.command),
        problem=f"{script} is not among the {len(job.files)} files of the source",
        fix=fix,
    )


def _nearest(script: PurePosixPath, files: Collection[PurePosixPath]) -> PurePosixPath | None:
    """Return the file of the same name, or else of a similar path or name. None where there is no such file."""
    same = sorted(path for path in files if path.name == script.name)
    scripts = sorted((path for path in files if path.suffix == ".py"), reverse=True)
    by_text = {path.stem: path for path in scripts} | {str(path.with_suffix("")): path for path in scripts}
    similar = [text for name in (str(script.with_suffix("")), script.stem) for text in get_close_matches(name, by_text)]
    return next(iter([*same, *(by_text[text] for text in similar)]), None)


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
    used = _used(job)
    if job.fields.get("checkpoints", True) is not True or not used:
        return
    if any(map(_uses_the_library, used)) or any(map(_NAMES_THE_FOLDER.search, [*used, *_configurations(job)])):
        return
    # Nodes go on from the checkpoints in S3, and are refused without.
    or_none = "" if "nodes" in job.fields else "; or set `checkpoints: false`"
    if any(map(_SAVES.search, used)):
        yield Problem(
            field="checkpoints",
            found="true",
            problem="the source saves, and neither it nor the job file names the folder that comes back after an "
            "interruption, /opt/ml/checkpoints",
            fix="save below os.environ.get('SPOTKEEP_CHECKPOINT_DIR', 'checkpoints') and load from there, or give the "
            f"folder as a hyperparameter{or_none}",
        )
        return
    yield Problem(
        field="checkpoints",
        found="true",
        problem="no file that the command uses seems to save a checkpoint: an interruption would start it from zero",
        fix="wrap the loop in spotkeep.Checkpointer (the ways: spotkeep help training-scripts), then prove it: "
        f"spotkeep rehearse{or_none}",
    )


def _uses_the_library(text: str) -> bool:
    """Return True if a script imports the library, and not only to report its steps."""
    return _NAMES_THE_LIBRARY.search(text) is not None and _SAVES_WITH_IT.search(text) is not None


def _used(job: _Job) -> list[str]:
    """Return the texts of the scripts that the command uses. Empty where they are not known."""
    commands = [" ".join(each.command) for each in _jobs(job.prepared)]
    used = used_files("\n".join([*commands, _given(job)]), files=job.files, text_of=job.text_of)
    return [text for path in used if path.suffix in _SCRIPTS and (text := job.text_of(path)) is not None]


def _given(job: _Job) -> str:
    return json.dumps([job.fields.get(name) for name in ("command", "setup", "hyperparameters", "environment")])


def _configurations(job: _Job) -> Iterator[str]:
    """Yield the texts that may name a folder to a script: those of the job file, and of files for configuration."""
    yield _given(job)
    archive = job.prepared.archive
    own = job.prepared.document.path.resolve()
    for path in job.files:
        # The fields of the job file are given. Its comments say nothing of the script.
        if archive is not None and path.suffix in _CONFIGURES and (archive.origin / path).resolve() != own:
            yield job.text_of(path) or ""


def _script_counts_steps(job: _Job) -> Iterator[Problem]:
    sweep = job.fields.get("sweep")
    if not isinstance(sweep, dict) or sweep.get("search") != "asha":
        return
    used = _used(job)
    if used and not any(map(_uses_the_library, used)):
        yield Problem(
            field="sweep.search",
            found="asha",
            problem="no file of the source uses Spotkeep's library, which counts the steps at which asha pauses a "
            "trial: every trial would train to its end",
            fix="count steps with spotkeep.Checkpointer or an adapter, or choose random, sobol or tpe",
        )


def _checkpoints(job: _Job) -> Iterator[Problem]:
    # A volume on EC2 keeps what a script saves there. The launcher warns of its loss.
    on_sagemaker = job.fields.get("backend", "sagemaker") == "sagemaker"
    if on_sagemaker and job.fields.get("checkpoints", True) is False and job.fields.get("capacity", "spot") == "spot":
        yield Problem(
            field="checkpoints",
            found="false",
            problem=_STARTS_FROM_ZERO,
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
