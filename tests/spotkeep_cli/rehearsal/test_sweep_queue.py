"""The queue in which a sweep is rehearsed: how it is divided, and what the other share's jobs are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.engine import Rehearsal
from spotkeep_cli.rehearsal.sweep_queue import SHARE_OF_OTHERS, OtherShare, queue_of, settings_of
from spotkeep_jobs.document.queue import Queue
from spotkeep_jobs.record.states import RunState

FIELDS: dict[str, Any] = {
    "name": "search",
    "command": "python train.py --lr {parameters.lr}",
    "instance_type": "ml.m5.large",
    "capacity": "spot",
    "max_wait": "2h",
    "hyperparameters": {"lr": "{parameters.lr}"},
    "queue": "cpu",
    "share": "research",
    "sweep": {"parameters": {"lr": [0.1, 0.2]}, "search": "grid", "parallel": 6},
}


def test_a_job_file_without_a_queue_asks_for_none() -> None:
    fields = {name: value for name, value in FIELDS.items() if name not in ("queue", "share")}
    assert queue_of(fields) is None
    assert settings_of(fields) == {}


@pytest.mark.parametrize(
    ("parallel", "count", "own", "others"), [(8, 1, 2, 2), (6, 1, 2, 1), (6, 2, 4, 2), (3, 1, 1, 1), (2, 1, 1, 1)]
)
def test_the_queue_has_instances_for_half_of_what_is_under_way_and_a_part_of_them_is_lent(
    parallel: int, count: int, own: int, others: int
) -> None:
    sweep = {**FIELDS["sweep"], "parallel": parallel}
    setting = json.loads(settings_of({**FIELDS, "sweep": sweep, "instance_count": count})["queues"])["cpu"]
    queue = Queue.model_validate(setting)
    assert queue.types == {"ml.m5.large": own + others}
    assert queue.shares["research"].types == {"ml.m5.large": own}
    assert queue.shares["research"].lending == "lend-and-borrow"
    assert queue.shares[SHARE_OF_OTHERS].types == {"ml.m5.large": others}
    assert queue.shares[SHARE_OF_OTHERS].lending == "lend"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"share": None}, "found share None"),
        ({"share": SHARE_OF_OTHERS}, "which is not 'others'"),
        ({"instance_type": None}, "instance_type None"),
        ({"sweep": {**FIELDS["sweep"], "parallel": 1}}, "found sweep.parallel 1"),
    ],
    ids=["no share", "the other share", "no type", "one at a time"],
)
def test_what_cannot_be_rehearsed_in_a_queue_is_refused(changes: dict[str, Any], found: str) -> None:
    with pytest.raises(UsageError, match=found):
        queue_of({**FIELDS, **changes})


def test_a_job_of_the_other_share_is_no_sweep_and_has_none_of_its_placeholders(tmp_path: Path) -> None:
    job_file = tmp_path / "sweep.yaml"
    job_file.write_text(json.dumps(FIELDS))
    queue = queue_of(FIELDS)
    assert queue is not None
    fields = read_job_file(job_file).with_fields(queue.others_job()).fields
    assert fields["share"] == SHARE_OF_OTHERS
    assert "sweep" not in fields
    assert "{parameters" not in json.dumps(fields)


class SweepInAQueue:
    """A rehearsal, its deployment and AWS Batch, as far as the other share sees them."""

    first, name = "search-1", "spotkeep"

    def __init__(self) -> None:
        self.session = SimpleNamespace(client=lambda _service, config: self)
        self.deployment = self
        self.view = SimpleNamespace(note=lambda _text: None)
        self.trials: dict[str, str] = {}
        self.preempted: set[str] = set()
        self.launched: dict[str, RunState] = {}

    def add_run(self, suffix: str) -> str:
        return f"{self.first}{suffix}"

    def launch(self, *, run: str, **_fields: Any) -> None:
        self.launched[run] = RunState.TRAINING

    def run(self, name: str) -> Any:
        return SimpleNamespace(state=self.launched[name])

    def follow(self, *names: str) -> dict[str, Any]:
        return {name: self.run(name) for name in names}

    def get_paginator(self, _operation: str) -> Any:
        def pages(**_query: Any) -> Iterator[dict[str, Any]]:
            for name, status in self.trials.items():
                yield {"jobSummaryList": [{"jobId": name, "jobName": name, "status": status}]}

        return SimpleNamespace(paginate=pages)

    def describe_service_job(self, *, jobId: str) -> dict[str, Any]:  # noqa: N803
        return {"preemptionSummary": {"preemptedAttemptCount": 1}} if jobId in self.preempted else {}


def test_the_other_share_wants_its_instances_when_trials_have_them_and_until_one_is_preempted() -> None:
    sweep, queue = SweepInAQueue(), queue_of({**FIELDS, "sweep": {**FIELDS["sweep"], "parallel": 2}})
    assert queue is not None
    others = OtherShare(cast("Rehearsal", sweep), queue)

    sweep.trials = {"search-1-1-1": "RUNNING", "search-1-2-1": "RUNNABLE"}
    others.launch_when_lent()
    assert sweep.launched == {}
    assert others.states() == Counter()

    sweep.trials["search-1-2-1"] = "STARTING"
    others.launch_when_lent()
    others.launch_when_lent()
    assert list(sweep.launched) == ["search-1-others-1"]

    # A trial ended meanwhile: the job took its instance.
    sweep.launched["search-1-others-1"] = RunState.COMPLETED
    sweep.trials["search-1-1-1"] = "SUCCEEDED"
    others.launch_when_lent()
    assert list(sweep.launched) == ["search-1-others-1"]
    sweep.trials["search-1-3-1"] = "RUNNING"
    others.launch_when_lent()
    assert list(sweep.launched) == ["search-1-others-1", "search-1-others-2"]

    sweep.launched["search-1-others-2"] = RunState.COMPLETED
    sweep.preempted.add("search-1-3-1")
    others.launch_when_lent()
    others.launch_when_lent()
    assert others.states() == {"COMPLETED": 2}
