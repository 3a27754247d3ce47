"""Trains the trials of a sweep once more, each as a process of its own that is left alone: what they are compared with.

A process gets what the trial's last training job got: the entry point, the hyperparameters, the source, the
environment. It has no checkpoint to go on from, so it trains from the beginning to the step where the trial ended.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from spotkeep_cli.rehearsal.errors import RehearsalTimeoutError, RehearsedRunFailedError
from spotkeep_fleet.training_spec import SPEC_CHANNEL
from spotkeep_jobs.progress.job_events import JobEvent, parse_line
from spotkeep_local.training.process_environment import job_path

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_WITH_FILES: Final = frozenset({"source", SPEC_CHANNEL})
"""The channels of Spotkeep's own that the runner reads."""
_AT_A_TIME: Final = 2


def train_alone(
    jobs: Mapping[str, Mapping[str, Any]],
    *,
    s3: S3Client,
    timeout_seconds: float,
    on_trained: Callable[[str], None] = lambda _name: None,
) -> dict[str, Sequence[JobEvent]]:
    """Train each of these and return what it logged about itself.

    Args:
        jobs: The last training job of each trial, as DescribeTrainingJob gives it, by the trial's run.
        s3: Where their sources are.
        timeout_seconds: The longest that one may take.
        on_trained: Called with the run of each that is done.

    Raises:
        RehearsalTimeoutError: One took longer.
        RehearsedRunFailedError: One failed.
    """

    def trained(run: str) -> Sequence[JobEvent]:
        with TemporaryDirectory(prefix="spotkeep-alone-") as base:
            events = _trained(run, jobs[run], base=Path(base), s3=s3, timeout_seconds=timeout_seconds)
        on_trained(run)
        return events

    with ThreadPoolExecutor(max_workers=_AT_A_TIME) as pool:
        return dict(zip(jobs, pool.map(trained, jobs), strict=True))


def _trained(
    run: str, job: Mapping[str, Any], *, base: Path, s3: S3Client, timeout_seconds: float
) -> Sequence[JobEvent]:
    _lay_out(job, base=base, s3=s3)
    algorithm = job["AlgorithmSpecification"]
    # The entry point is the Python of the image, the bundle, and the bundle's own words.
    command = [sys.executable, "-m", "spotkeep", *algorithm["ContainerEntrypoint"][2:]]
    environment = {
        "PATH": job_path(),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "HOME": str(base),
        "TMPDIR": str(base),
        "SAGEMAKER_BASE_DIR": str(base),
        **job.get("Environment", {}),
    }
    try:
        done = subprocess.run(
            command, cwd=base, env=environment, capture_output=True, text=True, check=False, timeout=timeout_seconds
        )
    except subprocess.TimeoutExpired as error:
        raise RehearsalTimeoutError(seconds=timeout_seconds, states={f"{run}, left alone,": "training"}) from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise RehearsedRunFailedError(run=f"{run}, left alone,", failure=" ".join(last))
    return [event for line in done.stdout.splitlines() if (event := parse_line(line)) is not None]


def _lay_out(job: Mapping[str, Any], *, base: Path, s3: S3Client) -> None:
    """Write what a training job finds on its machine."""
    configuration = base / "input" / "config"
    configuration.mkdir(parents=True)
    (configuration / "hyperparameters.json").write_text(json.dumps(job.get("HyperParameters", {})))
    for channel in job.get("InputDataConfig", ()):
        name = channel["ChannelName"]
        if name in _WITH_FILES:
            bucket, _, key = channel["DataSource"]["S3DataSource"]["S3Uri"].removeprefix("s3://").partition("/")
            target = base / "input" / "data" / name / key.rpartition("/")[2]
            target.parent.mkdir(parents=True)
            with target.open("wb") as file:
                shutil.copyfileobj(s3.get_object(Bucket=bucket, Key=key)["Body"], file)
