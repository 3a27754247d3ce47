"""All contenders that save checkpoints, behind one interface that starts a save and says when it is durable.

Durable means that fsync has returned for every file. This module calls fsync for contenders that do not. A directory of
an older checkpoint is removed between the measurements, except ours, which the library removes by itself while it is
measured.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from spotkeep import Checkpointer
from spotkeep.events import EVENT_PREFIX

TORCHSNAPSHOT = ("torchsnapshot==0.1.0", "aiofiles==24.1.0", "importlib-metadata==8.5.0", "nest-asyncio==1.6.0", "zipp")
SAFETENSORS = ("safetensors==0.8.0",)
_ASYNC_SAVE = "DCP async_save, "
_TORCHSNAPSHOT_TAKE = "torchsnapshot async_take + fsync"


class Contender(Protocol):
    """One way to save a checkpoint."""

    def save(self) -> None:
        """Start a save. Return when the training may change its state again."""

    def durable_at(self) -> float | None:
        """Return when the last save was durable (seconds of `time.perf_counter`), None while it is not."""

    def clear(self) -> None:
        """Remove the files of the last save."""

    def close(self) -> None:
        """End the background threads and processes."""


class _Saver:
    """The parts that the other contenders share, a directory of their own and the time of the last save."""

    def __init__(self, workload: Any, directory: Path) -> None:
        self.workload = workload
        self.directory = directory
        self._durable_at: float | None = None

    def save(self) -> None:
        self._durable_at = None
        self.directory.mkdir(parents=True)
        self.write()
        self._durable_at = time.perf_counter()

    def write(self) -> None:
        raise AssertionError("each kind of saver writes in its own way")

    def durable_at(self) -> float | None:
        return self._durable_at

    def clear(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def close(self) -> None:
        self.clear()


class _TorchSave(_Saver):
    """torch.save into a file, then fsync."""

    def write(self) -> None:
        with (self.directory / "state.pt").open("wb") as file:
            import_module("torch").save(self.workload.flat_state, file)
        sync_files(self.directory)


class _Safetensors(_Saver):
    """safetensors' save_file, then fsync."""

    def write(self) -> None:
        import_module("safetensors.torch").save_file(self.workload.flat_state, self.directory / "state.safetensors")
        sync_files(self.directory)


class _DistributedSave(_Saver):
    """torch.distributed.checkpoint.save. Its file writer calls fsync by itself."""

    def write(self) -> None:
        _dcp().save(self.workload.flat_state, storage_writer=_dcp().FileSystemWriter(self.directory), no_dist=True)


class _AsyncSave(_Saver):
    """torch.distributed.checkpoint.async_save as it comes."""

    def save(self) -> None:
        self._durable_at = None
        self._future = self.begin()
        self._future.add_done_callback(self._done)

    def begin(self) -> Future[Any]:
        writer = _dcp().FileSystemWriter(self.directory)
        future: Future[Any] = _dcp().async_save(self.workload.flat_state, storage_writer=writer, no_dist=True)
        return future

    def _done(self, future: Future[Any]) -> None:
        if future.exception() is None:
            self._durable_at = time.perf_counter()

    def durable_at(self) -> float | None:
        if self._future.done():
            self._future.result()
        return self._durable_at


class _CachedAsyncSave(_AsyncSave):
    """async_save with a stager that is kept, so that its copy goes into warm memory."""

    def __init__(self, workload: Any, directory: Path) -> None:
        super().__init__(workload, directory)
        self._stager = self.make_stager(shared=False)

    @staticmethod
    def make_stager(*, shared: bool) -> Any:
        staging = import_module("torch.distributed.checkpoint.staging")
        # Pinned memory and non-blocking copies need a GPU. Staging in the background would have to be waited for
        # before the next step, which changes everything in place.
        options = staging.StagingOptions(
            use_pinned_memory=False, use_shared_memory=shared, use_async_staging=False, use_non_blocking_copy=False
        )
        return staging.DefaultStager(options)

    def begin(self) -> Future[Any]:
        future: Future[Any] = _dcp().async_save(
            self.workload.flat_state,
            storage_writer=_dcp().FileSystemWriter(self.directory),
            async_stager=self._stager,
            no_dist=True,
        )
        return future

    def close(self) -> None:
        self._stager.close()
        super().close()


class _ProcessAsyncSave(_CachedAsyncSave):
    """The same through shared memory into a process that writes, out of reach of this one's interpreter lock."""

    def __init__(self, workload: Any, directory: Path) -> None:
        super().__init__(workload, directory)
        self._stager = self.make_stager(shared=True)
        distributed = import_module("torch.distributed")
        # Its writer process insists on a process group, be it of one.
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", str(_free_port()))
        distributed.init_process_group("gloo", rank=0, world_size=1)
        # The process starts with the first save.
        with _quiet_children():
            self._begin({"first": import_module("torch").zeros(1)}).result()
        self.clear()

    def begin(self) -> Future[Any]:
        return self._begin(self.workload.flat_state)

    def _begin(self, state: Any) -> Future[Any]:
        future: Future[Any] = _dcp().async_save(
            state,
            storage_writer=_dcp().FileSystemWriter(self.directory),
            async_stager=self._stager,
            async_checkpointer_type=import_module(
                "torch.distributed.checkpoint.state_dict_saver"
            ).AsyncCheckpointerType.PROCESS,
        )
        return future

    def close(self) -> None:
        super().close()
        import_module("torch.distributed").destroy_process_group()


