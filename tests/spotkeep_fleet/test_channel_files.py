"""The objects of a channel become the same files on an EC2 instance and in the local SageMaker, or none, by name."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotkeep.remote.s3_objects import S3Object
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.errors import DataRefusedError
from spotkeep_agent.training.supplies import Supplies
from spotkeep_fleet.channel_files import channel_files
from spotkeep_fleet.errors import ChannelDataError
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.job_network import HostPlace
from spotkeep_local.training.object_store import ObjectStore
from spotkeep_local.training.opt_ml import OptMl, download_channels
from tests.models.ec2 import instance_job
from tests.models.s3 import Objects


def files_of(prefix: str, *keys: str, size: int = 1) -> dict[str, str]:
    """The key of each file."""
    objects = [S3Object(key, 0 if key.endswith("/") else size) for key in keys]
    return {path: found.key for found, path in channel_files(objects, bucket="b", prefix=prefix)}


@pytest.mark.parametrize(
    ("prefix", "key", "path"),
    [
        ("data/", "data/a.csv", "a.csv"),
        ("data", "data/deep/a.csv", "deep/a.csv"),
        ("data/a.csv", "data/a.csv", "a.csv"),
        ("data/a", "data/a.csv", "a.csv"),
        ("data/tr", "data/train/a.csv", "train/a.csv"),
        ("data/train", "data/train2/b.csv", "train2/b.csv"),
        ("data/train", "data/train-1.csv", "train-1.csv"),
        ("", "data/a.csv", "data/a.csv"),
        ("a.csv", "a.csv", "a.csv"),
        ("tr", "train.csv", "train.csv"),
        ("data/", "data/..a/b..", "..a/b.."),
        ("data/", "data/a b+c%20d é\t\x07.csv", "a b+c%20d é\t\x07.csv"),
        ("data/", "data/" + "é" * 127 + "x", "é" * 127 + "x"),
    ],
)
def test_where_an_object_goes(prefix: str, key: str, path: str) -> None:
    assert files_of(prefix, key) == {path: key}


def test_what_consoles_show_as_a_folder_is_no_file() -> None:
    assert files_of("data/", "data/", "data/sub/", "data/sub/a", "data/x", "data/x/") == {
        "sub/a": "data/sub/a",
        "x": "data/x",
    }


@pytest.mark.parametrize(
    ("prefix", "keys", "says"),
    [
        ("data/", (), "s3://b/data/ holds no data: no key begins with it"),
        ("data/", ("data/", "data/sub/"), "s3://b/data/ holds no data"),
        ("data/", ("data/x", "data/x/y"), "data/x cannot be a file beside data/x/y"),
        ("data/", ("data/x/y/z", "data/x"), "data/x cannot be a file beside data/x/y/z"),
        ("data/", ("data/x", "data/x.csv", "data/x/y/z"), "data/x cannot be a file beside data/x/y/z"),
        ("p/a", ("p/a", "p/a/a"), "p/a and p/a/a would both be the file a"),
        ("p/a", ("p/a/ab/x", "p/ab/x"), "p/a/ab/x and p/ab/x would both be the file ab/x"),
        ("data", ("data/a", "data//a"), "data//a has an empty name between two slashes"),
        ("", ("/a",), "/a has an empty name between two slashes"),
        ("data//", ("data//a",), "data//a has an empty name between two slashes"),
        ("data/", ("data/../a",), "data/../a has `.` or `..` for a name"),
        ("data/", ("data/a/./b",), "data/a/./b has `.` or `..` for a name"),
        ("data/", ("data/a\0b",), r"data/a\\x00b holds the character NUL"),
        ("data/", ("data/" + "é" * 128,), "has a name of more than 255 bytes"),
    ],
)
def test_what_cannot_be_files_is_named(prefix: str, keys: tuple[str, ...], says: str) -> None:
    with pytest.raises(ChannelDataError, match=says.replace(".", r"\.").replace("*", r"\*")):
        files_of(prefix, *keys)


def test_a_folder_that_holds_bytes_is_not_left_out_silently() -> None:
    with pytest.raises(ChannelDataError, match="data/x/ ends with a slash, as a folder does, and is not empty"):
        channel_files([S3Object("data/x/", 3)], bucket="b", prefix="data/")


def test_all_problems_come_at_once_and_the_message_stays_short() -> None:
    keys = [f"data/{'a' * 300}{number}" for number in range(1_000)]
    with pytest.raises(ChannelDataError, match="and 995 more") as caught:
        files_of("data/", *keys)
    assert len(str(caught.value)) < 2_000


PARTS = ["a", "b", "ab", "a.csv", "", ".", "..", "A", "é", "\x01", "x" * 255, "x" * 256, "a\0"]
NAMES = st.lists(st.sampled_from(PARTS), min_size=1, max_size=3).map("/".join)
KEYS = st.lists(NAMES.map("p/".__add__), max_size=5, unique=True)
PREFIXES = st.sampled_from(["p/", "p", "p/a", "p/a/", "p/a.csv", "", "p/ab"])


@given(PREFIXES, KEYS)
def test_nothing_is_lost_whatever_the_order(prefix: str, keys: list[str]) -> None:
    found = [key for key in keys if key.startswith(prefix)]
    outcomes: set[object] = set()
    for order in itertools.islice(itertools.permutations(found), 24):
        try:
            files = files_of(prefix, *order)
        except ChannelDataError:
            outcomes.add("refused")
        else:
            assert sorted(files.values()) == sorted(key for key in found if not key.endswith("/"))
            outcomes.add(frozenset(files.items()))
    assert len(outcomes) == 1


def contents_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def on_ec2(objects: Objects, prefix: str, base: Path) -> dict[str, bytes] | None:
    """The files that the agent of an instance makes; None where it says that no instance can."""
    calls = AwsCalls(
        region="us-east-1",
        environment={"AWS_ENDPOINT_URL": "http://s3", "AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"},
        transport=objects.answer,
    )
    supplies = Supplies(calls, files=UserFiles(base), kept=base, cancelled=threading.Event())
    job = instance_job(("python",), VolumeSpec(size_gb=8), channels={"train": f"s3://bucket/{prefix}"})
    try:
        supplies.bring(job)
    except DataRefusedError:
        return None
    return contents_below(base / "input/data/train")


def on_sagemaker(objects: Objects, prefix: str, base: Path) -> dict[str, bytes] | None:
    """The files that the local SageMaker makes; None where it fails the job."""
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{prefix}"}
    request = {
        "AlgorithmSpecification": {"TrainingInputMode": "File"},
        "InputDataConfig": [{"ChannelName": "train", "DataSource": {"S3DataSource": source}}],
    }
    opt_ml = OptMl(base)
    try:
        list(download_channels(ObjectStore(objects), request, opt_ml, HostPlace(number=1)))
    except JobFailedError:
        return None
    return contents_below(opt_ml.channel("train"))


def objects_with(keys: Iterable[str]) -> Objects:
    objects = Objects()
    objects.contents = {key: b"" if key.endswith("/") else key.encode() for key in keys}
    return objects


@settings(max_examples=15)
@given(PREFIXES, KEYS)
@example("p/a", ["p/a-1.csv", "p/a/1.csv", "p/ab/2.csv"])
@example("p/", ["p/a", "p/a.spotkeep-draft", "p/" + "x" * 255])
def test_both_backends_make_the_same_files(prefix: str, keys: list[str]) -> None:
    objects = objects_with(keys)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        assert on_ec2(objects, prefix, Path(first)) == on_sagemaker(objects, prefix, Path(second))
