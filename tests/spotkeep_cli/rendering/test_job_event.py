"""A job's events in words; progress as sparse as a person can read it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_cli.following import SparseProgress
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind, parse_line


def event(kind: str, **fields: object) -> JobEvent:
    found = parse_line("spotkeep-event: " + json.dumps({"event": kind, "time": 1.0, **fields}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kind": "start", "python": "3.12.4", "spotkeep": "0.1.0"}, "started, Python 3.12.4, spotkeep 0.1.0"),
        ({"kind": "start"}, "started"),
        ({"kind": "installing", "what": "requirements.txt"}, "installs what requirements.txt asks for"),
        ({"kind": "installed", "what": "requirements.txt", "seconds": 12.3, "reason": "from the cache"},
         "packages are there (12s): from the cache"),
        ({"kind": "environment-cached", "bytes": 2000, "seconds": 0.5}, "kept the packages in S3 (2.0 kB, 0.5s)"),
        ({"kind": "environment-cached", "what": "the warm pool's cache", "bytes": 2000, "seconds": 0.5},
         "kept the packages in the warm pool's cache (2.0 kB, 0.5s)"),
        ({"kind": "environment-not-cached", "what": "the warm pool's cache", "problem": "the disk is full"},
         "the packages are not kept in the warm pool's cache: the disk is full"),
        ({"kind": "environment-not-cached", "problem": "a.tar.gz is of another launch", "reason": "installed anew"},
         "installs the packages anew: a.tar.gz is of another launch"),
        ({"kind": "environment-not-cached", "problem": "AccessDenied"},
         "the packages are not kept in S3: AccessDenied"),
        ({"kind": "set-up", "seconds": 0.5}, "setup is done (0.5s)"),
        ({"kind": "resume", "step": 0}, "found no checkpoint, starts from the beginning"),
        ({"kind": "resume", "step": 1410, "checkpoint": "step-1410"}, "resumed after step 1,410, from step-1410"),
        ({"kind": "progress", "step": 5, "total_steps": None, "metrics": {}}, "step 5"),
        ({"kind": "progress", "step": 5, "total_steps": 9, "metrics": {"loss": 0.12345}}, "step 5 of 9  loss 0.1235"),
        ({"kind": "progress", "step": 5, "total_steps": 9, "metrics": {}, "training": "fold-2"}, "fold-2: step 5 of 9"),
        ({"kind": "resume", "step": 5, "training": "fold-2"}, "fold-2: resumed after step 5"),
        ({"kind": "saved", "step": 5, "bytes": 2000, "seconds": 0.5, "reason": "notice"},
         "saved step 5 (2.0 kB, 0.5s), on notice"),
        ({"kind": "save-failed", "step": 5, "problem": "the disk is full"}, "could not save step 5: the disk is full"),
        ({"kind": "put-aside", "what": "model-003.h5", "problem": "it is empty"},
         "put aside what was cut off: model-003.h5: it is empty"),
        ({"kind": "schedule", "seconds": 120.0, "reason": "because"}, "saves every 2m: because"),
        ({"kind": "uploaded", "step": 5, "bytes": 2000, "seconds": 0.5}, "uploaded step 5 (2.0 kB, 0.5s)"),
        ({"kind": "downloaded", "step": 5}, "downloaded step 5"),
        ({"kind": "upload-failed", "step": 5, "problem": "AccessDenied"}, "could not upload step 5: AccessDenied"),
        ({"kind": "upload-late", "step": 1500, "uploaded_step": None, "seconds": 1200},
         "checkpoints have been waiting for 20m to reach S3, which has nothing of 1,500"),
        ({"kind": "upload-late", "step": 1500, "uploaded_step": 1000},
         "checkpoints have been waiting to reach S3, which has step 1,000 of 1,500"),
        ({"kind": "notice"}, "was asked to end"),
        ({"kind": "world-began", "hosts": 3, "step": 1200}, "3 nodes train from step 1,200"),
        ({"kind": "world-began", "hosts": 1, "step": 5}, "1 node trains from step 5"),
        ({"kind": "world-began", "step": None}, "the nodes train from the beginning"),
        ({"kind": "node-joined", "instance": "i-1"}, "node i-1 is there"),
        ({"kind": "node-left", "instance": "i-1", "reason": "notice"}, "node i-1 is gone: notice"),
        ({"kind": "paused", "step": 1000}, "paused after step 1,000"),
        ({"kind": "exit", "code": 75}, "exited with code 75"),
        ({"kind": "stuck", "seconds": 1800.3}, "stands still, no step and no line for 30m"),
        ({"kind": "stuck", "seconds": 1800.3, "restarts": 0, "at_most": 3},
         "stands still, no step and no line for 30m; it is ended"),
        ({"kind": "moves-again"}, "moves again"),
        ({"kind": "exit-on-notice", "code": 75, "in_a_row": 1},
         "ended with code 0 on a notice and did not say that it is done: starts again"),
        ({"kind": "exit-on-notice", "code": 0, "in_a_row": 3},
         "ended with code 0 on a notice and did not say that it is done: counts as done, because it was not the first "
         "time"),
        ({"kind": "instance-training", "instance": "i-1", "zone": "a", "phases": {"volume": 0.8, "supplies": 0.1}},
         "instance i-1 in a starts the training, after volume 0.8 s, supplies 0.1 s"),
        ({"kind": "instance-first-step", "step": 201, "phases": {"volume": 1.2, "restore": 0.8, "first-step": 0.03}},
         "the first step here, 201, is done, after volume 1.2 s, restore 0.8 s, first-step 0.0 s"),
        ({"kind": "instance-failed", "instance": "i-1", "zone": "a", "exit_code": 3, "failure": "out of memory"},
         "instance i-1 in a gives up: exit code 3"),
        ({"kind": "instance-failed", "instance": "i-1", "zone": "a", "failure": "channel train: s3://b/ holds no data"},
         "instance i-1 in a gives up: channel train: s3://b/ holds no data"),
        ({"kind": "instance-failed", "instance": "i-1", "zone": "a", "exit_code": 0, "failure": "no model was sent"},
         "instance i-1 in a gives up: no model was sent"),
        ({"kind": "image-pulled", "seconds": 9, "digest": "sha256:0a"}, "the image is there (9s): sha256:0a"),
    ],
)  # fmt: skip
def test_events_in_words(fields: dict[str, Any], text: str) -> None:
    assert event_text(event(**fields)) == text


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20)
@given(
    step=st.none() | st.integers(min_value=0),
    fields=st.dictionaries(
        st.sampled_from(["total_steps", "metrics", "seconds", "bytes", "reason", "code", "problem", "seconds_left",
                         "python", "checkpoint", "uploaded_step"]),
        anything,
    ),
)  # fmt: skip
def test_whatever_a_script_prints_there_is_a_line_for_it(step: int | None, fields: dict[str, Any]) -> None:
    for kind in JobEventKind:
        assert event_text(JobEvent(kind=kind, at=0.0, step=step, fields=fields))


@given(total=st.integers(min_value=10, max_value=150))
def test_a_whole_training_is_eleven_lines(total: int) -> None:
    sparse = SparseProgress()
    steps = [event("progress", step=step, total_steps=total) for step in range(1, total + 1)]
    assert sum(sparse.worth_a_line(step) for step in steps) <= 11


def test_going_back_after_an_interruption_is_shown() -> None:
    sparse = SparseProgress()
    assert sparse.worth_a_line(event("progress", step=50, total_steps=100))
    assert not sparse.worth_a_line(event("progress", step=51, total_steps=100))
    assert sparse.worth_a_line(event("progress", step=40, total_steps=100))
    assert sparse.worth_a_line(event("progress", step=40, total_steps=None))
