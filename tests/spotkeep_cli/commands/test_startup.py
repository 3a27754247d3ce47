"""`spotkeep startup`: the table, the bars, the comparison with earlier runs, and the advice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.errors import ExitCode
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_jobs.record.record import TimelineEntry
from spotkeep_jobs.record.states import TimelineKind

DOWNLOADS_DATA, DOWNLOADS_IMAGE = "Has capacity, downloads its data", "Has capacity, downloads its image"
REQUEST = {
    "name": "digits",
    "command": ["python", "train.py"],
    "image": "pytorch:large",
    "channels": [{"name": "train", "uri": "s3://data/train/", "input_mode": "File"}],
}


def story(make: Any, run: str, *phases: tuple[float, TimelineKind, str]) -> list[TimelineEntry]:
    begun = make.now - timedelta(minutes=60)
    return [
        TimelineEntry(run=run, attempt=1, at=begun + timedelta(seconds=after), kind=kind, text=text)
        for after, kind, text in phases
    ]


def phases(capacity: float, data: float, image: float, *, since: float = 0.0) -> list[tuple[float, TimelineKind, str]]:
    has = since + capacity
    return [
        (since + 1, TimelineKind.STARTING, "Waits for capacity and starts"),
        (has, TimelineKind.DOWNLOADING, DOWNLOADS_DATA),
        (has + data, TimelineKind.DOWNLOADING, DOWNLOADS_IMAGE),
        (has + data + image, TimelineKind.RESUMED if since else TimelineKind.TRAINING, "Trains"),
    ]


def add(deployment: Any, make: Any, run: str, timeline: Sequence[TimelineEntry], **request: Any) -> None:
    begun = make.now - timedelta(minutes=60)
    deployment.dynamodb.add(
        make.run(run, created_at=begun, started_at=begun, request={**REQUEST, **request}),
        timeline=timeline,
        attempts=[make.attempt(run, created_at=begun, started_at=begun)],
    )


@pytest.fixture
def interrupted(deployment: Any, make: Any) -> str:
    """A run with two starts and a log, beside an earlier run that streams its data, and one that never began."""
    run = "digits-1a2b3c4d"
    lost = (2_000.0, TimelineKind.INTERRUPTED, "Lost its capacity, waits for new")
    timeline = story(make, run, *phases(120, 300, 100), lost, *phases(60, 310, 20, since=2_000))
    add(deployment, make, run, timeline)
    begun = (make.now - timedelta(minutes=60)).timestamp()
    lines = [
        (522, "start", {}),
        (640, "installed", {"seconds": 117.0, "reason": "by pip"}),
        (650, "resume", {"step": 0}),
        (652, "progress", {"step": 1}),
        (2_392, "start", {}),
        (2_400, "installed", {"seconds": 7.0, "reason": "from the cache"}),
        (2_420, "resume", {"step": 410}),
        (2_424, "progress", {"step": 411}),
    ]
    deployment.logs.streams[f"{run}-1/algo-1-1"] = [
        ((begun + after) * 1_000, "spotkeep-event: " + json.dumps({"event": kind, "time": begun + after, **fields}))
        for after, kind, fields in lines
    ]
    streamed = [{"name": "train", "uri": "s3://data/train/", "input_mode": "FastFile"}]
    add(deployment, make, "letters-00000001", story(make, "letters-00000001", *phases(90, 12, 95)), channels=streamed)
    deployment.dynamodb.add(make.run("waits-00000002", started_at=None))
    return run


@pytest.mark.parametrize("columns", [100, 60])
def test_what_it_prints(spotkeep: Any, interrupted: str, columns: int, snapshot: SnapshotAssertion) -> None:
    result = spotkeep("startup", interrupted, columns=columns)
    assert result.exit_code == ExitCode.DONE
    assert result.stdout == snapshot
    assert result.stderr == snapshot


def test_the_page_shows_what_it_prints(spotkeep: Any, interrupted: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    printed = spotkeep("startup", interrupted, columns=100).stdout
    assert f"$ spotkeep startup {interrupted}\n{printed.rstrip()}\n```" in page


def test_the_same_as_json(spotkeep: Any, interrupted: str) -> None:
    result = spotkeep("startup", interrupted, "--json")
    document = json.loads(result.stdout)
    first, second = document["starts"]
    assert first["seconds"] == {
        "capacity": 120,
        "data": 300,
        "image": 100,
        "packages": 120,
        "restore": 10,
        "first_step": 2,
    }
    assert (second["packages_from"], second["resumed_step"]) == ("from the cache", 410)
    assert document["earlier"]["runs"] == 1
    assert document["advice"][0]["saves_seconds"] == 293
    assert document["advice"][0]["change"] == "channels.train={uri: s3://data/train/, input_mode: FastFile}"


def test_json_of_a_start_that_goes_on_and_of_advice_by_aws(deployment: Any, make: Any, spotkeep: Any) -> None:
    add(deployment, make, "digits-1a2b3c4d", story(make, "digits-1a2b3c4d", *phases(20, 300, 10)[:2]))
    (start,) = json.loads(spotkeep("startup", "digits-1a2b3c4d", "--json").stdout)["starts"]
    assert (start["seconds"]["capacity"], start["seconds"]["image"], start["packages_from"]) == (20, None, None)
    add(deployment, make, "digits-2a2b3c4d", story(make, "digits-2a2b3c4d", *phases(20, 300, 400)))
    advice = {
        each["part"]: each for each in json.loads(spotkeep("startup", "digits-2a2b3c4d", "--json").stdout)["advice"]
    }
    assert (advice["data"]["saves_seconds"], advice["image"]["change"]) == (None, None)
    assert all(each["source"].startswith("https://docs.aws.amazon.com/") for each in advice.values())


@pytest.mark.parametrize("channel", ["s3://data/train/", "{uri: s3://data/train/, input_mode: File}"])
def test_the_advised_change_fits_a_job_file(spotkeep: Any, interrupted: str, tmp_path: Path, channel: str) -> None:
    change = json.loads(spotkeep("startup", interrupted, "--json").stdout)["advice"][0]["change"]
    job_file = tmp_path / "job.yaml"
    job_file.write_text(f"name: digits\ncommand: python train.py\nchannels:\n  train: {channel}\n")
    fields = read_job_file(job_file, overrides=[change]).fields
    assert fields["channels"]["train"] == {"uri": "s3://data/train/", "input_mode": "FastFile"}


def test_without_figures_of_its_own_it_cites_aws_whole(deployment: Any, make: Any, spotkeep: Any) -> None:
    add(deployment, make, "digits-1a2b3c4d", story(make, "digits-1a2b3c4d", *phases(20, 300, 10)))
    printed = spotkeep("startup", "digits-1a2b3c4d", columns=60).stdout
    assert "https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_AlgorithmSpecification.html" in printed
    assert "Medians" not in printed
    assert "AWS says that FastFile" in printed


def test_a_run_without_a_start(spotkeep: Any, interrupted: str) -> None:
    assert interrupted
    result = spotkeep("startup", "waits-00000002")
    assert result.exit_code == ExitCode.DONE
    assert "has not begun to start yet" in result.stdout
    assert json.loads(spotkeep("startup", "waits-00000002", "--json").stdout)["starts"] == []


def test_without_a_run_it_is_the_newest(deployment: Any, make: Any, spotkeep: Any) -> None:
    add(deployment, make, "digits-1a2b3c4d", story(make, "digits-1a2b3c4d", *phases(20, 300, 10)))
    assert "Starts of digits-1a2b3c4d" in spotkeep("startup").stdout


def test_a_run_that_is_not_there(spotkeep: Any) -> None:
    assert spotkeep("startup", "nothing").exit_code == ExitCode.NOT_FOUND
