from pathlib import Path

import pytest

from spotkeep_local.training.channels import relative_path
from spotkeep_local.training.errors import JobFailedError
from spotkeep_local.training.object_store import file_in


@pytest.mark.parametrize(
    ("prefix", "key", "path"),
    [
        ("data/", "data/a.csv", "a.csv"),
        ("data", "data/deep/a.csv", "deep/a.csv"),
        ("data/a.csv", "data/a.csv", "a.csv"),
        ("data/a", "data/a.csv", "a.csv"),
        ("data/tr", "data/train/a.csv", "train/a.csv"),
        ("", "data/a.csv", "data/a.csv"),
        ("a.csv", "a.csv", "a.csv"),
    ],
)
def test_where_an_object_goes(prefix, key, path):
    assert relative_path(key, prefix=prefix) == path


@pytest.mark.parametrize("relative", ["../a", "deep/../../a", "/etc/a", "..", "a/.."])
def test_a_key_that_points_out_of_its_folder_fails_the_job(relative):
    with pytest.raises(JobFailedError, match="points out of"):
        file_in(Path("/folder"), relative)


def test_dots_within_names_are_names():
    assert file_in(Path("/folder"), "deep/..a/b..") == Path("/folder/deep/..a/b..")
