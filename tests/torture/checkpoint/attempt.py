"""One attempt of the tortured training, and what it said: the facts that the trials judge."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from spotkeep.notices.notice import NOTICE_FILE_VARIABLE
from tests.torture.checkpoint.training import LINE_PREFIX, train

_EVENT_PREFIX = "spotkeep-event: "
_ATTEMPT_SECONDS = 600.0
"""An attempt that has not ended then hangs, on a busy machine as well."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How long and how large a training is.

    Attributes:
        total_steps: Steps of the whole training.
        every_steps: A checkpoint after so many.
        state_bytes: About how large the state is.
    """

    total_steps: int
    every_steps: int
    state_bytes: int


@dataclass(frozen=True, kw_only=True)
class TrainingAttempt:
    """What one attempt said before it ended.

    Attributes:
        exit_code: As `subprocess` gives it: minus the signal that killed it.
        restored: The step and the digest of what it took up; None when it died before.
        completed: The newest completed step that it reported.
        durable: The newest step that it called durable; 0 when none.
        finished: The step and the digest at the end, when it came there.
        fallbacks: The steps of the checkpoints that it passed over, with the file at fault.
        errors: The end of its standard error.
    """

    exit_code: int
    restored: tuple[int, str] | None
    completed: int
    durable: int
    finished: tuple[int, str] | None
    fallbacks: tuple[tuple[int, str], ...]
    errors: str
    training_seconds: float | None = None
    """From the first word of the training to the last, as they arrived."""


def understand(output: str, *, exit_code: int, errors: str = "") -> TrainingAttempt:
    """Read an attempt's standard output. A last line that a kill cut short is no line."""
    restored = finished = None
    completed = durable = 0
    fallbacks = []
    for line in output.splitlines(keepends=True):
        prefix = next((prefix for prefix in (LINE_PREFIX, _EVENT_PREFIX) if line.startswith(prefix)), None)
        if prefix is None or not line.endswith("\n"):
            continue
        fields: dict[str, Any] = json.loads(line[len(prefix) :])
        match fields.get("what") or fields.get("event"):
            case "restored":
                restored = (fields["step"], fields["digest"])
            case "finished":
                finished = (fields["step"], fields["digest"])
            case "progress":
                completed = fields["step"]
            case "saved":
                durable = max(durable, fields["step"])
            case "fallback":
                fallbacks.append((fields["step"], fields["file"]))
    return TrainingAttempt(
        exit_code=exit_code,
        restored=restored,
        completed=completed,
        durable=durable,
        finished=finished,
        fallbacks=tuple(fallbacks),
        errors=errors[-2000:],
    )


def run(
    directory: Path,
    *,
    size: Size,
    fault: object = None,
    record: Path | None = None,
    notice_file: Path | None = None,
    disturb: Callable[[subprocess.Popen[str], threading.Event], None] | None = None,
) -> TrainingAttempt:
    """Run one attempt in a process of its own.

    Args:
        directory: The checkpoints.
        size: The training.
        fault: An `interposition.DiskFault` for the process.
        record: Where the process writes down its calls.
        notice_file: Where the process looks for a notice.
        disturb: Called with the running process, and an event that is set once the training has begun.

    Raises:
        subprocess.TimeoutExpired: The attempt hangs.
    """
    command = [
        *(sys.executable, "-m", "tests.torture.checkpoint.training", str(directory)),
        *("--total-steps", str(size.total_steps), "--every-steps", str(size.every_steps)),
        *("--state-bytes", str(size.state_bytes)),
        *(("--fault", str(fault)) if fault is not None else ()),
        *(("--record", str(record)) if record is not None else ()),
    ]
    output: list[str] = []
    words_at: list[float] = []
    begun = threading.Event()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(notice_file)
    )

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            output.append(line)
            if line.startswith(LINE_PREFIX):
                words_at.append(time.monotonic())
                begun.set()
        begun.set()

    assert process.stderr is not None
    errors: list[str] = []
    stderr = process.stderr
    threads = [threading.Thread(target=listen), threading.Thread(target=lambda: errors.append(stderr.read()))]
    for thread in threads:
        thread.start()
    try:
        if disturb is not None:
            disturb(process, begun)
        exit_code = process.wait(_ATTEMPT_SECONDS)
    finally:
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()
        process.stdout.close() if process.stdout else None
        stderr.close()
    attempt = understand("".join(output), exit_code=exit_code, errors="".join(errors))
    return replace(attempt, training_seconds=words_at[-1] - words_at[0]) if words_at else attempt


def run_here(directory: Path, *, size: Size) -> TrainingAttempt:
    """Run one attempt in this process: many times faster, for trials whose ruin is done when it starts."""
    output = io.StringIO()
    exit_code = 0
    with _as_a_job(), contextlib.redirect_stdout(output):
        try:
            train(directory, total_steps=size.total_steps, every_steps=size.every_steps, state_bytes=size.state_bytes)
        except SystemExit as ending:
            exit_code = int(ending.code or 0)
    return understand(output.getvalue(), exit_code=exit_code)


@contextlib.contextmanager
def _as_a_job() -> Iterator[None]:
    """Make this process a job's, whose library says nothing; afterwards it is as it was, for the other code in it."""
    logger = logging.getLogger("spotkeep")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with mock.patch.dict(os.environ, _JOB):
            yield
    finally:
        logger.setLevel(level)


def environment(notice_file: Path | None = None) -> dict[str, str]:
    """Return the environment of an attempt: this one, without a job around it, and with job events."""
    unwanted = ("TRAINING_JOB_NAME", "SPOTKEEP_CHECKPOINT_DIR", NOTICE_FILE_VARIABLE, "SPOTKEEP_NOTICE_SECONDS")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    notice = {} if notice_file is None else {NOTICE_FILE_VARIABLE: str(notice_file)}
    return {**kept, **_JOB, **notice}


_JOB = {"SPOTKEEP_EVENTS": "stdout", "SPOTKEEP_PROGRESS_SECONDS": "0"}
