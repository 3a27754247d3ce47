"""SageMaker's marker files tell which checkpoints would survive this machine."""

from __future__ import annotations

import os
import time

import pytest

from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import (
    UPLOADED_SUFFIX,
    UPLOADING_SUFFIX,
    LateUpload,
    LateUploadAlarm,
    UploadWatch,
)

SAGEMAKER = UploadWatch(platform_copies=True)
STORAGE = LocalStorage()


@pytest.fixture
def checkpoint(tmp_path):
    return make(tmp_path / "step-1")


def make(path):
    path.mkdir()
    for name in ("manifest.json", "data-00000.bin"):
        (path / name).write_text("")
    return path


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


def test_where_markers_are_in_use_time_alone_proves_nothing(checkpoint):
    other = make(checkpoint.parent / "step-0")
    mark(other, "data-00000.bin" + UPLOADED_SUFFIX, "manifest.json" + UPLOADED_SUFFIX)
    long_ago = time.time() - SAGEMAKER.unmarked_grace_seconds - 1
    os.utime(checkpoint / "manifest.json", (long_ago, long_ago))
    assert SAGEMAKER.is_durable(other, STORAGE)
    assert not SAGEMAKER.is_durable(checkpoint, STORAGE), "the copying has stopped"


def test_an_upload_is_late_after_a_quarter_of_an_hour_and_is_reported_again_when_that_has_doubled():
    alarm = LateUploadAlarm()
    alarm.saved(100, now=0.0)
    alarm.saved(200, now=600.0)
    alerts = [now for now in range(0, 4000, 100) if alarm.late(float(now)) is not None]
    assert alerts == [1000, 2100]
    assert alarm.waiting == (200, 100)


def test_what_is_late_says_the_numbers():
    alarm = LateUploadAlarm()
    alarm.saved(100, now=0.0)
    alarm.uploaded(100, now=60.0)
    alarm.saved(200, now=100.0)
    alarm.saved(300, now=700.0)
    assert alarm.late(1000.0) is None
    assert alarm.late(1101.0) == LateUpload(step=300, uploaded_step=100, seconds=1001.0, expected_seconds=900.0)


def test_where_uploads_are_slow_they_are_late_later():
    alarm = LateUploadAlarm()
    alarm.saved(100, now=0.0)
    alarm.uploaded(100, now=600.0)
    alarm.saved(200, now=600.0)
    assert alarm.late(600.0 + 1800.0) is None
    assert alarm.late(600.0 + 1801.0).expected_seconds == 1800.0


def test_a_newer_one_that_has_arrived_makes_the_older_ones_unimportant():
    alarm = LateUploadAlarm()
    for step in (1, 2, 3):
        alarm.saved(step, now=0.0)
    alarm.uploaded(2, now=10.0)
    assert alarm.waiting == (3,)
    alarm.uploaded(3, now=20.0)
    assert alarm.late(1e9) is None
