"""A notice reaches the script by signal or by file, and SIGTERM is given back afterwards."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from spotkeep.notice import Notice, NoticeWatch, notice_seconds, read_notice, write_notice


@pytest.fixture
def watch():
    watching = NoticeWatch()
    watching.start()
    yield watching
    watching.stop()


def test_there_is_none_until_it_comes(watch):
    assert watch.notice() is None


def test_sigterm_is_a_notice_of_two_minutes(watch):
    before = time.time()
    os.kill(os.getpid(), signal.SIGTERM)
    notice = watch.notice()
    assert notice.source == "SIGTERM"
    assert before + 120 <= notice.deadline <= time.time() + 120


def test_the_first_notice_counts(watch, monkeypatch):
    os.kill(os.getpid(), signal.SIGTERM)
    first = watch.notice()
    os.kill(os.getpid(), signal.SIGTERM)
    assert watch.notice() is first


def test_a_file_is_a_notice_for_whoever_gets_no_signal(tmp_path, monkeypatch):
    path = tmp_path / "notice.json"
    monkeypatch.setenv("SPOTKEEP_NOTICE_FILE", str(path))
    seen = []

    def work():
        watching = NoticeWatch()
        watching.start()
        seen.append(watching.notice())
        write_notice(path, Notice(source="EC2", deadline=2e9))
        seen.append(watching.notice())
        watching.stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [None, Notice(source="EC2", deadline=2e9)]
    assert seen[1].seconds_left > 0


def test_a_file_that_cannot_be_read_is_a_notice_all_the_same(tmp_path):
    path = tmp_path / "notice.json"
    path.write_text("{")
    assert read_notice(path).seconds_left > 0


def test_a_notice_that_is_over_has_no_seconds_left():
    assert Notice(source="SIGTERM", deadline=time.time() - 5).seconds_left == 0


@pytest.mark.parametrize(("given", "taken"), [("30", 30.0), ("-1", 0.0), ("soon", 120.0)])
def test_how_long_a_notice_lasts_can_be_said(monkeypatch, given, taken):
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", given)
    assert notice_seconds() == taken


def test_a_handler_that_was_there_is_still_called_and_comes_back():
    calls = []

    def mine(signum, frame):
        calls.append(signum)

    original = signal.signal(signal.SIGTERM, mine)
    try:
        outer, inner = NoticeWatch(), NoticeWatch()
        outer.start()
        inner.start()
        os.kill(os.getpid(), signal.SIGTERM)
        assert calls == [signal.SIGTERM]
        assert outer.notice() is not None
        assert inner.notice() is not None
        inner.stop()
        outer.stop()
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, original)


def test_a_handler_that_came_later_stays():
    original = signal.getsignal(signal.SIGTERM)
    watch = NoticeWatch()
    watch.start()
    later = signal.SIG_IGN
    signal.signal(signal.SIGTERM, later)
    watch.stop()
    assert signal.getsignal(signal.SIGTERM) is later
    signal.signal(signal.SIGTERM, original)
