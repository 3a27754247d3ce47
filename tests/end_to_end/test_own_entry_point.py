"""An image's own entry point on the deployed app: launched, interrupted, resumed and billed, without a file of ours."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from spotkeep_jobs.record.states import NotificationKind, NotificationState, RunState
from spotkeep_local.capacity import CapacityScript, Interruption

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import DeployedApp

pytestmark = pytest.mark.long

BOOSTER = """\
import json, os, pathlib, sys, time

base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
assert sys.argv[1:] == ["train"], sys.argv
given = json.loads((base / "input/config/hyperparameters.json").read_text())
assert json.loads((base / "input/config/inputdataconfig.json").read_text())["train"]["ContentType"] == "text/csv"
rows = (base / "input/data/train/rows.csv").read_text().splitlines()
assert not list(pathlib.Path(base / "input/data").glob("spotkeep"))
saved = sorted((base / "checkpoints").glob("xgboost-checkpoint.*"), key=lambda path: int(path.suffix[1:]))
done = int(saved[-1].suffix[1:]) + 1 if saved else 0
print(f"begins at round {done} with {len(rows)} rows", flush=True)
for number in range(done, int(given["num_round"])):
    time.sleep(float(given["pause"]))
    (base / f"checkpoints/xgboost-checkpoint.{number}").write_text("trees")
    print(f"[{number}] train-rmse:{1 / (number + 1):.5f}", flush=True)
(base / "model/xgboost-model").write_text("trees")
"""
"""Stands for the program in the image of XGBoost: its argument, its files, its names of checkpoints."""


def of_trees(app: DeployedApp, folder: Path) -> dict[str, Any]:
    """Name the image's program, upload the data, and give the document."""
    program = folder / "booster.py"
    program.write_text(BOOSTER)
    app.control.image_program("sagemaker-xgboost:1.7-1", ["python3", str(program)])
    run, bucket = f"trees-{uuid.uuid4().hex[:8]}", app.connection["checkpoint_bucket"]
    app.client("s3").put_object(Bucket=bucket, Key=f"runs/{run}/data/rows.csv", Body=b"1,2\n3,4\n")
    return {
        "name": "trees",
        "run": run,
        "algorithm": "xgboost-1.7",
        "channels": {"train": {"uri": f"s3://{bucket}/runs/{run}/data/", "content_type": "text/csv"}},
        "hyperparameters": {"num_round": 40, "pause": 0.2},
        "max_run": "10m",
        "notify": ["completed", "interrupted", "resumed"],
    }


def test_a_built_in_algorithm_that_a_user_launches_goes_on_from_its_own_checkpoints(
    deployed_app: DeployedApp, tmp_path: Path
) -> None:
    document = of_trees(deployed_app, tmp_path)
    deployed_app.control.script_capacity(
        run=document["run"],
        script=CapacityScript(
            interruptions=(Interruption(at_uploads=2, notice=False, capacity_returns_after_seconds=0.2),)
        ),
    )
    job_file = tmp_path / "trees.yaml"
    job_file.write_text(yaml.safe_dump(document))
    launched = deployed_app.spotkeep("launch", str(job_file), "--yes", "--detach")
    assert launched.exit_code == 0, launched.output
    said = " ".join(launched.output.split())
    assert "nothing of Spotkeep beside it" in said
    assert "none: algorithm xgboost-1.7-1 runs" in said

    run = deployed_app.wait_until_ended(document["run"])
    assert (run.state, run.interruptions) == (RunState.COMPLETED, 1)
    assert run.cost is not None
    assert run.cost.training_seconds > 0
    log = deployed_app.spotkeep("logs", document["run"])
    begun = [line for line in log.stdout.splitlines() if "begins at round" in line]
    assert "begins at round 0 with 2 rows" in begun[0]
    assert len(begun) == 2
    assert "begins at round 0" not in begun[1]
    deployed_app.invoke("controller", {})
    kinds = {each.kind: each.state for each in deployed_app.table.notifications.of_run(document["run"])}
    assert kinds == dict.fromkeys(
        (NotificationKind.COMPLETED, NotificationKind.INTERRUPTED, NotificationKind.RESUMED), NotificationState.SENT
    )
    described = deployed_app.spotkeep("describe", document["run"])
    assert described.exit_code == 0
    assert "completed" in described.stdout
