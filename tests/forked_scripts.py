"""Runs of scripts, as many as a test wants: one process imports what is slow to import, and forks them."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.forking import environment_of_script

# Each run dies or gets a signal by itself: right after a step is done and before it is saved, or when it prints a text.
_RUNS = """
import gc, importlib, json, os, runpy, signal, sys

# What is imported stays: to look for garbage in it takes time, and a child would copy the memory that it looks through.
gc.disable()
for module in sys.argv[1:]:
    importlib.import_module(module)
from spotkeep import events
from tests.forking import exit_code_of, fork
gc.freeze()
gc.enable()

class Printed:
    def __init__(self, stream, text, interrupt):
        self.stream, self.text, self.interrupt = stream, text, interrupt

    def write(self, text):
        self.stream.write(text)
        if self.text in text:
            self.stream.flush()
            self.interrupt()
        return len(text)

    def __getattr__(self, name):
        return getattr(self.stream, name)

def run(before, script, options, environment, signal_name, at_step, at_text):
    os.environ.update(environment)
    sys.argv = [script, *options]
    sys.path.insert(0, os.path.dirname(script))
    def interrupt():
        os.kill(os.getpid(), getattr(signal, signal_name))
    report_progress = events.report_progress
    def progress(*, step, **others):
        report_progress(step=step, **others)
        if step == at_step:
            interrupt()
    events.report_progress = progress
    if at_text is not None:
        sys.stdout = Printed(sys.stdout, at_text, interrupt)
    exec(before, {})
    runpy.run_path(script, run_name="__main__")

for line in sys.stdin:
    sys.stdout.flush()
    child = fork(lambda: run(*json.loads(line)))
    print("\\nended", exit_code_of(child), flush=True)
"""


class Runs:
    """Runs scripts, one after another, each after what `before` does."""

    def __init__(self, process: subprocess.Popen[str], before: str) -> None:
        self._process, self._before = process, before

    def run(
        self,
        script: Path,
        base: Path,
        *options: str,
        kill: str = "SIGKILL",
        at_step: int | None = None,
        at_text: str | None = None,
        **environment: str,
    ) -> tuple[int, str]:
        """One run, with its checkpoints and its model in `base`; its exit code and what it printed."""
        places = {"SM_MODEL_DIR": str(base / "model"), "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints")}
        request = [self._before, str(script), options, {**places, **environment}, kill, at_step, at_text]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        output = []
        for line in self._process.stdout:
            if line.startswith("ended "):
                return int(line.split()[1]), "".join(output)
            output.append(line)
        pytest.fail("the runs have ended")


@pytest.fixture(scope="session")
def make_runs() -> Iterator[Callable[..., Runs]]:
    """Makes `Runs` of what its scripts import, and of what is to be done before each; what was imported is shared."""
    with ExitStack() as ended:

        @functools.cache
        def process_with(*imported: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", _RUNS, *imported],
                env=environment_of_script(SPOTKEEP_EVENTS="stdout", SPOTKEEP_PROGRESS_SECONDS="0"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            ended.enter_context(process)
            # To close its input does not end it: a process that a test forks meanwhile holds that open, as the workers
            # of a DataLoader do.
            ended.callback(process.terminate)
            return process

        yield lambda *imported, before="": Runs(process_with(*imported), before)
