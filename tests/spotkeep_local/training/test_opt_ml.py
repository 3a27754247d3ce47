import os
from pathlib import Path

import pytest

from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.job_network import HostPlace
from spotkeep_local.training.object_store import ObjectStore, file_in
from spotkeep_local.training.opt_ml import OptMl, download_channels, relocate
from tests.models.s3 import Objects


@pytest.mark.parametrize(
    ("text", "relocated"),
    [
        ("/opt/ml", "/new"),
        ("/opt/ml/input/data", "/new/input/data"),
        ("cd /opt/ml && ls '/opt/ml/model'", "cd /new && ls '/new/model'"),
        ("--model=/opt/ml/model:/opt/ml/code", "--model=/new/model:/new/code"),
        ("/opt/mlflow", "/opt/mlflow"),
        ("/opt/ml-tools/x", "/opt/ml-tools/x"),
        ("/srv/opt/ml/x", "/srv/opt/ml/x"),
    ],
)
def test_paths_below_opt_ml_are_relocated_and_no_others(text, relocated):
    assert relocate(text, Path("/new")) == relocated


def test_where_a_path_of_the_job_is_on_this_machine(tmp_path):
    assert OptMl(tmp_path).at("/opt/ml/checkpoints/") == tmp_path / "checkpoints"


def test_a_missing_failure_file_says_nothing(tmp_path):
    assert OptMl(tmp_path).failure_text() == ""


def test_what_a_script_wrote_beside_its_source_is_known_and_the_source_itself_is_none_of_it(tmp_path):
    source = tmp_path / "source"
    for name, at in (("train.py", 5), ("checkpoints/ck-1.pkl", 20), ("__pycache__/train.pyc", 20)):
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (at, at))
    assert OptMl(tmp_path).written_beside_source(since=10.0) == ("checkpoints/ck-1.pkl",)
    assert OptMl(tmp_path / "without").written_beside_source(since=10.0) == ()
    (source / ".git").mkdir()  # The files of a checkout are as new as the job.
    assert OptMl(tmp_path).written_beside_source(since=10.0) == ()


def test_of_a_failure_file_without_an_end_the_beginning_is_read(tmp_path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "failure").symlink_to("/dev/zero")
    assert len(OptMl(tmp_path).failure_text()) == 64 * 1024


@pytest.mark.parametrize("relative", ["../a", "deep/../../a", "/etc/a", "..", "a/.."])
def test_a_key_that_points_out_of_its_folder_fails_the_job(relative):
    with pytest.raises(JobFailedError, match="points out of"):
        file_in(Path("/folder"), relative)


def test_dots_within_names_are_names():
    assert file_in(Path("/folder"), "deep/..a/b..") == Path("/folder/deep/..a/b..")


def request_for(prefix):
    source = {"S3DataType": "S3Prefix", "S3Uri": f"s3://bucket/{prefix}"}
    channel = {"ChannelName": "train", "DataSource": {"S3DataSource": source}}
    return {"AlgorithmSpecification": {"TrainingInputMode": "File"}, "InputDataConfig": [channel]}


def test_a_disk_that_takes_two_names_for_one_fails_the_job(tmp_path):
    """A disk of macOS takes `A.csv` for `a.csv`: the one object would replace the other."""
    objects = Objects()
    objects.contents = {"data/a.csv": b"a"}
    opt_ml = OptMl(tmp_path)
    opt_ml.channel("train").mkdir(parents=True)
    (opt_ml.channel("train") / "a.csv").write_bytes(b"that of A.csv")
    with pytest.raises(JobFailedError, match=r"ClientError: Data download failed: data/a\.csv: this disk takes"):
        list(download_channels(ObjectStore(objects), request_for("data/"), opt_ml, HostPlace(number=1)))
    assert (opt_ml.channel("train") / "a.csv").read_bytes() == b"that of A.csv"
