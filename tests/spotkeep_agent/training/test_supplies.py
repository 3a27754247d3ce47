"""What the training needs is brought once and whole; the model is sent."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest

from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.errors import SourceUnavailableError
from spotkeep_agent.training.supplies import Supplies, clear_failure, read_failure
from spotkeep_fleet.instance_job import InstanceJob, JobSource, VolumeSpec


@pytest.fixture
def calls(local_aws: Any) -> AwsCalls:
    return AwsCalls(region="us-east-1", environment=local_aws.environment())


@pytest.fixture
def s3(local_aws: Any) -> Any:
    return local_aws.session().client("s3")


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"supplies-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


def job(**changes: Any) -> InstanceJob:
    return InstanceJob(("python", "train.py"), VolumeSpec(size_gb=8), **changes)


def supplies(calls: AwsCalls, base: Path) -> Supplies:
    return Supplies(calls, files=UserFiles(base), kept=base, cancelled=threading.Event())


def test_source_channels_and_hyperparameters_are_brought(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="source/a.tar.gz", Body=b"source")
    for name in ("one", "deep/two"):
        s3.put_object(Bucket=bucket, Key=f"data/{name}", Body=name.encode())
    wanted = job(
        source=JobSource(uri=f"s3://{bucket}/source/a.tar.gz", sha256=hashlib.sha256(b"source").hexdigest()),
        channels={"train": f"s3://{bucket}/data/"},
        hyperparameters={"epochs": "3"},
    )
    supplies(calls, tmp_path).bring(wanted)
    assert (tmp_path / "input/data/source/a.tar.gz").read_bytes() == b"source"
    assert (tmp_path / "input/data/train/deep/two").read_bytes() == b"deep/two"
    assert json.loads((tmp_path / "input/config/hyperparameters.json").read_text()) == {"epochs": "3"}
    before = calls.counted["s3:GetObject"]
    supplies(calls, tmp_path).bring(wanted)
    assert calls.counted["s3:GetObject"] == before + 1, "the source again, and no data twice"


def test_what_a_crash_cut_off_is_fetched_again(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="data/one", Body=b"whole")
    target = tmp_path / "input/data/train"
    target.mkdir(parents=True)
    (target / "one.spotkeep-draft").write_bytes(b"wh")
    supplies(calls, tmp_path).bring(job(channels={"train": f"s3://{bucket}/data/"}))
    assert [path.name for path in target.iterdir()] == ["one"]
    assert (target / "one").read_bytes() == b"whole"


def test_an_object_whose_name_leads_elsewhere_is_refused(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="data/../../evil", Body=b"x")
    with pytest.raises(SourceUnavailableError, match="no name for a file"):
        supplies(calls, tmp_path).bring(job(channels={"train": f"s3://{bucket}/data/"}))


def test_a_source_that_is_not_there_is_reported(calls: AwsCalls, bucket: str, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match=r"none\.tar\.gz cannot be brought here"):
        supplies(calls, tmp_path).bring(job(source=JobSource(uri=f"s3://{bucket}/none.tar.gz")))


def test_the_model_is_sent_as_an_archive(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    assert supplies(calls, tmp_path).send_model(f"s3://{bucket}/out/") is None
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(b"weights")
    before = Path.cwd()
    assert supplies(calls, tmp_path).send_model(f"s3://{bucket}/out/") == f"s3://{bucket}/out/model.tar.gz"
    assert Path.cwd() == before
    raw = s3.get_object(Bucket=bucket, Key="out/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        assert "./weights" in archive.getnames()


def test_a_failure_is_read_and_forgotten(tmp_path: Path) -> None:
    assert read_failure(UserFiles(tmp_path)) is None
    (tmp_path / "output").mkdir()
    (tmp_path / "output/failure").write_text("x" * 5000)
    assert read_failure(UserFiles(tmp_path)) == "x" * 1024
    clear_failure(UserFiles(tmp_path))
    clear_failure(UserFiles(tmp_path))
    assert read_failure(UserFiles(tmp_path)) is None


def test_a_failure_is_read_from_a_plain_file_only(tmp_path: Path) -> None:
    """The script may have put anything there, and the agent must not wait for it."""
    failure = tmp_path / "output/failure"
    failure.parent.mkdir()
    os.mkfifo(failure)
    assert read_failure(UserFiles(tmp_path)) is None
    failure.unlink()
    failure.symlink_to("/dev/zero")
    assert read_failure(UserFiles(tmp_path)) is None
    failure.unlink()
    failure.write_text("é" * 5000, encoding="utf-8")
    assert read_failure(UserFiles(tmp_path)) == "é" * 1024


def test_a_source_that_is_too_large_is_refused_before_it_fills_the_volume(
    calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotkeep_agent.training.supplies._LARGEST_SOURCE_BYTES", 2**23)
    s3.put_object(Bucket=bucket, Key="source.tar.gz", Body=b"x" * (2**23 + 1))
    with pytest.raises(SourceUnavailableError, match=r"has 8,388,609 bytes, more than 8,388,608: bring what is large"):
        supplies(calls, tmp_path).bring(job(source=JobSource(uri=f"s3://{bucket}/source.tar.gz")))
    assert not list((tmp_path / "input/data/source").iterdir())
