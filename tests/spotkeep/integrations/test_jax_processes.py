"""Arrays that several processes of JAX hold together are restored by any number of processes, to the bit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from tests.forking import environment_of_script
from tests.ports import free_ports

pytest.importorskip("jax")
pytest.importorskip("optax")

pytestmark = [pytest.mark.jax, pytest.mark.long]

LIMIT_SECONDS = 600
ELEMENTS = 48 * 96
"""Elements of a layer of `jax_processes`."""
DIVIDED_LAYERS = 4


def train(directory, *, processes, steps):
    """Train up to a step and give what each process printed."""
    job = {"directory": str(directory), "processes": processes, "port": free_ports(), "steps": steps}
    script = Path(__file__).parent / "jax_processes.py"
    outputs = [directory.parent / f"{directory.name}-{processes}-{process}" for process in range(processes)]
    running = []
    for process, output in enumerate(outputs):
        # Into files: a full pipe would hold one process up, and all others wait for it.
        with output.with_suffix(".out").open("w") as out, output.with_suffix(".err").open("w") as err:
            command = [sys.executable, script, json.dumps({**job, "process": process})]
            running.append(subprocess.Popen(command, env=environment_of_script(), stdout=out, stderr=err))
    codes = [one.wait(LIMIT_SECONDS) for one in running]
    assert codes == [0] * processes, [output.with_suffix(".err").read_text()[-2000:] for output in outputs]
    return [json.loads(output.with_suffix(".out").read_text().splitlines()[-1]) for output in outputs]


@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 2)])
def test_any_number_of_processes_goes_on_to_the_bits_of_a_run_that_was_left_alone(tmp_path, first, then):
    (alone,) = train(tmp_path / "alone", processes=1, steps=5)
    saved = train(tmp_path / "run", processes=first, steps=3)
    assert [one["began_at"] for one in saved] == [0] * first
    resumed = train(tmp_path / "run", processes=then, steps=5)
    assert [one["began_at"] for one in resumed] == [3] * then
    assert [one["arrays"] for one in resumed] == [alone["arrays"]] * then


def test_no_element_is_written_twice(tmp_path):
    train(tmp_path / "run", processes=2, steps=2)
    manifest = CheckpointDirectory(tmp_path / "run").read_manifest(2)
    volumes = [sum(saved.box.volume for saved in boxes) for boxes in manifest.divided]
    # Adam keeps two averages of each layer that is divided among the processes.
    assert volumes == [ELEMENTS] * 3 * DIVIDED_LAYERS
