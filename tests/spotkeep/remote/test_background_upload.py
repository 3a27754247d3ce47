"""What is uploaded next, what is dropped, and what a notice leaves time for. The other side here is a hand's work."""

from __future__ import annotations

import math
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import DamagedCheckpointError, RemoteError, UsageError
from spotkeep.disk.retention import Retention
from spotkeep.remote.background_upload import BackgroundUpload, switch_pays, upload_pace
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep.remote.upload_share import UploadShare


class Upload:
    def __init__(self, step):
        self.step = step
        self.total_bytes = 100
        self.done_bytes = self.sent_bytes = 0
        self.cancelled = threading.Event()
        self.closed = False

    def close(self):
        self.closed = True


class Remote:
    """Holds each upload until it is let go, and then lets it arrive or fail."""

    def __init__(self):
        self.begun = {}
        self.let_go = {}
        self.problems = {}
        self.pruned = 0
        self.damaged = set()
        self.superseded = []
        self.share = UploadShare()

    def open(self, step, *, whole=False):
        if step in self.damaged:
            raise DamagedCheckpointError(f"step-{step}", "gone")
        return Upload(step)

    def size(self, step):
        return 100

    def hold(self, *steps):
        for step in steps:
            self.let_go[step] = threading.Event()
            self.begun[step] = threading.Event()

    def send(self, upload, *, pace):
        if upload.step in self.begun:
            self.begun[upload.step].set()
            while not self.let_go[upload.step].wait(0.005):
                if upload.cancelled.is_set():
                    raise TransferCancelledError
        upload.done_bytes = upload.sent_bytes = upload.total_bytes
        problems = self.problems.get(upload.step, [])
        if problems:
            raise problems.pop(0)

    def prune(self, retention, *, uploading=()):
        self.pruned += 1

    def missing(self, retention):
        return [self.superseded.pop(0)] if self.superseded else []


@pytest.fixture
def remote():
    return Remote()


@pytest.fixture
def uploading(remote, monkeypatch):
    monkeypatch.setattr("spotkeep.remote.background_upload._FIRST_PAUSE_SECONDS", 0.001)
    outcomes = []
    background = BackgroundUpload(
        remote, retention=Retention(), pace=upload_pace({}), on_outcome=lambda outcome: outcomes.append(outcome)
    )
    background.outcomes = outcomes
    yield background
    background.stop()


def forever():
    return math.inf


def steps(uploading):
    return [outcome.step for outcome in uploading.outcomes if outcome.problem is None]


def test_what_waits_is_superseded_and_what_is_on_its_way_is_not(remote, uploading):
    remote.hold(1)
    uploading.offer(1)
    remote.begun[1].wait()
    for step in (2, 3, 4):
        uploading.offer(step)
    remote.let_go[1].set()
    assert uploading.finish(forever)
    assert steps(uploading) == [1, 4]
    assert remote.pruned == 2, "after each one that arrived"


def test_what_was_superseded_and_is_to_stay_follows_when_nothing_else_waits(remote, uploading):
    remote.superseded = [3, 2]
    uploading.offer(5)
    assert uploading.finish(forever)
    assert steps(uploading) == [5, 3, 2]


@pytest.mark.parametrize("newer", [None, 6])
def test_after_a_notice_it_is_left_for_the_next_machine(remote, uploading, newer):
    remote.superseded = [3, 2]
    remote.hold(3)
    uploading.offer(5)
    remote.begun[3].wait()
    if newer is not None:
        uploading.offer(newer)
    assert uploading.finish(lambda: 60.0)
    assert steps(uploading) == ([5] if newer is None else [5, 6])


def test_at_the_end_of_a_script_there_is_time_for_it(remote, uploading):
    remote.superseded = [3]
    uploading.offer(5)
    assert uploading.finish(lambda: 60.0, newest_only=False)
    assert steps(uploading) == [5, 3]


