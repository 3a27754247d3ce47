"""The training process, `spotkeep.pyz run` in a session of its own, with its output line by line and its end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Callable

from spotkeep.disk.writers import ATTEMPT_VARIABLE, LEASE_VARIABLE
from spotkeep.events import EVENT_PREFIX, LAUNCH_VARIABLE
from spotkeep.notices.notice import NOTICE_FILE_VARIABLE
from spotkeep.remote.second_tier import NODES_VARIABLE
from spotkeep.runner.failure import failure_text, memory_kills
from spotkeep.runner.layout import BASE_DIRECTORY_VARIABLE, import_root
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.secret_references import without_values
from spotkeep_fleet.shells import FRAMEWORKS
from spotkeep_fleet.training_spec import SPEC_CHANNEL, SPEC_VARIABLE, encode_spec, spec_file_name

from .user import TrainingUser

RUNNER_WORDS = ("run",)
_MAX_LINE_BYTES = 256 * 1024
MOST_STEPS = 2**53
"""Limit of a count of steps. A count from here on is ignored, since readers of the record count no further."""
_AGENTS_OWN = (
    "SPOTKEEP_RUN_TABLE",
    "SPOTKEEP_CREDENTIALS_FUNCTION",
    "SPOTKEEP_LINGER_SECONDS",
    "SPOTKEEP_USER",
    "SPOTKEEP_DEPLOYMENT",
    "PYTHONPATH",
)
_DRAIN_SECONDS = 5.0
_LAST_LINES = 20
_OF_DOCKER = "docker: "
_NO_ENTRY_POINT = (126, 127)
"""Source: "Exit status" in the reference of `docker run`."""
_PR_SET_NO_NEW_PRIVS = 38


def training_environment(
    *,
    inherited: Mapping[str, str],
    run: str,
    job: InstanceJob,
    base: Path,
    notice_file: Path,
    user: TrainingUser,
    lease: int,
    secret_values: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the environment of `spotkeep run`. Pure.

    Args:
        inherited: The agent's own.
        run: The run's id.
        job: The run's job.
        base: The mount point of the volume.
        notice_file: The file in which the agent leaves a notice.
        user: The user that trains.
        lease: The fencing token of this instance's lease, which orders the writers of an attempt.
        secret_values: The variables with the values of secrets, for the runner.
    """
    kept = {name: value for name, value in inherited.items() if name not in _AGENTS_OWN}
    environment = {
        **kept,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        # What the metadata service announces, the agent passes on: the script need not reach it.
        "SPOTKEEP_INSTANCE_METADATA": "off",
        **({"AWS_EC2_METADATA_DISABLED": "true"} if job.instance_metadata == "closed" else {}),
        "SPOTKEEP_REBALANCE": job.rebalance,
        "SPOTKEEP_EVENTS": "stdout",
        "SPOTKEEP_RUN": run,
        ATTEMPT_VARIABLE: str(job.attempt),
        LEASE_VARIABLE: str(lease),
        # With one folder for all nodes the ranks save as on one machine.
        **({} if job.nodes is None or job.checkpoint_channel is not None else {NODES_VARIABLE: str(job.nodes.at_most)}),
        BASE_DIRECTORY_VARIABLE: str(base),
        SPEC_VARIABLE: str(base / spec_path(encode_spec(job.training))),
        NOTICE_FILE_VARIABLE: str(notice_file),
        **(secret_values or {}),
    }
    if job.launch is not None:
        environment[LAUNCH_VARIABLE] = job.launch
    return environment


def spec_path(content: bytes) -> str:
    """Return the path of the spec's file on the volume, from the job's base directory."""
    return f"input/data/{SPEC_CHANNEL}/{spec_file_name(content)}"


def runner_command() -> list[str]:
    """Return the command that runs the training, with this same library's runner, which reads the job's spec."""
    root = import_root()
    runner = [sys.executable, root] if Path(root).is_file() else [sys.executable, "-m", "spotkeep"]
    return [*runner, *RUNNER_WORDS]


