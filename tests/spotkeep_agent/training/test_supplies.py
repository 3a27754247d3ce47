"""What the training needs is brought once and whole; the model is sent."""

from __future__ import annotations

import errno
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
from spotkeep_agent.aws.object_files import PART_BYTES, draft_path
from spotkeep_agent.errors import DataRefusedError, SourceUnavailableError
from spotkeep_agent.training.supplies import Supplies, clear_failure, read_failure
from spotkeep_agent.volume.file_systems import FileSystems
from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.training_spec import JobSource
from tests.models.ec2 import instance_job
from tests.models.s3 import Objects

Answer = tuple[int, dict[str, str], bytes]


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
    return instance_job(("python", "train.py"), VolumeSpec(size_gb=8), **changes)


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
    (target / draft_path("one")).write_bytes(b"wh")
    supplies(calls, tmp_path).bring(job(channels={"train": f"s3://{bucket}/data/"}))
    assert [path.name for path in target.iterdir()] == ["one"]
    assert (target / "one").read_bytes() == b"whole"


def test_a_channel_has_what_s3_has_now_and_nothing_of_an_earlier_attempt(tmp_path: Path) -> None:
    """SageMaker copies all data anew for each attempt; the volume of an EC2 run keeps those of the last one."""
    s3, folder = S3(), tmp_path / "input/data"
    s3.objects.contents |= {"data/b": b"same", "data/sub/c": b"c", "other/a": b"another", "more/x": b"x"}
    s3.bring(tmp_path, channels={"train": "s3://bucket/data/", "gone": "s3://bucket/more/"})
    (folder / "train/of-the-script").write_bytes(b"cache")
    s3.objects.contents["data/b"] = b"size"
    del s3.objects.contents["data/sub/c"]
    asked = s3.asked
    s3.bring(tmp_path)
    assert s3.asked - asked == 2, "the listing, and what has another content now"
    assert files_in(folder) == {"train/a": b"content", "train/b": b"size", "train/of-the-script": b"cache"}
    s3.bring(tmp_path, channels={"train": "s3://bucket/other/"})
    assert files_in(folder) == {"train/a": b"another", "train/of-the-script": b"cache"}


def test_a_channel_goes_from_s3_to_a_file_system_and_back(tmp_path: Path) -> None:
    s3, volume, mounted = S3(), tmp_path / "volume", tmp_path / "mnt"
    (mounted / "train").mkdir(parents=True)
    (mounted / "train/a").write_bytes(b"shared")
    file_systems = FileSystems(mounted, environment={}, cancelled=threading.Event())
    volume.mkdir()
    for _ in range(2):
        file_systems.hide(["train", "other"], files=UserFiles(volume))
        s3.bring(volume)
        assert files_in(volume / "input/data") == {"train/a": b"content"}
        for _ in range(2):
            s3.bring(volume, channels={})
            file_systems.show(["train"], files=UserFiles(volume))
            assert (volume / "input/data/train/a").read_bytes() == b"shared"
    file_systems.hide(["train"], files=UserFiles(volume))
    s3.bring(volume)
    assert (mounted / "train/a").read_bytes() == b"shared"


def test_a_link_of_the_script_in_the_place_of_a_channel_is_refused(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "input/data").mkdir(parents=True)
    (volume / "input/data/train").symlink_to(tmp_path)
    FileSystems(tmp_path / "mnt", environment={}, cancelled=threading.Event()).hide(["train"], files=UserFiles(volume))
    with pytest.raises(DataRefusedError, match="train is a link, or no folder"):
        S3().bring(volume)


