"""What `doctor` sees that the launcher cannot: the files on this machine, and what is allowed but rarely meant.

Nothing here refuses a job. Each warning says what is likely to happen and what to do about it.
"""

from __future__ import annotations

import ast
import re
import shlex
import warnings as python_warnings
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.errors import Problem
from spotkeep_local.bounded_reading import read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from spotkeep_cli.launching.preparation import PreparedJob

_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_PYTHONS = re.compile(r"python(3(\.\d+)?)?")
_SAVES = re.compile(
    r"spotkeep|SPOTKEEP_CHECKPOINT_DIR|/opt/ml/checkpoints|ModelCheckpoint|save_checkpoint|torch\.save|save_pretrained"
)
_MANY_BYTES = 20 * 1024 * 1024
_MOST_SCRIPT_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class _Job:
    fields: Mapping[str, Any]
    command: tuple[str, ...]
    prepared: PreparedJob

    @property
    def files(self) -> frozenset[PurePosixPath]:
        return frozenset(self.prepared.archive.files if self.prepared.archive else ())

    def text_of(self, path: PurePosixPath) -> str | None:
        """Return a source file's text; None when it is not in the source, or no text of a script's size."""
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
        if words and _PYTHONS.fullmatch(PurePosixPath(words[0]).name):
            words = words[1:]
            while words and words[0].startswith("-") and words[0] not in {"-m", "-c"}:
                words = words[1:]
            if words[:1] == ["-m"] and len(words) > 1:
                return self._module(words[1])
        return PurePosixPath(words[0]) if words and words[0].endswith(".py") else None

    def _module(self, name: str) -> PurePosixPath | None:
        path = PurePosixPath(*name.split("."))
        candidates = [path.with_suffix(".py"), path / "__main__.py"]
        return next((candidate for candidate in candidates if candidate in self.files), None)


def check_job(prepared: PreparedJob) -> list[Problem]:
    """Return every warning about a job, in the order a person would fix them."""
    job = _Job(
        fields=prepared.document.fields, command=_words(prepared.document.fields.get("command")), prepared=prepared
    )
    checks = (_script_is_there, _script_compiles, _requirements, _script_saves, _checkpoints, _shell, _source_size)
    return [warning for check in checks for warning in check(job)]


def _words(command: Any) -> tuple[str, ...]:
    if isinstance(command, str):
        try:
            return tuple(shlex.split(command))
        except ValueError:
            return ()  # the launcher's validation says so
    return tuple(str(word) for word in command) if isinstance(command, list) else ()


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
            fix = "git ignores it: take it out of .gitignore (`git check-ignore -v` says which line)"
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
    texts = [job.text_of(path) for path in job.files if path.suffix == ".py"]
    if texts and not any(text and _SAVES.search(text) for text in texts):
        yield Problem(
            field="checkpoints",
            found="true",
            problem="no file of the source seems to save a checkpoint: an interruption would start it from zero",
            fix="wrap the loop in spotkeep.Checkpointer, then prove it: spotkeep rehearse; or set `checkpoints: false`",
        )


def _checkpoints(job: _Job) -> Iterator[Problem]:
    if job.fields.get("checkpoints", True) is False and job.fields.get("capacity", "spot") == "spot":
        yield Problem(
            field="checkpoints",
            found="false",
            problem="on spot without checkpoints every interruption starts from zero",
            fix="save checkpoints (spotkeep.Checkpointer), or choose `capacity: on-demand`",
        )


def _shell(job: _Job) -> Iterator[Problem]:
    if not job.command or PurePosixPath(job.command[0]).name not in _SHELLS:
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


def _source_size(job: _Job) -> Iterator[Problem]:
    archive = job.prepared.archive
    if archive is not None and len(archive.content) > _MANY_BYTES:
        yield Problem(
            field="source",
            found=f"{len(archive.content) / 1e6:,.1f} MB packed",
            problem="is large for code: every start and every resume downloads it",
            fix="leave data out with .gitignore and give it as a channel",
        )