def search_path(inherited: str, *, root: Path, own: Path) -> str:
    """Return the training's PATH, on which `python` is that of the image's framework, if the image has one.

    Args:
        inherited: The agent's own.
        root: `/`, or below which this instance's files are.
        own: A directory of the agent's. On an image with `python3` alone, such as Amazon Linux 2023, it gets a
            `python`.
    """
    for framework in FRAMEWORKS:
        commands = root / framework / "bin"
        if os.access(commands / "python", os.X_OK):
            return os.pathsep.join([str(commands), inherited])
    python3 = shutil.which("python3", path=inherited)
    if python3 is None or shutil.which("python", path=inherited) is not None:
        return inherited
    own.mkdir(parents=True, exist_ok=True)
    link = own / "python"
    link.unlink(missing_ok=True)
    link.symlink_to(python3)
    return os.pathsep.join([inherited, str(own)])


class TrainingProcess:
    """A running training.

    Args:
        command: The command to run.
        environment: Its whole environment.
        directory: Its working directory.
        user: The user that runs it.
        on_line: Called with each line of its output, in a thread of its own.
        on_event: Called with each job event among them.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        user: TrainingUser,
        on_line: Callable[[str], None],
        on_event: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._on_line = on_line
        self._on_event = on_event
        self._last_lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._kills_before = memory_kills()
        identity: dict[str, Any] = {} if user.is_us else {"user": user.uid, "group": user.gid, "extra_groups": ()}
        root = import_root()
        path = {} if Path(root).is_file() else {"PYTHONPATH": root}
        self._process: subprocess.Popen[bytes] = _without_new_privileges(
            lambda: subprocess.Popen(
                list(command),
                env={**environment, **path},
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **identity,
            )
        )
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="training-output", daemon=True
        )
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n when signal n killed it, or None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        self._reader.join(_DRAIN_SECONDS)
        return code if code >= 0 else 128 - code

    def failure(self, job: InstanceJob, *, secret_values: Mapping[str, str] | None = None) -> str:
        """Return why it failed when the runner itself was killed, or docker never started it.

        Args:
            job: The job that it was given.
            secret_values: The values of secrets that it was given, which are masked.
        """
        lines = without_values("\n".join(self._last_lines), (secret_values or {}).values())
        return failure_text(
            command=("docker", "run", job.image or "") if self._says_docker(job) else job.training.command,
            exit_code=self.exit_code or 0,
            stderr_tail=lines.encode(),
            memory_kills=memory_kills() - self._kills_before,
        )

    def never_entered(self, job: InstanceJob) -> bool:
        """Return True when docker found no python3 in the image, or none that can be executed.

        Args:
            job: The job that it was given.
        """
        return self.exit_code in _NO_ENTRY_POINT and self._says_docker(job)

    def _says_docker(self, job: InstanceJob) -> bool:
        return job.image is not None and any(line.startswith(_OF_DOCKER) for line in self._last_lines)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the runner, which passes it on."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> int | None:
        """Wait for its end, up to a limit. Return its exit code, or None."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(seconds, 0.0))
        return self.exit_code

    def kill(self) -> None:
        """Kill everything of its session that is still there."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for raw in iter(lambda: stream.readline(_MAX_LINE_BYTES), b""):
                line = raw.decode("utf-8", "replace").rstrip("\r\n")
                self._on_line(line)
                if not line.startswith(EVENT_PREFIX):
                    self._last_lines.append(line)
                    continue
                with contextlib.suppress(ValueError, RecursionError):
                    event = json.loads(line[len(EVENT_PREFIX) :])
                    if isinstance(event, dict):
                        self._on_event(event)


def _without_new_privileges(start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """Start a process that can gain no rights. No setuid program has an effect in it or in its children.

    prctl(2) sets that for one thread, and its children inherit it. So a thread of its own does nothing else.
    """
    with ThreadPoolExecutor(max_workers=1, initializer=_give_up_new_privileges) as thread:
        return thread.submit(start).result()


def _give_up_new_privileges() -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no new privileges cannot be given up")
