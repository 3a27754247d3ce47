"""A `ModelTrainer` script with one changed line, on the deployed app, with a user's permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import RunState
from spotkeep_local.capacity import CapacityScript, Interruption

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import DeployedApp

# The SDK warns of its own modules.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

SCRIPT = """\
import os, pathlib, sys, time
from spotkeep import Checkpointer

print("given", sys.argv[1:], flush=True)
done = {"count": 0}
with Checkpointer({"done": done}, every_steps=1) as checkpointer:
    for step in checkpointer.steps(int(sys.argv[2])):
        done["count"] += 1
        time.sleep(0.05)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights").write_text(str(done["count"]))
"""


def test_it_is_a_run_that_survives_an_interruption_and_ends_as_the_sdks_own_resource_says(
    deployed_app: DeployedApp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(deployed_app.state_dir))
    from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode, StoppingCondition

    from spotkeep_client.sagemaker import SpotTrainer

    (tmp_path / "train.py").write_text(SCRIPT)
    moment = Interruption(at_step=10, notice=False, capacity_returns_after_seconds=0.5)
    run = f"by-trainer-{tmp_path.stat().st_ino}"
    deployed_app.control.script_capacity(run=run, script=CapacityScript(interruptions=(moment,)))
    trainer = SpotTrainer(
        local=True,
        run=run,
        training_image="000000000000.dkr.ecr.us-east-1.amazonaws.com/any:1",
        source_code=SourceCode(source_dir=str(tmp_path), entry_script="train.py"),
        compute=Compute(instance_type="ml.m5.large", instance_count=1, enable_managed_spot_training=True),
        stopping_condition=StoppingCondition(max_runtime_in_seconds=600, max_wait_time_in_seconds=1_200),
        checkpoint_config=CheckpointConfig(),
        hyperparameters={"steps": 120},
        base_job_name="by-trainer",
    )
    trainer.train(wait=True, logs=True)

    ended = deployed_app.run(run)
    assert (ended.state, ended.place.capacity, ended.interruptions, ended.adopted) == (
        RunState.COMPLETED,
        "spot",
        1,
        False,
    )
    job = trainer.latest_training_job
    assert job is not None
    assert (job.training_job_name, job.training_job_status) == (f"{run}-1", "Completed")
    assert job.model_artifacts.s3_model_artifacts == ended.output_uri
    assert "given ['--steps', '120']" in capsys.readouterr().out
