"""Copies in S3 follow what the script keeps on the volume."""

from __future__ import annotations

import contextlib
import json
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep import Best, Checkpointer
from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.events import EVENT_PREFIX
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.connections import Connections
from spotkeep_agent.errors import InputError
from spotkeep_agent.training.checkpoint_copies import CheckpointCopies
from tests.spotkeep_agent.conftest import copies_of

LOSSES = {3: 0.1}


@pytest.fixture
def s3(local_aws: Any) -> Any:
    return local_aws.session().client("s3")


@pytest.fixture
def calls(local_aws: Any) -> AwsCalls:
    return AwsCalls(region="us-east-1", environment=local_aws.environment())


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
                checkpointer.wait()
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
    copies = copies_of(tmp_path, calls, f"s3://{bucket}/run")
    train(tmp_path / "checkpoints", copies, steps=12, hear=capsys.readouterr, monkeypatch=monkeypatch, copied=copied)
    assert copies.finish(lambda: 30.0, exit_code=0, goes_on=False)
    assert sorted(CheckpointDirectory(tmp_path / "checkpoints").steps()) == [3, 4, 8, 11, 12]
    assert in_s3(s3, bucket) == [3, 4, 8, 11, 12]


def test_nothing_is_removed_from_s3_while_a_script_has_not_said_what_it_keeps(
    calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = copies_of(tmp_path, calls, f"s3://{bucket}/run")
    copies.keep({"last": 0})
    train(tmp_path / "checkpoints", copies, steps=6, hear=None, monkeypatch=monkeypatch, copied=range(1, 6))
    assert copies.finish(lambda: 30.0, exit_code=0, goes_on=False)
    assert in_s3(s3, bucket) == [1, 2, 3, 4, 5, 6]


def test_a_stop_lets_go_of_the_volume_although_s3_does_not_answer(tmp_path: Path) -> None:
    with Checkpointer({"weights": bytes(100)}, tmp_path / "checkpoints", every_steps=1) as checkpointer:
        for _ in checkpointer.steps(1):
            pass
    (tmp_path / "checkpoints/own.pt").write_bytes(b"x")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connections = Connections()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
        calls = AwsCalls(region="us-east-1", environment=environment, transport=connections)
        copies = copies_of(tmp_path, calls, "s3://bucket/run", break_off=connections.break_off, scan_seconds=0.01)
        copies.start()
        copies.offer(1)
        wait_for(lambda: calls.counted["s3:HeadObject"] == 1 and calls.counted["s3:PutObject"] == 1)
        assert {Path(path).name for path in open_below(tmp_path)} == {"data-00000.bin", "own.pt"}
        copies.stop()
        wait_for(lambda: not open_below(tmp_path))


def wait_for(condition: Callable[[], bool]) -> None:
    """Shorter than the agent waits for an answer."""
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def open_below(folder: Path) -> list[str]:
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(descriptor.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


def test_a_new_volume_does_not_begin_anew_where_no_checkpoint_of_s3_can_be_used(
    tmp_path: Path, s3: Any, calls: AwsCalls, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = copies_of(tmp_path / "first", calls, f"s3://{bucket}/run")
    train(tmp_path / "first" / "checkpoints", first, steps=4, hear=None, monkeypatch=monkeypatch, copied=range(2, 4))
    first.stop()
    for item in s3.list_objects_v2(Bucket=bucket, Prefix="run/")["Contents"]:
        if item["Key"].endswith("manifest.json"):
            s3.put_object(Bucket=bucket, Key=item["Key"], Body=b"{}")
    (tmp_path / "second").mkdir()
    second = copies_of(tmp_path / "second", calls, f"s3://{bucket}/run")
    with pytest.raises(InputError, match="none of them can be used"):
        second.restore_newer(known_uploaded=None)
    second.stop()
