"""What the rehearsal before left in S3 and in the logs is removed when the next one begins.

It is hundreds of objects and log lines, and every start of the local AWS restores them: each would be slower than the
one before. The records of the runs stay, with their stories and their bills.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_jobs.progress.training_logs import LOG_GROUP

if TYPE_CHECKING:
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_local.lifecycle import LocalAws

_NOTE = "rehearsed-runs"


def replace_earlier(local: LocalAws, runs: RunTable, *, names: Sequence[str]) -> None:
    """Remove what earlier rehearsals' runs left, and note this one's for the next.

    What has not ended keeps everything, and is noted again.

    Args:
        local: Where they ran.
        runs: The run table.
        names: The ids of the runs, or of the sweep, of the rehearsal that begins.
    """
    note = local.state_dir / _NOTE
    alive = []
    for name in note.read_text().split() if note.exists() else ():
        sweep, trials = runs.sweep_and_trials(name)
        of_trials = (runs.trial_run(trial.sweep, trial.number) for trial in trials)
        found = [run for run in (runs.get(name), *of_trials) if run is not None]
        # A sweep that goes on resumes trials that have paused.
        if (sweep is None or sweep.state.ended) and all(run.state.ended for run in found):
            for run in found:
                _remove(local, run, job_names=[attempt.job_name for attempt in runs.attempts(run.run)])
        else:
            alive.append(name)
    note.write_text("\n".join([*alive, *names]) + "\n")


def note_run(local: LocalAws, name: str) -> None:
    """Note one more run of the rehearsal under way, for the next rehearsal to remove.

    Args:
        local: Where it runs.
        name: Its id.
    """
    with (local.state_dir / _NOTE).open("a") as note:
        note.write(f"{name}\n")


def _remove(local: LocalAws, run: Run, *, job_names: Sequence[str]) -> None:
    session = local.session()
    bucket = session.resource("s3").Bucket(urlsplit(run.output_prefix).netloc)
    for prefix in PREFIXES:
        bucket.object_versions.filter(Prefix=f"{prefix}{run.run}/").delete()
    logs = session.client("logs")
    with contextlib.suppress(logs.exceptions.ResourceNotFoundException):  # No job has written a log yet.
        for job_name in job_names:
            found = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix=f"{job_name}/")
            for stream in found["logStreams"]:
                logs.delete_log_stream(logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"])
