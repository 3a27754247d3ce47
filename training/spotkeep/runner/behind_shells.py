"""Finds the programs that a shell runs, because a signal that only the shell gets does not reach them.

A shell waits for its program and passes no signal on. So the runner sends the signal to the shell's programs, also
through nested shells. It leaves a program's own children (a data loader's workers) alone.

The programs of a pipeline are started together. One that reads the output of another (`tee`, `grep`) ends when its
input ends. If it died of the signal first, the other could not print, and so could not save. It gets the signal only if
it has a handler for it. A shell that ignores the signal (`trap "" TERM`) keeps it from its programs.

macOS shows neither pipes nor handlers, so every program gets the signal there.

Source: proc(5), "/proc/pid/stat", "/proc/pid/status".
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_PROCESSES = Path("/proc")
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_BUSYBOX = "busybox"
_INPUT, _OUTPUTS = 0, (1, 2)


@dataclass(frozen=True)
class _Process:
    parent: int
    name: str


@dataclass(frozen=True)
class Receivers:
    """The targets of a signal that reaches a process.

    Attributes:
        programs: The programs that shells have started, or the process itself where it is no shell.
        shells: Shells that run nothing at the moment.
    """

    programs: tuple[int, ...]
    shells: tuple[int, ...]


def receivers_behind(shell: int, signum: int, *, processes: Path = _PROCESSES) -> Receivers:
    """Find the processes for which a signal to this one is meant.

    Args:
        shell: A process id.
        signum: The signal.
        processes: The folder in which the kernel shows processes. Where there is none, `ps` shows them.
    """
    known = _known(processes)
    children: dict[int, list[int]] = {}
    for pid, process in known.items():
        children.setdefault(process.parent, []).append(pid)
    programs, shells, seen, open_ends = [], [], set(), [shell]
    while open_ends:
        pid = open_ends.pop()
        seen.add(pid)
        if not _is_shell(pid, known, processes):
            programs.append(pid)
        elif _has(signum, "SigIgn", pid, processes):
            continue
        elif pid in children:
            open_ends += children[pid]
        else:
            shells.append(pid)
    written = {pid: {_pipe(pid, end, processes) for end in _OUTPUTS} for pid in seen}
    return Receivers(
        programs=tuple(pid for pid in sorted(programs) if not _only_reads(pid, signum, written, processes)),
        shells=tuple(sorted(shells)),
    )


def _only_reads(pid: int, signum: int, written: dict[int, set[str]], processes: Path) -> bool:
    """Say whether it reads the output of another of them, and has no handler for the signal."""
    reads = _pipe(pid, _INPUT, processes)
    is_read = bool(reads) and any(reads in pipes for other, pipes in written.items() if other != pid)
    return is_read and not _has(signum, "SigCgt", pid, processes)


def _known(processes: Path) -> dict[int, _Process]:
    if not processes.is_dir():
        return _known_to_ps()
    known = {}
    for folder in processes.iterdir():
        if folder.name.isdigit():
            try:
                head, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
                known[int(folder.name)] = _Process(parent=int(rest.split()[1]), name=head.partition("(")[2])
            except (OSError, ValueError, IndexError):
                continue  # It has ended meanwhile.
    return known


def _known_to_ps() -> dict[int, _Process]:
    try:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,comm="], capture_output=True, check=False).stdout
    except OSError:
        return {}
    rows = (line.split(None, 2) for line in listed.decode("utf-8", "replace").splitlines())
    return {int(row[0]): _Process(parent=int(row[1]), name=PurePosixPath(row[2]).name) for row in rows if len(row) == 3}


def _is_shell(pid: int, known: dict[int, _Process], processes: Path) -> bool:
    """Tell a shell by the program that the process runs. A script that `#!` started has the script's name instead."""
    try:
        program = (processes / str(pid) / "exe").readlink().name
    except OSError:
        program = known[pid].name if pid in known else ""
    return program in _SHELLS or (program == _BUSYBOX and pid in known and known[pid].name in _SHELLS)


def _pipe(pid: int, descriptor: int, processes: Path) -> str:
    try:
        target = str((processes / str(pid) / "fd" / str(descriptor)).readlink())
    except OSError:
        return ""
    return target if target.startswith("pipe:") else ""


def _has(signum: int, what: str, pid: int, processes: Path) -> bool:
    """Say whether a process catches (`SigCgt`) or ignores (`SigIgn`) a signal. False where it has ended."""
    try:
        lines = (processes / str(pid) / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    mask = next((line.split()[1] for line in lines if line.startswith(f"{what}:")), "0")
    return bool(int(mask, 16) >> (signum - 1) & 1)
