"""The queue in which a sweep is rehearsed: how it is divided, and what the other share's jobs are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.sweep_queue import SHARE_OF_OTHERS, queue_of, settings_of
from spotkeep_jobs.document.queues import Queue

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
    ("parallel", "count", "own", "others"), [(6, 1, 4, 2), (6, 2, 8, 4), (3, 1, 2, 1), (2, 1, 1, 1)]
)
def test_the_queue_holds_what_trains_at_a_time_and_a_part_of_it_is_lent(
    parallel: int, count: int, own: int, others: int
) -> None:
    sweep = {**FIELDS["sweep"], "parallel": parallel}
    setting = json.loads(settings_of({**FIELDS, "sweep": sweep, "instance_count": count})["queues"])["cpu"]
    queue = Queue.model_validate(setting)
    assert queue.types == {"ml.m5.large": parallel * count}
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
