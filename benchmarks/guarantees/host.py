"""A process that has one library loaded, and forks the attempts of it: ``python -m benchmarks.guarantees.host NAME``.

A line of JSON in says what to do on how many ranks. Two lines come out, with the numbers of the processes, and with the
codes by which they ended. A rank writes its answer into a file.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.guarantees import libraries
from benchmarks.report import PROJECT, STATE

LIMIT_SECONDS = 120.0


class Host:
    """The process of one library, as the one that asks sees it.

    Attributes:
        name: The name of the library in `LIBRARIES`.

    Args:
        name: That name.
        scratch: A folder for the answers.
    """

    def __init__(self, name: str, scratch: Path) -> None:
        self.name = name
        self._scratch = scratch
        self._count = 0
        paths = os.pathsep.join((str(PROJECT), str(PROJECT / "training")))
        self._log = (scratch / f"{name}.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "benchmarks.guarantees.host", name],
            env={
                **os.environ,
                "PYTHONPATH": paths,
                "OMP_NUM_THREADS": "1",
                "SPOTKEEP_EVENTS": "none",
                "JAX_PLATFORMS": "cpu",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        self._requests, self._lines = self._process.stdin, self._process.stdout
        self.facts: dict[str, Any] = self._line()

    def start(self, folder: Path, action: str, *, ranks: int = 1, **options: Any) -> Attempt:
        """Begin an attempt. One at a time."""
        self._count += 1
        out = self._scratch / f"answer-{self._count}"
        request = {"do": action, "folder": str(folder), "ranks": ranks, "out": str(out), **options}
        print(json.dumps(request), file=self._requests, flush=True)
        return Attempt(out, self._line(), self)

    def run(self, folder: Path, action: str, *, ranks: int = 1, **options: Any) -> list[dict[str, Any]]:
        """Do an attempt. Gives the answer of each rank."""
        return self.start(folder, action, ranks=ranks, **options).answers()

    def ends(self) -> list[int]:
        """Wait for the end of the attempt."""
        found: list[int] = self._line()
        return found

    def close(self) -> None:
        """End it."""
        self._requests.close()
        self._process.wait()
        self._lines.close()
        self._log.close()

    def _line(self) -> Any:
        line = self._lines.readline()
        if not line:
            raise RuntimeError(f"the library cannot be loaded; see {self._log.name}")
        return json.loads(line)


class Attempt:
    """Processes that save or restore.

    Attributes:
        pids: Their numbers.
    """

    def __init__(self, out: Path, pids: list[int], host: Host) -> None:
        self._out, self.pids, self._host = out, pids, host

    def saved(self) -> list[int]:
        """Give the steps that the library has called saved so far."""
        path = Path(f"{self._out}.saved")
        return [int(step) for step in path.read_text().split()] if path.exists() else []

    def ended(self) -> bool:
        """Say if the first process has answered."""
        return Path(f"{self._out}.0").exists()

    def answers(self) -> list[dict[str, Any]]:
        """Wait for the end, and give each rank's answer."""
        codes = self._host.ends()
        found = []
        for rank, code in enumerate(codes):
            path = Path(f"{self._out}.{rank}")
            found.append(json.loads(path.read_text()) if path.exists() else {"error": f"it ended with {code}"})
        return found


def main() -> None:
    """Load a library, and fork attempts of it."""
    libraries.add_contenders(STATE)
    library = libraries.LIBRARIES[sys.argv[1]]()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    library.load()
    gc.freeze()
    print(json.dumps({"name": library.name, "verbs": library.verbs}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        pids = [_fork(library, request, rank, port) for rank in range(request["ranks"])]
        print(json.dumps(pids), file=answers, flush=True)
        print(json.dumps(_ends(pids)), file=answers, flush=True)


def _fork(library: Any, request: Mapping[str, Any], rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        draft = Path(f"{request['out']}.{rank}.draft")
        draft.write_text(json.dumps(_attempt(library, request, rank, port)))
        draft.rename(draft.with_suffix(""))
    except BaseException:  # noqa: BLE001 - a process ends here
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _ends(pids: list[int]) -> list[int]:
    codes: dict[int, int] = {}
    limit = time.monotonic() + LIMIT_SECONDS
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > limit:
                    os.kill(pid, 9)
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def _attempt(library: Any, request: Mapping[str, Any], rank: int, port: int) -> dict[str, Any]:
    folder = Path(request["folder"])
    libraries.DIVIDED = request.get("divided", True)
    libraries.ROWS *= request.get("larger", 1)
    libraries.ADDED = request.get("added", 0.0)
    if "attempt" in request:
        os.environ["SPOTKEEP_ATTEMPT"] = str(request["attempt"])
    try:
        if request["ranks"] > 1:
            library.meet(rank, request["ranks"], port)
        answer = _restored(library, folder) if request["do"] == "restore" else _trained(library, folder, request, rank)
        if request["ranks"] > 1:
            library.part()
    except BaseException as error:  # noqa: BLE001 - it is the answer
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}
    return answer


def _restored(library: Any, folder: Path) -> dict[str, Any]:
    step, found = library.restore(folder)
    numpy = import_module("numpy")
    first = libraries.first_values()
    values = {value for name in first for value in numpy.unique(numpy.asarray(found[name]) - first[name])}
    return {"step": int(step), "values": sorted(map(float, values))[:5]}


def _trained(library: Any, folder: Path, request: Mapping[str, Any], rank: int) -> dict[str, Any]:
    before = _written_bytes()
    with open(f"{request['out']}.saved", "a", buffering=1) as saved:  # noqa: PTH123 - it is written line by line
        library.train(folder, request["steps"], lambda step: print(step, file=saved) if rank == 0 else None)
    return {"written": _written_bytes() - before}


def _written_bytes() -> int:
    """Count the bytes that this process has given to `write` and its kin, those to sockets too."""
    for line in Path("/proc/self/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
