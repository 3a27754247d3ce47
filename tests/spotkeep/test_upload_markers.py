"""SageMaker's marker files tell which checkpoints would survive this machine."""

from __future__ import annotations

import os
import time

import pytest

from spotkeep.storage import LocalStorage
from spotkeep.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX, UploadWatch

SAGEMAKER = UploadWatch(platform_copies=True)
STORAGE = LocalStorage()


@pytest.fixture
def checkpoint(tmp_path):
    for name in ("manifest.json", "data-00000.bin"):
        (tmp_path / name).write_text("")
    return tmp_path


def mark(checkpoint, *names):
    for name in names:
        (checkpoint / name).write_text("")


def test_sagemaker_is_known_by_the_job_name_it_sets():
    assert UploadWatch.for_this_job({"TRAINING_JOB_NAME": "digits-1"}).platform_copies
    assert not UploadWatch.for_this_job({}).platform_copies


def test_elsewhere_the_disk_is_all_there_is(checkpoint):
    assert UploadWatch(platform_copies=False).is_durable(checkpoint, STORAGE)


def test_every_file_must_have_arrived(checkpoint):
    mark(checkpoint, "data-00000.bin" + UPLOADED_SUFFIX)
    assert not SAGEMAKER.is_durable(checkpoint, STORAGE)
    mark(checkpoint, "manifest.json" + UPLOADED_SUFFIX)
    assert SAGEMAKER.is_durable(checkpoint, STORAGE)


def test_a_file_that_is_on_its_way_again_has_not_arrived(checkpoint):
    mark(checkpoint, "data-00000.bin" + UPLOADED_SUFFIX, "manifest.json" + UPLOADED_SUFFIX)
    mark(checkpoint, "data-00000.bin" + UPLOADING_SUFFIX)
    assert not SAGEMAKER.is_durable(checkpoint, STORAGE)


def test_without_any_marker_a_checkpoint_must_have_been_there_for_long(checkpoint):
    assert not SAGEMAKER.is_durable(checkpoint, STORAGE)
    long_ago = time.time() - SAGEMAKER.unmarked_grace_seconds - 1
    os.utime(checkpoint / "manifest.json", (long_ago, long_ago))
    assert SAGEMAKER.is_durable(checkpoint, STORAGE)
