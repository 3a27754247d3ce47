"""`spotkeep rehearse` at the command line: a good script passes, and a careless one fails with its reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spotkeep_cli.json_schemas import check_document

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long

PROJECT = Path(__file__).parents[2]
DEPLOYED = "--no-deploy"
"""One rehearsal deploys the app; the others take it as it is there."""

# Counts to 100 and keeps its count in a file of its own, which it never reads.
_FORGETFUL_SCRIPT = """\
import os, pathlib, time
import spotkeep

kept = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"]) / "count.txt"
count = 0
spotkeep.report_resumed(step=count)
while count < 100:
    time.sleep(0.05)
    count += 1
    # Whole or not at all: it may be killed here.
    kept.with_suffix(".new").write_text(str(count))
    kept.with_suffix(".new").replace(kept)
    spotkeep.report_saved(step=count)
    spotkeep.report_progress(step=count, total_steps=100)
model = pathlib.Path(os.environ["SM_MODEL_DIR"])
(model / "count.txt").write_text(str(count))
"""

# Counts to 100 and keeps its count when it is asked to end; then it ends with code 0, as if it were done.
_SCRIPT_THAT_ENDS_WITH_0 = """\
import os, pathlib, signal, sys, time
import spotkeep

kept = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"]) / "count.txt"
folder = os.open(kept.parent, os.O_RDONLY)
count = int(kept.read_text()) if kept.exists() else 0
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
spotkeep.report_resumed(step=count)
while count < 100:
    time.sleep(0.05)
    count += 1
    with kept.with_suffix(".new").open("w") as file:
        file.write(str(count))
        file.flush()
        os.fsync(file.fileno())  # an instance may lose its power
    kept.with_suffix(".new").replace(kept)
    os.fsync(folder)
    spotkeep.report_saved(step=count)
    spotkeep.report_progress(step=count, total_steps=100)
    if asked:
        sys.exit(0)
