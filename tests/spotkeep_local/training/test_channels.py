import json
from pathlib import Path

import pytest

from spotkeep_local.training.channels import manifest_entries, relative_path
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


def test_a_manifest_lists_keys_below_one_prefix():
    document = json.dumps([{"prefix": "s3://bucket/data/"}, "a", "deep/b"]).encode()
    assert manifest_entries(document) == [
        ("s3://bucket/data/a", "a"),
        ("s3://bucket/data/deep/b", "deep/b"),
    ]


@pytest.mark.parametrize(
    "document", [b"", b"{}", b"[]", b'["a"]', b'[{"prefix": "/data/"}, "a"]', b'[{"prefix": "s3://b/"}, 5]']
)
def test_a_broken_manifest_fails_the_job(document):
    with pytest.raises(JobFailedError, match="the manifest must be"):
        manifest_entries(document)


@pytest.mark.parametrize("relative", ["../a", "deep/../../a", "/etc/a", "..", "a/.."])
def test_a_key_that_leads_out_of_its_folder_fails_the_job(relative):
    with pytest.raises(JobFailedError, match="leads out of"):
        file_in(Path("/folder"), relative)


def test_dots_that_lead_nowhere_are_names():
    assert file_in(Path("/folder"), "deep/..a/b..") == Path("/folder/deep/..a/b..")