class _Torchsnapshot(_AsyncSave):
    """torchsnapshot's async_take, then fsync, which it does not call."""

    def begin(self) -> Future[Any]:
        torchsnapshot = import_module("torchsnapshot")
        state = torchsnapshot.StateDict(**self.workload.state)
        pending = torchsnapshot.Snapshot.async_take(path=str(self.directory), app_state={"state": state})
        future: Future[Any] = Future()

        def finish() -> None:
            try:
                pending.wait()
                sync_files(self.directory)
            except BaseException as error:  # noqa: BLE001 - it is raised where the future is asked
                future.set_exception(error)
            else:
                future.set_result(None)

        threading.Thread(target=finish).start()
        return future


class _Spotkeep:
    """Ours, in a loop that saves when a save is due. It says by itself, in a `saved` event, when one is durable."""

    def __init__(self, workload: Any, directory: Path) -> None:
        os.environ["SPOTKEEP_EVENTS"] = "stdout"
        self._directory = directory
        self._step = 0
        self._saved_step = 0
        self._called_at = 0.0
        self._events = _Events(sys.stdout)
        sys.stdout = self._events
        self._checkpointer = Checkpointer(workload.live, directory=directory, every_steps=1, keep_last=2)
        self._checkpointer.__enter__()

    def save(self) -> None:
        self._events.saved_seconds = None
        self._called_at = time.perf_counter()
        self._complete_step()
        self._saved_step = self._step
        self._checkpointer.save_if_due()

    def durable_at(self) -> float | None:
        if self._step == self._saved_step:
            self._complete_step()  # the first question comes after the next step
        # To be asked makes it say so; the event has the seconds that the save really took.
        if self._checkpointer.durable_step == self._saved_step and self._events.saved_seconds is not None:
            return self._called_at + self._events.saved_seconds
        if self._events.failure is not None:
            raise OSError(self._events.failure)
        return None

    def _complete_step(self) -> None:
        self._step += 1
        self._checkpointer.complete_step()

    def clear(self) -> None:
        """Do nothing, since the library removes old checkpoints itself."""

    def close(self) -> None:
        self._checkpointer.__exit__(None, None, None)
        sys.stdout = self._events.stream
        shutil.rmtree(self._directory, ignore_errors=True)


class _Events(io.TextIOBase):
    """Standard output that keeps job events to itself, and notes how a save went."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.saved_seconds: float | None = None
        self.failure: str | None = None

    def write(self, text: str) -> int:
        if not text.startswith(EVENT_PREFIX):
            return int(self.stream.write(text))
        event = json.loads(text[len(EVENT_PREFIX) :])
        if event["event"] == "saved":
            self.saved_seconds = event["seconds"]
        elif event["event"] == "save-failed":
            self.failure = event["problem"]
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def isatty(self) -> bool:
        return bool(self.stream.isatty())

    def fileno(self) -> int:
        return int(self.stream.fileno())


OURS = "spotkeep"
BASELINE = "torch.save + fsync"
CONTENDERS: dict[str, Callable[[Any, Path], Contender]] = {
    OURS: _Spotkeep,
    BASELINE: _TorchSave,
    "safetensors + fsync": _Safetensors,
    "DCP save": _DistributedSave,
    f"{_ASYNC_SAVE}default": _AsyncSave,
    f"{_ASYNC_SAVE}cached, thread": _CachedAsyncSave,
    f"{_ASYNC_SAVE}cached, process": _ProcessAsyncSave,
    _TORCHSNAPSHOT_TAKE: _Torchsnapshot,
}
ASYNC_SAVES = tuple(name for name in CONTENDERS if name.startswith(_ASYNC_SAVE))


def copies_beside(names: Iterable[str]) -> int:
    """Return the number of whole copies of the state that these contenders have at once, Spotkeep's left out.

    A stager that is kept has one all the time. The others have theirs one after the other.
    """
    asynchronous = [CONTENDERS[name] for name in names if name in (*ASYNC_SAVES, _TORCHSNAPSHOT_TAKE)]
    kept = sum(contender in (_CachedAsyncSave, _ProcessAsyncSave) for contender in asynchronous)
    return kept + (len(asynchronous) > kept)


def missing() -> dict[str, str]:
    """Say which contenders cannot run here, and why."""
    needs = {"safetensors + fsync": "safetensors", _TORCHSNAPSHOT_TAKE: "torchsnapshot"}
    found = {}
    for name, module in needs.items():
        try:
            import_module(module)
        except Exception as error:  # noqa: BLE001 - old libraries fail in many ways with a new torch; all are reported
            found[name] = f"{type(error).__name__}: {error}"
    return found


def sync_files(directory: Path) -> None:
    """Wait until the disk has every file below a directory, and the directories."""
    for path in [*directory.rglob("*"), directory, directory.parent]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _dcp() -> Any:
    return import_module("torch.distributed.checkpoint")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _quiet_children() -> Iterator[None]:
    """Give a process that starts now no standard error, since torch's writer logs each request there."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def main() -> int:
    """Install the packages of the comparison alone, away from the environment that the locks describe."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint.contenders", description=main.__doc__)
    parser.add_argument("--install", type=Path, required=True, metavar="DIRECTORY")
    target = parser.parse_args().install
    sys.path.insert(0, str(target))
    if missing():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(target), *SAFETENSORS, *TORCHSNAPSHOT], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
