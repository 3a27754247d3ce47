"""A job's host: one process group on this machine, with its own `/opt/ml`, started, watched and ended."""

from __future__ import annotations

import functools
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_local import process_identity
from spotkeep_local.hosts.host import own_python
from spotkeep_local.options import Isolation
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.opt_ml import OptMl, relocate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LOG = logging.getLogger(__name__)
_ENTER_HOST = Path(__file__).with_name("enter_host.py")
_DRAIN_SECONDS = 5.0
_MOST_LINE_BYTES = 200_000
"""No message in CloudWatch Logs is longer."""
_LONGEST_FOR_SOCKETS = 64
"""A Unix socket's path has 104 bytes; Python's multiprocessing adds up to 40 to the temporary directory's."""


def resolve_isolation(wanted: Isolation) -> Isolation:
    """What `wanted` means on this machine: `namespace` or `relocated`.

    Raises:
        JobFailedError: A namespace is demanded and the machine refuses it; says why.
    """
    if wanted is Isolation.RELOCATED:
        return wanted
    refusal = _namespace_refusal()
    if refusal is None:
        return Isolation.NAMESPACE
    if wanted is Isolation.NAMESPACE:
        raise JobFailedError(f"InternalServerError: {refusal}; use isolation `auto` or `relocated`")
    return Isolation.RELOCATED


@functools.cache
def _namespace_refusal() -> str | None:
    if sys.platform != "linux":
        return "mount namespaces exist on Linux only"
    with tempfile.TemporaryDirectory(prefix="spotkeep-") as folder:
        tried = subprocess.run(
            [own_python(), "-I", "-S", str(_ENTER_HOST), folder, "/", "true"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    return None if tried.returncode == 0 else tried.stderr.strip() or f"exit code {tried.returncode}"


class Host:
    """One process of a job, alive from construction to `on_exit`.

    Args:
        folder: The host's own directory; holds `ml`, which the job sees as `/opt/ml`, `home`, and for a host that may
            be kept `image`.
        command: Entry point and arguments, as in the request.
        environment: All of the job's environment; nothing of this process leaks into it.
        own_image: Whether the host has an image of its own: the byte code of all that the job imports, which it makes
            on its first job and has on its next. Else it shares this machine's.
        isolation: `namespace` or `relocated`.
        on_line: Called in a thread of its own with each line that the job prints.
        on_exit: Called once, after the last line, with the exit code as a shell sees it.
    """

    def __init__(
        self,
        *,
        folder: Path,
        command: Sequence[str],
        environment: Mapping[str, str],
        own_image: bool,
        isolation: Isolation,
        on_line: Callable[[str], None],
        on_exit: Callable[[int], None],
    ) -> None:
        self._on_line = on_line
        self._on_exit = on_exit
        opt_ml = OptMl(folder / "ml")
        home, temporary = folder / "home", folder / "tmp"
        home.mkdir(parents=True, exist_ok=True)
        temporary.mkdir(exist_ok=True)
        self._way = _short_way_to(temporary)
        of_the_host = {"HOME": str(home), "TMPDIR": str(self._way or temporary)}
        if own_image:
            of_the_host["PYTHONPYCACHEPREFIX"] = str(folder / "image" / "bytecode")
        environment = of_the_host | dict(environment)
        if isolation is Isolation.NAMESPACE:
            command = [own_python(), "-I", "-S", str(_ENTER_HOST), str(opt_ml.root), str(home), *command]
        else:
            command = [relocate(part, opt_ml.root) for part in command]
            environment = {name: relocate(value, opt_ml.root) for name, value in environment.items()}
            environment["SAGEMAKER_BASE_DIR"] = str(opt_ml.root)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._remove_way()
            raise JobFailedError(f"AlgorithmError: exec {command[0]!r}: {error.strerror}, exit code: 127") from error
        self._reader = threading.Thread(target=self._read, name=f"host-{self.pid}-output", daemon=True)
        self._waiter = threading.Thread(target=self._wait, name=f"host-{self.pid}-exit", daemon=True)

    @property
    def pid(self) -> int:
        """The process id, which is also the process group."""
        return self._process.pid

    def watch(self) -> None:
        """Begins to call `on_line` and `on_exit`; called once."""
        self._reader.start()
        self._waiter.start()

    def terminate(self) -> None:
        """Sends SIGTERM to the job's first process alone, as a container's runtime does."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL to the whole group."""
        _signal_group(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        with self._process.stdout as output:
            # A line may have no end; what is longer goes on as several.
            for line in iter(functools.partial(output.readline, _MOST_LINE_BYTES), b""):
                self._on_line(line.decode("utf-8", errors="replace").rstrip("\r\n"))

    def _wait(self) -> None:
        if hasattr(os, "waitid"):
            # Not reaped yet, so the group's id cannot belong to anybody else while we signal it.
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self.kill()
        code = self._process.wait()
        self.kill()
        self._reader.join(_DRAIN_SECONDS)
        if self._reader.is_alive():
            _LOG.warning("a process of host %d left its group and keeps its output open", self.pid)
        self._remove_way()
        self._on_exit(128 - code if code < 0 else code)

    def _remove_way(self) -> None:
        if self._way is not None:
            shutil.rmtree(self._way.parent, ignore_errors=True)


def _short_way_to(directory: Path) -> Path | None:
    """A link to a directory whose own path is too long for the Unix sockets in it, as data loaders make them.

    It lies with this process's temporary files, or in `/tmp` where their path is too long as well: short is what
    it has to be, and the files themselves stay where they are.

    Returns:
        The link, alone in a directory of its own; None where none is needed.
    """
    if len(os.fsencode(directory)) <= _LONGEST_FOR_SOCKETS:
        return None
    for place in (tempfile.gettempdir(), "/tmp"):  # noqa: S108 - mkdtemp's own, private directory in it
        way = Path(tempfile.mkdtemp(prefix="job-", dir=place)) / "tmp"
        if len(os.fsencode(way)) <= _LONGEST_FOR_SOCKETS:
            way.symlink_to(directory)
            return way
        way.parent.rmdir()
    return None


def end_orphans(*, group: int, identity: str, job_arn: str) -> bool:
    """Ends what is left of a process group that a dead server started.

    The group's id may have been given to strangers since: it is ours when its first process started when ours
    did, or when one of its members carries the job's ARN in its environment.

    Returns:
        Whether there was something to end.
    """
    if not process_identity.is_same_process(group, identity) and not _member_belongs_to(group, job_arn):
        return False
    return _signal_group(group, signal.SIGKILL)


def _member_belongs_to(group: int, job_arn: str) -> bool:
    wanted = f"TRAINING_JOB_ARN={job_arn}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and wanted in (folder / "environ").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def _signal_group(group: int, number: signal.Signals) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        # macOS answers this for a group of which only zombies are left.
        return False
    return True
