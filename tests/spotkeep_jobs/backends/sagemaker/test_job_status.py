"""What SageMaker's words for the end of a job mean."""

from __future__ import annotations

import pytest

from spotkeep_fleet.training_spec import NOT_STARTED
from spotkeep_jobs.backends.sagemaker.job_status import end_reason_of
from spotkeep_jobs.record.states import EndReason


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (f"AlgorithmError: {NOT_STARTED}this image has no bash, exit code: 69", EndReason.INPUT_ERROR),
        ("AlgorithmError: python train.py exited with code 69:\nno, exit code: 69", EndReason.SCRIPT_FAILED),
        ("AlgorithmError: , exit code: 127", EndReason.SCRIPT_FAILED),
        ("ClientError: no data", EndReason.INPUT_ERROR),
    ],
)
def test_a_command_that_was_never_started_is_no_script_that_failed(words: str, reason: EndReason) -> None:
    assert end_reason_of("Failed", "Failed", transitions=("Training", "Failed"), failure_reason=words) is reason
