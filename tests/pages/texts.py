"""Outputs that pages show and that no command of theirs prints. Each is made anew, in a folder of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spotkeep_constructs.settings import Settings
from tests.forking import environment_of_script

_WIDTH: Final = 140
_FOLDER_OF_JOBS: Final = "/opt/ml/checkpoints"

_TRAINING: Final = """
import os, signal, sys, time
from spotkeep import Checkpointer

class Optimizer:
    def __init__(self, lr):
        self.param_groups = [{"lr": lr}]

    def state_dict(self):
        return {"param_groups": [dict(group) for group in self.param_groups]}

    def load_state_dict(self, state):
        self.param_groups = [dict(group) for group in state["param_groups"]]

state = {"model": {"weight": 0.0}, "optimizer": Optimizer(float(sys.argv[2]))}
"""


def _script(folder: Path, code: str, *arguments: str, **variables: str) -> str:
    """Run a script with checkpoints in the folder, and return its output."""
    script = folder / "train.py"
    script.write_text(_TRAINING + textwrap.dedent(code))
    checkpoints = folder / "checkpoints"
    done = subprocess.run(
        [sys.executable, script.name, "--lr", *(arguments or ("0.1",))], cwd=folder, text=True, check=False,
        env=environment_of_script(SPOTKEEP_CHECKPOINT_DIR=str(checkpoints), **variables),
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.replace(str(checkpoints), _FOLDER_OF_JOBS)


def _wrapped(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(
        part for line in lines for part in textwrap.wrap(line, _WIDTH, break_on_hyphens=False, drop_whitespace=True)
    )


def another_training(folder: Path) -> str:
    """A second training of a process without a name."""
    printed = _script(
        folder,
        """
        for _ in range(2):
            with Checkpointer(state, every_steps=5) as checkpointer:
                for step in checkpointer.steps(10):
                    pass
        """,
    )
    return _wrapped(printed[printed.index("spotkeep.errors") :])


def other_settings(folder: Path) -> str:
    """A start with another learning rate, in place of the interrupted one."""
    code = """
        with Checkpointer(state, every_steps=5) as checkpointer:
            for step in checkpointer.steps(20):
                if step == 14 and sys.argv[2] == "0.1":
                    checkpointer.wait()
                    os.kill(os.getpid(), signal.SIGKILL)
        """
    _script(folder, code, "0.1")
    printed = _script(folder, code, "0.01")
    return _wrapped(printed[printed.index("the training goes on") :])


def events_of_a_notice(folder: Path) -> str:
    """A notice in the 13th step of a training that saves every tenth."""
    code = """
        with Checkpointer(state, every_steps=10) as checkpointer:
            for step in checkpointer.steps(20):
                if step == 12:
                    checkpointer.wait()  # The save of the tenth step is done before the notice.
                    os.kill(os.getpid(), signal.SIGTERM)
        """
    printed = _script(folder, code, SPOTKEEP_EVENTS="stdout")
    events = [line for line in printed.splitlines() if line.startswith("spotkeep-event: ")]
    return "\n".join(line for line in events if '"saved"' in line or '"notice"' in line)


def exit_with_an_error(folder: Path) -> str:
    """The failure file of a script that raises."""
    (folder / "train.py").write_text(
        "import sys; print('so far so good', file=sys.stderr); raise ValueError('no data')\n"
    )
    subprocess.run(
        [sys.executable, "-m", "spotkeep", "run", "--", "python", "train.py"], cwd=folder, check=False,
        env=environment_of_script(SAGEMAKER_BASE_DIR=str(folder / "ml"), PYTHONNODEBUGRANGES="1"), capture_output=True,
    )  # fmt: skip
    return (folder / "ml/output/failure").read_text().replace(str(folder), "").replace('"/train.py"', '"train.py"')


def exit_on_notice(folder: Path) -> str:
    """A script that takes a notice for its end, under the runner."""
    (folder / "train.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    environment = environment_of_script(
        SAGEMAKER_BASE_DIR=str(folder / "ml"), SPOTKEEP_CHECKPOINT_DIR=str(folder / "checkpoints"),
        SPOTKEEP_EVENTS="stdout",
    )  # fmt: skip
    runner = subprocess.Popen(
        [sys.executable, "-m", "spotkeep", "run", "--", sys.executable, "train.py"], cwd=folder, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert runner.stdout is not None
    for line in runner.stdout:
        if line.strip() == "ready":
            break
    runner.send_signal(signal.SIGTERM)
    lines: list[str] = []
    for line in runner.stdout:
        lines += [line] if lines or '"exit-on-notice"' in line else []
        if '"event":"exit"' in line:
            break
    # It stays until the platform ends it, or the notice is over.
    runner.kill()
    runner.wait()
    runner.stdout.close()
    return "".join(lines)


def wrong_settings(folder: Path) -> str:
    """The refusal of settings by the app."""
    given = {"deployment": "Lab!", "drills": "many", "notify_email": "a@example.com"}
    command = " ".join(f"-c {name}={value}" for name, value in given.items())
    try:
        Settings.from_context(given)
    except ValueError as error:
        return f"$ cdk synth {command}\n{error}"
    return "nothing was refused"


TEXTS: Final[dict[str, Callable[[Path], str]]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        another_training,
        events_of_a_notice,
        exit_on_notice,
        exit_with_an_error,
        other_settings,
        wrong_settings,
    )
}