def test_nothing_is_removed_until_it_is_known_what_stays(remote, uploading):
    unknown = BackgroundUpload(remote, retention=None, pace=upload_pace({}), on_outcome=uploading.outcomes.append)
    unknown.offer(1)
    assert unknown.finish(forever)
    assert remote.pruned == 0
    unknown.keep(Retention(last=2))
    unknown.offer(2)
    assert unknown.finish(forever)
    assert remote.pruned == 1
    unknown.stop()


def test_where_no_thread_can_be_started_nothing_waits_for_ever_and_the_next_one_is_uploaded(
    remote, uploading, monkeypatch, caplog
):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as refusing:
        refusing.setattr(threading.Thread, "start", refuse)
        uploading.offer(1)
        assert not uploading.finish(forever)
    assert "the checkpoint of step 1 is not being uploaded: can't start new thread" in caplog.text
    uploading.offer(2)
    assert uploading.finish(forever)
    assert steps(uploading) == [2]


def test_what_failed_is_tried_again(remote, uploading):
    remote.problems[1] = [RemoteError("throttled"), OSError("who knows")]
    uploading.offer(1)
    assert uploading.finish(forever)
    assert [outcome.problem is None for outcome in uploading.outcomes] == [False, False, True]
    assert remote.pruned == 1


def test_what_failed_is_dropped_for_a_newer_one(remote, uploading):
    remote.hold(1)
    remote.problems[1] = [RemoteError("throttled")] * 5
    uploading.offer(1)
    remote.begun[1].wait()
    uploading.offer(2)
    remote.let_go[1].set()
    assert uploading.finish(forever)
    assert steps(uploading) == [2]


def test_at_the_end_three_failures_in_a_row_are_enough(remote, uploading):
    remote.problems[1] = [RemoteError("no such bucket")] * 99
    uploading.offer(1)
    assert not uploading.finish(forever)
    assert len(uploading.outcomes) >= 3


def test_one_that_is_gone_from_the_disk_is_passed_over(remote, uploading):
    remote.damaged = {1}
    uploading.offer(1)
    assert uploading.finish(forever)
    assert uploading.outcomes == []


def test_on_a_notice_it_is_over_when_the_time_is(remote, uploading):
    remote.hold(1)
    uploading.offer(1)
    remote.begun[1].wait()
    assert not uploading.finish(lambda: 0.0)


def test_on_a_notice_the_newer_one_goes_if_only_it_can_arrive(remote, uploading):
    uploading.offer(0)
    assert uploading.finish(forever)
    uploading._pace._sent_bytes, uploading._pace._sent_seconds = 100, 10.0
    remote.hold(1)
    uploading.offer(1)
    remote.begun[1].wait()
    uploading.offer(2)
    assert uploading.finish(lambda: 15.0)
    assert steps(uploading) == [0, 2]


def test_nothing_is_begun_after_the_end(remote, uploading):
    remote.hold(1)
    uploading.offer(1)
    remote.begun[1].wait()
    uploading.offer(2)
    uploading.stop()
    uploading._thread.join()
    assert uploading.outcomes == []


sizes = st.integers(0, 10**12)


@given(running=sizes, waiting=sizes, rate=st.floats(1, 1e10), seconds=st.floats(0, 900))
def test_breaking_off_brings_the_newer_one_home_and_never_loses_one_for_nothing(running, waiting, rate, seconds):
    reach = rate * seconds
    pays = switch_pays(running_bytes=running, waiting_bytes=waiting, bytes_per_second=rate, seconds=seconds)
    assert not (pays and waiting > reach), "broken off for one that cannot arrive either"
    assert not (pays and running + waiting <= reach), "broken off although there was time for both"
    assert pays or running + waiting <= reach or waiting > reach, "the newer one could have arrived"


def test_nothing_is_broken_off_on_a_guess():
    assert not switch_pays(running_bytes=10, waiting_bytes=1, bytes_per_second=None, seconds=1.0)


@pytest.mark.parametrize("text", ["0", "-1", "fast", "nan", "inf"])
def test_a_pace_that_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError, match="SPOTKEEP_UPLOAD_MB_PER_SECOND"):
        upload_pace({"SPOTKEEP_UPLOAD_MB_PER_SECOND": text})