(pathlib.Path(os.environ["SM_MODEL_DIR"]) / "count.txt").write_text(str(count))
"""


def rehearse(
    app: DeployedApp, job: Path, tmp_path: Path, *arguments: str, command: str = "rehearse"
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    report = tmp_path / "report.json"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [str(Path(sys.prefix) / "bin" / "spotkeep"), command, str(job), "--report", str(report), *arguments],
        cwd=elsewhere,
        env={
            **os.environ,
            "SPOTKEEP_LOCAL_STATE": str(app.state_dir),
            "COLUMNS": "80",
            "HOME": str(elsewhere),
            "TMPDIR": str(elsewhere),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    # matplotlib, which draws the page, keeps its list of fonts in the user's cache.
    left = [path.relative_to(elsewhere) for path in elsewhere.rglob("*") if path.is_file()]
    assert [path for path in left if "matplotlib" not in path.parts[:2]] == []
    if not report.exists():
        return done, {}
    document = json.loads(report.read_text())
    check_document(command, document)
    return done, document


def counting_job(tmp_path: Path, script: str, *, more: str = "") -> Path:
    source = tmp_path / "source"
    source.mkdir()
    (source / "count.py").write_text(script)
    job = tmp_path / "job.yaml"
    job.write_text(f"name: counting\nsource: source\ncommand: python count.py\nmax_run: 10m\n{more}")
    return job


def test_the_default_job_loses_its_capacity_twice_and_ends_where_an_uninterrupted_run_ends(
    empty_aws: DeployedApp, tmp_path: Path
) -> None:
    done, report = rehearse(empty_aws, PROJECT / "examples" / "digits" / "job.yaml", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["verdict"] == "pass"
    assert report["identical_to_uninterrupted"] is True
    noticed, unannounced = report["interruptions"]
    assert (noticed["notice"], unannounced["notice"]) == (True, False)
    assert noticed["steps_repeated"] <= 1
    assert unannounced["resumed_from_step"] >= unannounced["durable_step"] > 0
    assert [notification["status"] for notification in report["notifications"]] == ["completed", "completed"]
    assert report["attempts"] == 1
    assert 0 < report["cost"]["billed_seconds"] < report["cost"]["training_seconds"]
    assert report["cost"]["redone_steps"] == noticed["steps_repeated"] + unannounced["steps_repeated"]
    assert {"deploy", "launch", "run", "total"} <= set(report["seconds"])
    # The prices were read as the deployment was made, and are said to be no real bill.
    assert report["cost"]["usd_per_hour"] == 0.115
    assert f"of {report['prices']}" in " ".join(done.stdout.split())
    assert "PASS" in done.stdout
    assert all(each["subject"] and each["body"] for each in report["notifications"])


@pytest.mark.torch
def test_two_hosts_are_taken_together_and_end_as_two_hosts_that_were_left_alone(
    own_app: DeployedApp, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    done, report = rehearse(own_app, PROJECT / "examples" / "two-hosts" / "job.yaml", tmp_path, DEPLOYED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["verdict"] == "pass"
    assert report["identical_to_uninterrupted"] is True
    assert report["hosts"] == 2
    noticed, unannounced = report["interruptions"]
    assert (noticed["notice"], unannounced["notice"]) == (True, False)
    assert noticed["steps_repeated"] <= 1
    assert unannounced["resumed_from_step"] >= unannounced["durable_step"] > 0
    for loss in (noticed, unannounced):
        assert [host["name"] for host in loss["hosts"]] == ["algo-1", "algo-2"]
        # Each of them has parts of the checkpoints.
        assert all(host["uploads"] for host in loss["hosts"])
    assert {host["not_copied"] for host in noticed["hosts"]} == {0}
    assert report["cost"]["training_seconds"] > 0


@pytest.mark.torch
def test_nodes_are_lost_and_won_back_and_end_as_nodes_that_were_left_alone(
    own_app: DeployedApp, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    done, report = rehearse(own_app, PROJECT / "examples" / "nodes" / "job.yaml", tmp_path, DEPLOYED)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["verdict"] == "pass"
    assert report["identical_to_uninterrupted"] is True
    assert {2, 4} == set(report["world_sizes"])
    assert report["world_sizes"][0] == report["world_sizes"][-1] == 4
    assert [each["notice"] for each in report["nodes_taken"]] == [True, False, True]
    assert (report["samples_doubled"], report["samples_missed"]) == (0, 0)
    assert report["checkpoints_compared"]["differing"] == []
    assert report["checkpoints_compared"]["steps"]
    (unannounced,) = [loss for loss in report["interruptions"] if not loss["notice"]]
    assert report["steps_repeated"] <= unannounced["steps_repeated"] + len(report["interruptions"]) - 1
    assert report["equal_on_any_world"] is True


def test_on_a_fleet_the_volume_follows_the_run_to_another_zone_and_to_the_next_instance(
    own_app: DeployedApp, tmp_path: Path
) -> None:
    job = PROJECT / "examples" / "digits" / "fleet.yaml"
    done, report = rehearse(own_app, job, tmp_path, DEPLOYED, command="rehearse-fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["verdict"] == "pass"
    assert report["identical_to_uninterrupted"] is True
    noticed, unannounced = report["interruptions"]
    assert (noticed["notice"], unannounced["notice"]) == (True, False)
    assert noticed["steps_repeated"] <= 1
    assert unannounced["resumed_from_step"] >= unannounced["durable_step"] > 0
    # An interval, and what is trained while the next save is written: on a busy machine that takes more than a step.
    assert unannounced["steps_repeated"] < 2 * 25
    first, second, third = report["zones"]
    assert first != second == third
    (volume,) = report["volumes"]["after"]
    assert report["instances"][0]["volume"] != volume
    assert [instance["volume"] for instance in report["instances"][1:]] == [volume, volume]
    assert report["volumes"]["before"] == report["snapshots"]["after"] == report["fleets"]["after"] == {}
    for instance in report["instances"]:
        assert list(instance["recovery_s"])[:3] == ["boot", "identity", "volume"]
    assert "PASS" in done.stdout


def test_on_a_fleet_a_script_that_ends_with_0_on_a_notice_goes_on(own_app: DeployedApp, tmp_path: Path) -> None:
    job = counting_job(tmp_path, _SCRIPT_THAT_ENDS_WITH_0, more="instance_types: [m5.large, m6i.large]\n")
    done, report = rehearse(own_app, job, tmp_path, DEPLOYED, command="rehearse-fleet")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (report["verdict"], len(report["instances"])) == ("pass", 3)
    noticed, unannounced = report["interruptions"]
    assert (noticed["notice"], noticed["steps_repeated"]) == (True, 0)
    assert noticed["resumed_from_step"] < unannounced["resumed_from_step"] < 100


def test_a_warm_pool_is_reused_extended_and_expires(own_app: DeployedApp, tmp_path: Path) -> None:
    job = PROJECT / "examples" / "digits" / "job.yaml"
    done, report = rehearse(own_app, job, tmp_path, "--set", "hyperparameters.steps=60", command="rehearse-pool")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (report["verdict"], len(report["jobs"]), len(report["pools"])) == ("pass", 2, 2)
    assert report["start_seconds"]["kept_host"] < report["start_seconds"]["new_host"]
    assert report["extended_seconds"] > 0


# The other share's jobs come while trials have their instances, on a busy machine as well.
_SLOWER = ("--set", "hyperparameters.seconds-per-step=0.8")


def test_trials_in_a_queue_that_lose_their_capacity_and_give_way_train_as_if_left_alone(
    deployed_app: DeployedApp, tmp_path: Path
) -> None:
    job = PROJECT / "examples" / "digits" / "sweep.yaml"
    in_a_queue = ("--set", "queue=cpu", "--set", "share=vision", "--set", "sweep.parallel=2", *_SLOWER)
    done, report = rehearse(
        deployed_app, job, tmp_path, DEPLOYED, "--set", "sweep.trials=4", "--seed", "1", *in_a_queue,
        command="rehearse-sweep",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (report["verdict"], report["reasons"], report["duplicates"]) == ("pass", [], [])
    assert report["trials"] == report["identical_to_uninterrupted"] == len(report["curves"]) == 4
    # Who gives way before its own loss of spot has lost its instance as well.
    assert report["interruptions"] == sum(curve["interruptions"] for curve in report["curves"]) >= 1
    assert report["preemptions"] == sum(curve["preemptions"] for curve in report["curves"]) >= 1
    assert all(job.startswith("AWSBatch") for curve in report["curves"] for job in curve["training_jobs"])
    assert report["ended_invocations"] >= 1
    # Four trials of nine steps, one of which went on.
    assert max(curve["steps"] for curve in report["curves"]) >= 27
    assert report["best"]["value"] > 0
    assert report["cost"]["billed_seconds"] > 0
    assert "PASS" in done.stdout


def test_a_script_that_ignores_its_checkpoints_fails_with_the_reason(deployed_app: DeployedApp, tmp_path: Path) -> None:
    job = counting_job(tmp_path, _FORGETFUL_SCRIPT)
    done, report = rehearse(deployed_app, job, tmp_path, DEPLOYED, "--interrupt-at", "80%", "--no-notice")
    assert done.returncode == 11, done.stdout + done.stderr
    assert report["verdict"] == "fail"
    # Its model is right all the same: only what was done twice gives it away.
    assert report["identical_to_uninterrupted"] is True
    (loss,) = report["interruptions"]
    assert loss["resumed_from_step"] == 0
    assert loss["steps_repeated"] >= 80
    assert "does not load what it saved" in " ".join(report["reasons"])
    assert "FAIL" in done.stdout
