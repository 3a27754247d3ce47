"""The failure file holds the reason in the 1,024 characters that the platform keeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.runner.failure import MAX_CHARACTERS, failed_by_itself, failure_text, says_ended_by_sigterm


def text(stderr_tail, *, command=("python", "train.py"), exit_code=1, memory_kills=0):
    return failure_text(command=list(command), exit_code=exit_code, stderr_tail=stderr_tail, memory_kills=memory_kills)


def test_it_names_the_command_the_code_and_the_last_words():
    assert text(b"warming up\nTraceback ...\nValueError: no data\n") == (
        "python train.py exited with code 1:\nwarming up\nTraceback ...\nValueError: no data"
    )


def test_a_command_that_said_nothing():
    assert text(b"") == "python train.py exited with code 1"


def test_a_kill_is_reported_as_one():
    assert text(b"", exit_code=137) == "python train.py was killed by signal 9 (exit code 137)"


def test_a_kill_for_memory_is_the_reason_also_when_only_a_worker_died():
    assert text(b"", exit_code=137, memory_kills=1).startswith(
        "python train.py was killed by signal 9 (exit code 137); memory ran out, and the kernel killed a process"
    )
    reason = text(b"RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", memory_kills=2)
    assert "exited with code 1; memory ran out, and the kernel killed 2 processes" in reason
    assert reason.endswith("is killed by signal: Killed.")


def test_the_end_counts_when_there_is_too_much():
    reason = text(b"".join(b"line %d\n" % number for number in range(1000)))
    assert reason.endswith("line 998\nline 999")
    assert reason.startswith("python train.py exited with code 1:\nline ")


def test_of_a_progress_bar_the_last_state_counts():
    assert text(b"\r 10%\r 50%\r100%\nOSError: gone\r\n").endswith("code 1:\n100%\nOSError: gone")


@pytest.mark.parametrize(
    "prefix",
    [
        b"E1130 00:22:46.291000 8359 torch/distributed/elastic/multiprocessing/api.py:1002] ",
        b"[2024-03-01 10:00:00,000] torch.distributed.elastic.multiprocessing.api: [ERROR] ",
        b"ERROR:torch.distributed.elastic.multiprocessing.api:",
    ],
)
def test_of_several_ranks_the_reason_is_that_of_the_rank_and_not_torchruns_report(prefix):
    report = prefix + b"failed (exitcode: 1) local_rank: 1 (pid: 8427) of binary: python\n" + b"Traceback ...\n" * 200
    before = b"W1130 00:22:46.290000 8359 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 8426\n"
    assert text(b"ValueError: no such file\n" + before + report) == (
        "python train.py exited with code 1:\nValueError: no such file\n"
        "failed (exitcode: 1) local_rank: 1 (pid: 8427) of binary: python"
    )
    assert "Traceback" in text(report), "a rank that said nothing has no other reason"


def test_torchruns_advice_about_threads_is_no_part_of_the_reason():
    stars = b"*****************************************\n"
    advice = b"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default \n"
    first = b"W1130 08:23:33.290000 40 torch/distributed/run.py:851] \n"
    for before in (first, first + b"W1130 08:23:33.290000 40 torch/distributed/run.py:851] ", b""):
        said = before + stars + advice + stars + b"ValueError: no such file\n"
        failed = b"torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) local_rank: 0\n"
        assert text(said + failed) == (
            "python train.py exited with code 1:\nValueError: no such file\nfailed (exitcode: 1) local_rank: 0"
        )
    assert "*****" in text(stars + b"of the script\n" + stars + failed)


def test_of_several_ranks_that_failed_the_first_one_has_the_reason():
    began = b"Traceback (most recent call last):\n"
    mixed = b"[rank2]: " + began + b"[rank13]: " + began + b"[rank2]: ValueError: a bad sample\n"
    mixed += b"[rank13]:   a frame\n" * 99 + b"[rank13]: RuntimeError: Connection closed by peer\n"
    torch = b"torch/distributed/elastic/multiprocessing/api.py:1002] "
    failed = b"failed (exitcode: 1) local_rank: 0 (pid: 16905) of binary: python\n"
    warning = b"[rank13]:[W1130 01:22:23 ProcessGroup.cpp:1] a warning\n"
    warning += (
        b"[W1130 01:22:22.523900812 socket.cpp:207] [c10d] The hostname of the client socket cannot be retrieved\n"
    )
    assert text(warning + mixed + b"E1130 " + torch + failed + b"Traceback ...\n" * 200) == (
        "python train.py exited with code 1:\n[rank2]: Traceback (most recent call last):\n"
        "[rank2]: ValueError: a bad sample\n" + failed.decode().rstrip()
    )


def test_torchrun_says_that_sigterm_has_ended_it():
    said = (
        b"Traceback ...\ntorch.distributed.elastic.multiprocessing.api.SignalException: Process 12417 got signal: 15\n"
    )
    assert says_ended_by_sigterm(said)
    assert says_ended_by_sigterm(said + b"a worker's last line\n")
    assert not says_ended_by_sigterm(said.replace(b"15", b"2"))
    assert not says_ended_by_sigterm(said.replace(b"15", b"15 is what it says, and goes on"))


@given(
    tail=st.one_of(st.binary(max_size=4000), st.text(max_size=4000).map(lambda line: line.encode("utf-8", "replace"))),
    command=st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=4),
    exit_code=st.integers(1, 255),
    memory_kills=st.integers(0, 10**6),
)
def test_it_always_fits_whatever_was_said(tail, command, exit_code, memory_kills):
    reason = text(tail, command=command, exit_code=exit_code, memory_kills=memory_kills)
    assert 0 < len(reason) <= MAX_CHARACTERS
    reason.encode("utf-8", "surrogateescape")


TORCHRUN = "W1130 03:12:05.095000 6008 torch/distributed/elastic/"
CLOSES = f"{TORCHRUN}multiprocessing/api.py:1028] Sending process 6044 closing signal SIGTERM\n"
SIGNALLED = f"{TORCHRUN}agent/server/api.py:753] Received 15 death signal, shutting down workers\n"
RAISED = "[rank2]: Traceback (most recent call last):\n[rank2]: ValueError: a bad sample\n"
ENDED = "Traceback (most recent call last):\n" + "  a frame\n" * 200
ENDED += "torch.distributed.elastic.multiprocessing.api.SignalException: Process 6008 got signal: 15\n"


@pytest.mark.parametrize(
    ("tail", "exit_code", "by_itself"),
    [
        (RAISED + CLOSES + SIGNALLED + CLOSES + ENDED, 1, True),
        (CLOSES + SIGNALLED + CLOSES + ENDED, 1, True),
        (SIGNALLED + CLOSES + ENDED, 1, False),
        (SIGNALLED + CLOSES + RAISED + ENDED, 1, False),
        ("", 143, False),
        ("", 137, False),
        ("ValueError: a bad sample\n", 1, True),
    ],
)
def test_a_rank_that_failed_before_torchrun_got_sigterm_is_a_failure_of_its_own(tail, exit_code, by_itself):
    assert failed_by_itself(tail.encode(), exit_code=exit_code) is by_itself


def test_the_error_of_a_rank_is_the_reason_though_torchrun_got_sigterm_after_it():
    assert text((RAISED + CLOSES + SIGNALLED + CLOSES + ENDED).encode()) == (
        "python train.py exited with code 1:\n" + RAISED.rstrip()
    )
    assert text((SIGNALLED + CLOSES + ENDED).encode()).endswith("SignalException: Process 6008 got signal: 15")