def test_a_file_that_another_one_stands_for_is_fetched_after_a_loss_too(tmp_path: Path) -> None:
    s3 = S3()
    s3.bring(tmp_path)
    s3.objects.contents["data/a"] = b"CONTENT"
    s3.answers["content"] = refused(503, "SlowDown")
    with pytest.raises((SourceUnavailableError, DataRefusedError)):
        s3.bring(tmp_path)
    s3.answers["content"] = None
    s3.bring(tmp_path)
    assert files_in(tmp_path / "input/data") == {"train/a": b"CONTENT"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_object_whose_name_leads_elsewhere_is_refused(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    s3.put_object(Bucket=bucket, Key="data/../../evil", Body=b"x")
    with pytest.raises(
        DataRefusedError, match=r"channel train: not all objects of .* can be files: data/\.\./\.\./evil"
    ):
        supplies(calls, tmp_path).bring(job(channels={"train": f"s3://{bucket}/data/"}))
    assert not (tmp_path.parent / "evil").exists()


def test_a_key_with_control_characters_is_listed_and_fetched(
    calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path
) -> None:
    s3.put_object(Bucket=bucket, Key="data/a+b c\x07é", Body=b"x")
    supplies(calls, tmp_path).bring(job(channels={"train": f"s3://{bucket}/data/"}))
    assert (tmp_path / "input/data/train/a+b c\x07é").read_bytes() == b"x"


def test_a_source_that_is_not_there_is_reported(calls: AwsCalls, bucket: str, tmp_path: Path) -> None:
    with pytest.raises(DataRefusedError, match=r"none\.tar\.gz cannot be brought here: .* It is not there"):
        supplies(calls, tmp_path).bring(job(source=JobSource(uri=f"s3://{bucket}/none.tar.gz")))


class S3:
    """One object at `data/a`, and what S3 answers in its place."""

    def __init__(self, *, listing: Answer | None = None, content: Answer | None = None) -> None:
        self.objects = Objects()
        self.objects.contents["data/a"] = b"content"
        self.answers = {"listing": listing, "content": content}
        self.asked = 0

    def __call__(self, method: str, url: str, **sent: Any) -> Answer:
        self.asked += 1
        other = self.answers["listing" if "list-type" in url else "content"]
        return self.objects.answer(method, url, **sent) if other is None else other

    def bring(self, base: Path, **changes: Any) -> None:
        environment = {"AWS_ENDPOINT_URL": "http://s3", "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"}
        calls = AwsCalls(region="us-east-1", environment=environment, transport=self, sleep=lambda seconds: None)
        supplies(calls, base).bring(job(**{"channels": {"train": "s3://bucket/data/"}, **changes}))


def refused(status: int, code: str, message: str = "", **headers: str) -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, body.encode()


KMS = "User: arn:aws:sts::1:assumed-role/run is not authorized to perform: kms:Decrypt on this resource"
GRAMMAR = "The specified bucket does not exist"


@pytest.mark.parametrize(
    ("s3", "says"),
    [
        (
            S3(listing=refused(403, "AccessDenied")),
            "s3://bucket/data/ cannot be listed: .*The run's role may not read it",
        ),
        (S3(content=refused(403, "AccessDenied", KMS)), "s3://bucket/data/a cannot be read: .*kms:Decrypt"),
        (S3(listing=refused(404, "NoSuchBucket", GRAMMAR)), "NoSuchBucket: The specified bucket does not exist"),
        (S3(content=refused(404, "NoSuchKey")), "s3://bucket/data/a .* It is not there, or not any more"),
        (S3(content=refused(412, "PreconditionFailed")), "data/a .* The data changed while they were read"),
        (S3(content=refused(403, "InvalidObjectState")), r"data/a .* It is archived \(S3 Glacier\): restore it"),
        (
            S3(listing=refused(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1")),
            "The bucket is in eu-west-1. Data must be in the region of the deployment",
        ),
    ],
    ids=lambda value: "" if isinstance(value, S3) else value[:40],
)
def test_what_no_instance_could_have_is_refused_with_its_address(s3: S3, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataRefusedError, match=says):
        s3.bring(tmp_path)
    assert s3.asked <= 2, "what S3 refuses is not asked for again"


@pytest.mark.parametrize(
    "answer", [refused(503, "SlowDown"), refused(500, "InternalError"), refused(403, "RequestTimeTooSkewed")]
)
def test_what_another_instance_may_have_is_not_refused(answer: Answer, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="s3://bucket/data/a cannot be read"):
        S3(content=answer).bring(tmp_path)


def test_an_object_that_is_replaced_while_it_is_read_is_no_mix_of_both(tmp_path: Path) -> None:
    """Its parts are asked for by the tag of what was listed."""
    s3 = S3()
    s3.objects.contents["data/a"] = b"1" * (PART_BYTES + 1)
    answer, one_by_one = s3.objects.answer, threading.Lock()

    def answer_and_replace(method: str, url: str, **sent: Any) -> Answer:
        with one_by_one:
            found = answer(method, url, **sent)
            if "list-type" not in url:
                s3.objects.contents["data/a"] = b"2" * (PART_BYTES + 1)
            return found

    s3.objects.answer = answer_and_replace  # type: ignore[method-assign]
    with pytest.raises(DataRefusedError, match="The data changed while they were read"):
        s3.bring(tmp_path)
    assert not (tmp_path / "input/data/train/a").exists()


def test_data_that_the_volume_has_no_room_for_are_refused_before_any_is_fetched(tmp_path: Path) -> None:
    s3 = S3()
    s3.objects.contents.clear()
    s3.objects.sizes["data/large"] = 2**60
    with pytest.raises(DataRefusedError, match=r"need 1,073,741,824\.00 GiB, and the volume has .*larger volume"):
        s3.bring(tmp_path)
    assert s3.asked == 1


def test_a_volume_that_fills_up_meanwhile_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spotkeep_agent.aws.object_files.write_all", full)
    with pytest.raises(DataRefusedError, match=r"No space left on device. Launch the run with a larger volume \(`vol"):
        S3().bring(tmp_path)


def test_nothing_is_fetched_of_any_channel_before_all_can_be_files(tmp_path: Path) -> None:
    s3 = S3()
    with pytest.raises(DataRefusedError, match="channel more: s3://bucket/none/ holds no data"):
        s3.bring(tmp_path, channels={"train": "s3://bucket/data/", "more": "s3://bucket/none/"})
    assert s3.asked == 2


def test_the_model_is_sent_as_an_archive(calls: AwsCalls, s3: Any, bucket: str, tmp_path: Path) -> None:
    assert supplies(calls, tmp_path).send_model(f"s3://{bucket}/out/") is None
    (tmp_path / "model").mkdir()
    (tmp_path / "model/weights").write_bytes(b"weights")
    before = Path.cwd()
    assert supplies(calls, tmp_path).send_model(f"s3://{bucket}/out/") == f"s3://{bucket}/out/model.tar.gz"
    assert Path.cwd() == before
    raw = s3.get_object(Bucket=bucket, Key="out/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        assert archive.getnames() == ["weights"], "as SageMaker names them"


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
    with pytest.raises(DataRefusedError, match=r"has 8,388,609 bytes, more than 8,388,608: bring what is large"):
        supplies(calls, tmp_path).bring(job(source=JobSource(uri=f"s3://{bucket}/source.tar.gz")))
    assert not list((tmp_path / "input/data/source").iterdir())
