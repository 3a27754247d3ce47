"""The processes of the machine, as the kernel or `ps` shows them. Source: proc(5), "/proc/pid/stat"."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PROCESSES = Path("/proc")
_ZOMBIE = "Z"


@dataclass(frozen=True)
class Process:
    """One process.

    Attributes:
        parent: The process id of its parent.
        session: The id of its session. `ps` gives its process group instead, since macOS shows no sessions.
        name: The name of its program.
        state: The kernel's letter for its state, for example `T` for a stopped one.
    """

    parent: int
    session: int
    name: str
    state: str

    @property
    def has_ended(self) -> bool:
        """True when it has ended, and its parent has not asked for its exit code yet."""
        return self.state.startswith(_ZOMBIE)


def known_processes(processes: Path = PROCESSES) -> dict[int, Process]:
    """Give all processes by their ids.

    Args:
        processes: The folder in which the kernel shows processes. Where there is none, `ps` shows them.
    """
    if not processes.is_dir():
        return _known_to_ps()
    known = {}
    for folder in processes.iterdir():
        if folder.name.isdigit():
            try:
                head, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
                state, parent, _, session = rest.split()[:4]
                known[int(folder.name)] = Process(
                    parent=int(parent), session=int(session), name=head.partition("(")[2], state=state
                )
            except (OSError, ValueError, IndexError):
                continue  # It has ended meanwhile.
    return known


def descendants_of(pid: int, known: Mapping[int, Process]) -> set[int]:
    """Give the ids of a process's children, of their children, and so on.

    Args:
        pid: The id of the process.
        known: All processes.
    """
    children: dict[int, list[int]] = {}
    for each, process in known.items():
        children.setdefault(process.parent, []).append(each)
    found: set[int] = set()
    open_ends = [pid]
    while open_ends:
        new = [each for each in children.get(open_ends.pop(), ()) if each not in found]
        found.update(new)
        open_ends += new
    return found


def _known_to_ps() -> dict[int, Process]:
    command = ["ps", "-A", "-o", "pid=,ppid=,pgid=,state=,comm="]
    try:
        listed = subprocess.run(command, capture_output=True, check=False).stdout
    except OSError:
        return {}
    rows = (line.split(None, 4) for line in listed.decode("utf-8", "replace").splitlines())
    return {
        int(row[0]): Process(parent=int(row[1]), session=int(row[2]), name=PurePosixPath(row[4]).name, state=row[3])
        for row in rows
        if len(row) == 5
    }
