"""Real trainers that end a script with code 0 on SIGTERM: to SageMaker the job was interrupted.

What the next start makes of it is in `tests/spotkeep_agent/test_trainers_with_exit_0.py`.
"""

from __future__ import annotations

import signal

import pytest

from tests.trainers_with_exit_0 import LIGHTNING, TRANSFORMERS

pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("transformers")

pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.mark.parametrize("script", [LIGHTNING, TRANSFORMERS], ids=["lightning", "transformers"])
def test_a_job_whose_trainer_ends_with_0_on_a_notice_waits_for_the_platform_and_is_interrupted(start, script):
    job = start(["python", "train.py"], script=script, SPOTKEEP_NOTICE_SECONDS="600", OMP_NUM_THREADS="1")
    job.wait_for_line("waits")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait_for("exit")["code"] == 75
    assert [event["event"] for event in job.events] == ["start", "exit-on-notice", "exit"], "the trainer ended with 0"
    assert job.process.poll() is None
    assert job.failure is None
