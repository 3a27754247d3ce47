"""Real torchrun that a notice ends outside of a training: its exit code is 1, and the job is interrupted."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, pytest.mark.long]


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
