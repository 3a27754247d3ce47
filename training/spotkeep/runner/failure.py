"""The failure file, which holds the reason of a job's failure in the characters that the platform keeps."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence
from pathlib import Path

MAX_CHARACTERS = 1024
"""SageMaker takes the first 1,024 characters of the failure file as the job's FailureReason."""

_MAX_COMMAND_CHARACTERS = 200
_KERNEL_COUNTS = Path("/proc/vmstat")
_ENDED_BY_SIGTERM = re.compile(rb"\bSignalException: Process [0-9]+ got signal: %d\s*$" % signal.SIGTERM, re.MULTILINE)
"""Source: torch.distributed.elastic.multiprocessing.api."""
_OF_TORCHRUN = re.compile(rb"^.*\btorch[./]distributed[./]elastic\b.*$\n?", re.MULTILINE)
_ADVICE = re.compile(
    rb"(?:^.*\btorch[./]distributed[./]run\b[^*\n]*\n)?^.*[*]{9,}\n.*Setting OMP_NUM_THREADS .*\n.*[*]{9,}\n",
    re.MULTILINE,
)
"""torchrun's advice at its start, which is no reason. Source: `torch.distributed.run`."""
_WARNING = re.compile(rb"^(?:\[rank[0-9]+\]:)?\[W[0-9]{4} [0-9:.]+ \S+\.cpp:[0-9]+\].*$\n?", re.MULTILINE)
"""A warning of torch's own C++, such as one about a host name. Source: `c10/util/Logging.cpp`."""
_RANK_FAILED = re.compile(rb"^.*\btorch[./]distributed[./]elastic\b.*(failed \(exitcode: .*)$", re.MULTILINE)
"""torchrun's line about a rank, the first one of its report. Source: `PContext` of the same module."""
_CLOSING = re.compile(rb"^.*\btorch[./]distributed[./]elastic\b.*Sending process [0-9]+ closing signal", re.MULTILINE)
"""torchrun's line when it ends the other ranks, because one has failed or it has got a signal. Source: the same."""
_DEATH_SIGNAL = re.compile(
    rb"^.*\btorch[./]distributed[./]elastic\b.*Received %d death signal" % signal.SIGTERM, re.MULTILINE
)
"""torchrun's line when it has got SIGTERM. Source: `torch.distributed.elastic.agent.server.api`."""

_RANK_RAISED = re.compile(rb"^\[rank([0-9]+)\]: Traceback ", re.MULTILINE)
"""The beginning of a rank's own error, as torch prints it where `torch.distributed` is initialised."""

_OF_A_PEER = re.compile(r"gloo/transport|\b(?:DistBackendError|DistNetworkError|DistStoreError|OtherRankError)\b")
"""The errors of ranks that lose another one. Sources: gloo's `tcp/pair.cc`, `torch.distributed`, `spotkeep.errors`."""


def failure_text(*, command: Sequence[str] | str, exit_code: int, stderr_tail: bytes, memory_kills: int = 0) -> str:
    """Describe a command's failure and its last output. At most 1,024 characters.

    Args:
        command: The command and its arguments, or a block of lines for bash.
        exit_code: 128 + n when signal n killed it.
        stderr_tail: The end of its standard error.
        memory_kills: Number of processes that the kernel killed meanwhile because memory ran out.
    """
    if exit_code > 128:
        ending = f"was killed by signal {exit_code - 128} (exit code {exit_code})"
    else:
        ending = f"exited with code {exit_code}"
    named = block_named(command) if isinstance(command, str) else shlex.join(command)
    head = f"{_shortened(named)} {ending}"
    if memory_kills:
        killed = "a process" if memory_kills == 1 else f"{memory_kills} processes"
        head += f"; memory ran out, and the kernel killed {killed}: choose a larger instance type, or use less memory"
    # A progress bar rewrites its line: what it showed last is what counts.
    tail = _said_by_ranks(stderr_tail)
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in _decoded(tail).replace("\r\n", "\n").split("\n")]
    room = MAX_CHARACTERS - len(head) - 2
    kept: list[str] = []
    for line in reversed([line for line in lines if line]):
        if len(line) + 1 > room:
            if not kept:
                kept.append(line[-room:])
            break
        kept.append(line)
        room -= len(line) + 1
    return "\n".join([f"{head}:" if kept else head, *reversed(kept)])


def _said_by_ranks(stderr_tail: bytes) -> bytes:
    """Give the end of the error without torchrun's own report and torch's warnings, which have no reason.

    The report is longer than a failure file. Its first line stays, with the number of the rank. Of several ranks'
    errors the first one stays, because the others lose their connection to a rank that has failed.
    """
    report = _RANK_FAILED.search(stderr_tail)
    before = _before_sigterm(stderr_tail) if report is None else stderr_tail[: report.start()]
    if before == stderr_tail:
        return stderr_tail
    said = _WARNING.sub(b"", _OF_TORCHRUN.sub(b"", _ADVICE.sub(b"", before)))
    if first := _RANK_RAISED.search(said):
        said = re.sub(rb"(?m)^\[rank(?!%s\])[0-9]+\]: .*\n?" % first[1], b"", said)
    return said + (b"" if report is None else report[1]) if said.strip() else stderr_tail


def lost_its_peers(text: str) -> bool:
    """Say whether a command failed because a rank lost its connection to another one, which has the reason.

    Args:
        text: The reason of the failure, as `failure_text` gives it.
    """
    return _OF_A_PEER.search(text) is not None


def failed_by_itself(stderr_tail: bytes, *, exit_code: int) -> bool:
    """Say whether a command that got SIGTERM failed of its own accord, before it or at the same time.

    Args:
        stderr_tail: The end of its standard error.
        exit_code: Its exit code.
    """
    before = _before_sigterm(stderr_tail)
    by_signal = exit_code in (128 + signal.SIGTERM, 128 + signal.SIGKILL) or says_ended_by_sigterm(stderr_tail)
    return not by_signal or any(line.search(before) for line in (_RANK_RAISED, _RANK_FAILED, _CLOSING))


def _before_sigterm(stderr_tail: bytes) -> bytes:
    """Give the part before torchrun got SIGTERM."""
    signalled = _DEATH_SIGNAL.search(stderr_tail)
    return stderr_tail if signalled is None else stderr_tail[: signalled.start()]


def block_named(block: str) -> str:
    """Give a block in a few words, by its first line that is no comment."""
    lines = [line.strip() for line in block.splitlines()]
    first = next((line for line in lines if line and not line.startswith("#")), "")
    others = sum(map(bool, lines)) - 1
    return first if not others else f"{first} (and {others} more line{'s' if others > 1 else ''})"


def says_ended_by_sigterm(stderr_tail: bytes) -> bool:
    """Find torchrun's message that SIGTERM has ended it. Its exit code is 1 then, as for any error.

    Args:
        stderr_tail: The end of the command's standard error.
    """
    return _ENDED_BY_SIGTERM.search(stderr_tail) is not None


def memory_kills() -> int:
    """Give the number of processes that the kernel has killed since boot because memory ran out.

    It counts the whole machine with every control group. The first process to die may be a worker in a container of its
    own. It is 0 where the kernel does not show it.
    """
    try:
        lines = _KERNEL_COUNTS.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _decoded(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _shortened(command: str) -> str:
    return command if len(command) <= _MAX_COMMAND_CHARACTERS else command[: _MAX_COMMAND_CHARACTERS - 3] + "..."
