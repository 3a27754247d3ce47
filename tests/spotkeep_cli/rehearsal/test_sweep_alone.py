"""A trial that is left alone has as many hosts as in the rehearsal, each a process of this machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from spotkeep_cli.rehearsal.sweep import train_alone
from spotkeep_jobs.progress.job_events import JobEventKind

SAYS_ITS_HOST = """
import json, os, pathlib, time
names = ("SM_HOST_COUNT", "SM_CURRENT_HOST_RANK")
hosts, rank = (int(os.environ[name]) for name in names)
folder = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"])
(folder / str(rank)).touch()
for _ in range(600):
    if len(list(folder.iterdir())) >= hosts:
        break
    time.sleep(0.1)
else:
    raise SystemExit("the hosts have no folder of checkpoints in common")
print("spotkeep-event: " + json.dumps({"event": "progress", "time": 1.0, "step": 10 * hosts + rank}), flush=True)
"""


@pytest.mark.parametrize("hosts", [1, 2])
def test_hosts_share_their_checkpoints_and_the_log_of_the_first_one_is_that_of_the_trial(hosts: int) -> None:
    command = ["python3", "/opt/ml/input/data/spotkeep/spotkeep.pyz", "run", "--", "python3", "-c", SAYS_ITS_HOST]
    job = {
        "AlgorithmSpecification": {"ContainerEntrypoint": command},
        "ResourceConfig": {"InstanceCount": hosts},
    }
    trained = train_alone({"trial-1": job}, s3=cast("Any", SimpleNamespace()), timeout_seconds=120)
    steps = [event.step for event in trained["trial-1"] if event.kind is JobEventKind.PROGRESS]
    assert steps == [10 * hosts]
