"""The real torchrun at a notice: its workers have as long as it leaves, and its own exit code 1 fails no job."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

# A rank whose save takes a while after the notice, which it sees as the library does.
SAVES_SLOWLY = """
    import os, pathlib, sys, time
    from spotkeep.notices.notice import NoticeWatch

    watch = NoticeWatch()
    watch.start()
    print("shutdown timeout:", os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"], flush=True)
    print("waiting", flush=True)
    while watch.notice() is None:
        time.sleep(0.05)
    time.sleep(float(os.environ["SAVE_SECONDS"]))
    pathlib.Path("saved").write_text("whole")
    watch.note_leaving()
    sys.exit(75)
"""
TORCHRUN = ["torchrun", "--standalone", "--nproc-per-node", "1", "train.py"]
SHELL = ["sh", "-c", f'trap "" TERM; {" ".join(TORCHRUN)}; exit $?', "sh"]


@pytest.mark.parametrize(
    ("command", "given", "shutdown_timeout", "save_seconds", "saved"),
    [
        (TORCHRUN, {}, "28", "3", True),
        (TORCHRUN, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}, "1", "600", False),
        (SHELL, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "1"}, "1", "3", True),
    ],
    ids=["from the notice", "too short", "a shell that keeps the signal"],
)
def test_a_save_takes_as_long_as_the_notice_leaves(
    start, tmp_path, command, given, shutdown_timeout, save_seconds, saved
):
    job = start(command, script=SAVES_SLOWLY, SPOTKEEP_NOTICE_SECONDS="30", SAVE_SECONDS=save_seconds, **given)
    job.wait_for_line(f"shutdown timeout: {shutdown_timeout}")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75) if saved else job.wait_for("exit")
    assert (tmp_path / "saved").exists() is saved
    os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()


def test_a_notice_before_the_training_has_begun_does_not_fail_the_job(start):
    """As long as the ranks load libraries and data, and for scripts with checkpoints of their own in any step."""
    job = start(
        ["torchrun", "--standalone", "--nproc-per-node", "1", "train.py"],
        script="import time; print('waiting', flush=True); time.sleep(600)",
        SPOTKEEP_NOTICE_SECONDS="600",
        OMP_NUM_THREADS="1",
    )
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait_for("exit")["code"] == 75
    assert job.process.poll() is None, "the job waits for the platform"
    assert job.failure is None
    os.killpg(job.process.pid, signal.SIGKILL)
    job.finish()
    assert "got signal: 15" in job.stderr, "torchrun has ended itself"
