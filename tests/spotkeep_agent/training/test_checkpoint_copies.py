"""Copies in S3 follow what the script keeps on the volume."""

from __future__ import annotations

import json
import os
import threading
import uuid
from pathlib import Path
from typing import Any

import boto3
import pytest

from spotkeep import Best, Checkpointer
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.events import EVENT_PREFIX
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.training.checkpoint_copies import CheckpointCopies

LOSSES = {3: 0.1}


@pytest.fixture
def s3(local_aws: Any) -> Any:
    return boto3.client("s3", endpoint_url=local_aws.endpoint_url, region_name="us-east-1")


@pytest.fixture
def calls(local_aws: Any) -> AwsCalls:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    environment = {"AWS_ENDPOINT_URL": str(local_aws.endpoint_url), **{name: os.environ[name] for name in names}}
    return AwsCalls(region="us-east-1", environment=environment)


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"copies-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


def in_s3(s3: Any, bucket: str) -> list[int]:
    found = s3.list_objects_v2(Bucket=bucket, Prefix="run/").get("Contents", [])
    return sorted({int(item["Key"].split("/")[1].removeprefix("step-")) for item in found})


def train(
    directory: Path, copies: CheckpointCopies, *, steps: int, hear: Any, monkeypatch: pytest.MonkeyPatch, copied: range
) -> None:
    """Train as a script does, beside an agent that copies some of the checkpoints and is too slow for others."""
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    copies.start()
    with Checkpointer(
        {"weights": list(range(100))}, directory, every_steps=1, keep_last=2, keep_every=4, keep_best=Best("loss")
    ) as checkpointer:
        if hear is not None:
            line = hear().out.splitlines()[0]
            copies.keep(json.loads(line.removeprefix(EVENT_PREFIX))["keep"])
        for step in checkpointer.steps(steps):
            checkpointer.log(loss=LOSSES.get(step + 1, 1.0))
            if step in copied:
                checkpointer.wait_until_durable()
                copies.offer(step)
                assert copies._upload.finish(lambda: 30.0, newest_only=True)


@pytest.mark.parametrize("copied", [range(1, 12), range(6, 12)], ids=["each of them", "the later ones"])
def test_what_the_script_keeps_for_its_step_or_as_the_best_stays_in_s3(
    calls: AwsCalls,
    s3: Any,
    bucket: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    copied: range,
) -> None:
    copies = CheckpointCopies(
        f"s3://{bucket}/run",
        tmp_path,
        calls=calls,
        fetching=calls,
        cancelled=threading.Event(),
        on_uploaded=lambda step: None,
    )
    train(tmp_path, copies, steps=12, hear=capsys.readouterr, monkeypatch=monkeypatch, copied=copied)
    assert copies.finish(lambda: 30.0, exit_code=0, goes_on=False)
    assert sorted(CheckpointDirectory(tmp_path).steps()) == [3, 4, 8, 11, 12]
    assert in_s3(s3, bucket) == [3, 4, 8, 11, 12]


def test_nothing_is_removed_from_s3_while_a_script_has_not_said_what_it_keeps(
    calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = CheckpointCopies(
        f"s3://{bucket}/run",
        tmp_path,
        calls=calls,
        fetching=calls,
        cancelled=threading.Event(),
        on_uploaded=lambda step: None,
    )
    copies.keep({"last": 0})
    train(tmp_path, copies, steps=6, hear=None, monkeypatch=monkeypatch, copied=range(1, 6))
    assert copies.finish(lambda: 30.0, exit_code=0, goes_on=False)
    assert in_s3(s3, bucket) == [1, 2, 3, 4, 5, 6]
