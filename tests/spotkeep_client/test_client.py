"""What a notebook or a pipeline does with Spotkeep: launch, wait, read, stop, resume."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from spotkeep_client import (
    Measurement,
    NoConnectionError,
    RefusedError,
    RunFailedError,
    RunNotFoundError,
    RunStoppedError,
    Spotkeep,
    SweepHandle,
    UsageError,
)
from spotkeep_jobs.record.record import Metric, Progress, ScriptMetrics
from spotkeep_jobs.record.states import EndReason, RunState, SweepState
from spotkeep_jobs.record.sweep import TrialCounts
from tests.spotkeep_cli.sweeps.test_sweep_commands import NOW, REQUEST, SWEEP, TRIALS, sweep

from .conftest import RUN

LOSS = Metric(goal="minimize", last_step=20, last=0.5, best_step=10, best=0.25, points=((10, 0.25), (20, 0.5)))
RATE = Metric(last_step=10, last=0.1, points=((10, 0.1),))
MEASURED = ScriptMetrics(metrics={"loss": LOSS, "rate": RATE})


def event(kind: str, **fields: object) -> str:
    return "spotkeep-event: " + json.dumps({"event": kind, "time": 1_795_262_400.0, **fields})


def test_a_job_is_a_file_or_its_fields_with_other_values_and_source(
    accepting: Any, client: Spotkeep, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('training')")
    (tmp_path / ".env").write_text("TOKEN=1")
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: digits\ncommand: python train.py\nhyperparameters: {lr: 0.1}\n")
    with pytest.warns(UserWarning, match=r"may be a secret.*found \.env") as warned:
        first = client.launch(job_file, source=tmp_path, hyperparameters={"lr": 0.2})
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="no source is given, so the image itself must hold train.py"):
        second = client.launch({"name": "digits", "command": "python train.py"}, max_run="2h")
    assert (first.id, second.id) == (RUN, RUN)
    launches = [document for document in accepting.invocations if "action" not in document]
    assert launches[0]["hyperparameters"] == {"lr": 0.2}
    assert launches[0]["source"].endswith(".tar.gz")
    assert len(accepting.uploads) == 1
    assert launches[1]["max_run"] == "2h"
    assert launches[1]["token"] == "token"


def test_a_refusal_carries_every_problem_and_shows_them(deployment: Any, client: Spotkeep) -> None:
    problems = [{"field": name, "found": "1", "problem": "is wrong", "fix": "Do."} for name in ("max_run", "team")]
    deployment.answers["validate"] = {"ok": False, "problems": problems}
    with pytest.raises(RefusedError) as refused:
        client.launch({"name": "digits", "command": "python train.py"})
    assert [problem.field for problem in refused.value.problems] == ["max_run", "team"]
    printed = str(refused.value)
    assert printed.splitlines() == [
        "nothing was launched: 2 problems in the job's fields",
        "- max_run: is wrong (found 1). Do.",
        "- team: is wrong (found 1). Do.",
    ]
    assert "Hint: " not in str(refused.value), "a dictionary is in no file that doctor could check"
    assert not any("action" not in document for document in deployment.invocations)


class Optimizer(Enum):
    ADAM = "adam"


def test_what_a_notebook_has_is_sent_as_a_job_file_would_have_it(
    accepting: Any, client: Spotkeep, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('training')")
    values = {
        "lr": np.float32(0.5), "layers": np.int64(3), "amp": np.bool_(True), "optimizer": Optimizer.ADAM,
        "until": date(2026, 12, 1), "data": PurePosixPath("/opt/data"), "momentum": Decimal("0.90"),
    }  # fmt: skip
    job = {"name": "digits", "command": ("python", "train.py"), "source": tmp_path, "hyperparameters": values}
    client.launch(job)
    [sent] = [document for document in accepting.invocations if "action" not in document]
    assert sent["hyperparameters"] == {
        "lr": 0.5, "layers": 3, "amp": True, "optimizer": "adam",
        "until": "2026-12-01", "data": "/opt/data", "momentum": "0.90",
    }  # fmt: skip
    assert json.loads(json.dumps(sent)) == sent
    assert len(accepting.uploads) == 1, "a path as the source is packed"


@pytest.mark.parametrize(
    ("fields", "field", "fix"),
    [
        ({"hyperparameters": {"token": b"x"}}, "hyperparameters.token", "Decode it"),
        ({"environment": {"IDS": {1, 2}}}, "environment.IDS", "Write a list"),
        ({"hyperparameters": {"lr": np.array([0.1])}}, "hyperparameters.lr", "Give text, a number"),
        ({"metrics": {b"loss": None}}, "metrics (a name)", "Decode it"),
        ({"command": ["python", b"train.py"]}, "command[1]", "Decode it"),
    ],
)
def test_what_no_job_file_can_hold_is_refused_with_its_field_and_reaches_no_launcher(
    accepting: Any, client: Spotkeep, fields: dict[str, Any], field: str, fix: str
) -> None:
    """Once the script got `b'x'`, five characters, or the elements of a set in some order."""
    with pytest.raises(RefusedError) as refused:
        client.launch({"name": "digits", "command": "python train.py", "max_run": "soon", **fields})
    found = {problem.field: problem for problem in refused.value.problems}
    assert fix in found[field].fix
    assert "max_run" in found, "all that is wrong is named at once"
    assert accepting.invocations == []


def test_a_resume_sends_no_such_value_either(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.completed(RUN, state=RunState.STOPPED, end_reason=EndReason.STOPPED_BY_USER))
    with pytest.raises(RefusedError) as refused:
        client.run(RUN).resume(hyperparameters={"token": b"x"})
    assert [problem.field for problem in refused.value.problems] == ["changes.hyperparameters.token"]
    assert deployment.invocations == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [({"backend": "ec2", "runs": 3}, "launches 3 runs"), ({"schedule": "rate(1 day)"}, "has a schedule")],
)
def test_several_runs_and_a_schedule_are_not_one_run(
    client: Spotkeep, accepting: Any, asked: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        client.launch({"name": "digits", "command": "x", **asked})
    assert accepting.invocations == []


def test_a_run_is_found_by_the_beginning_of_its_id(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.completed())
    assert client.run("digits").id == RUN
    assert repr(client.run("digits")) == f"<Run {RUN}: completed, 14m>"
    with pytest.raises(RunNotFoundError) as missing:
        client.run("digots")
    assert str(missing.value).endswith(f"\nHint: did you mean {RUN}? `spotkeep ps --all` lists the runs")


def test_waiting_shows_what_happens_and_ends_with_the_run(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.run(), make.completed(version=9), attempts=[make.attempt()])
    deployment.logs.later[f"{RUN}-1"] = [
        [event("resume", step=0), "epoch 1", event("metrics", step=3, metrics={"loss": 1})]
    ]
    lines: list[str] = []
    run = client.run(RUN)
    assert run.wait(show=lines.append) is run
    assert lines == [
        "spotkeep: found no checkpoint, starts from the beginning",
        "epoch 1",
        "spotkeep: measured at step 3  loss 1",
    ]
    deployment.logs.later[f"{RUN}-1"] = [["epoch 2"]]
    assert run.logs().splitlines() == [*lines, "epoch 2"]


def test_lines_of_several_hosts_say_which_wrote_them(deployment: Any, client: Spotkeep, make: Any) -> None:
    on_two = {"instance_count": 2}
    deployment.dynamodb.add(make.completed(version=9, **on_two), attempts=[make.attempt(**on_two)])
    deployment.logs.later[f"{RUN}-1"] = [["epoch 1", event("resume", step=0)]]
    lines: list[str] = []
    client.run(RUN).wait(show=lines.append)
    assert lines == ["algo-1 epoch 1", "algo-1 spotkeep: found no checkpoint, starts from the beginning"]
    assert client.run(RUN).logs().splitlines() == lines


@pytest.mark.parametrize(
    ("state", "reason", "error"),
    [
        (RunState.FAILED, EndReason.SCRIPT_FAILED, RunFailedError),
        (RunState.STOPPED, EndReason.STOPPED_BY_USER, RunStoppedError),
    ],
)
def test_waiting_raises_where_the_run_did_not_complete(
    deployment: Any, client: Spotkeep, make: Any, state: RunState, reason: EndReason, error: type[Exception]
) -> None:
    deployment.dynamodb.add(make.completed(state=state, end_reason=reason, failure_reason="no data"))
    with pytest.raises(error) as raised:
        client.run(RUN).wait()
    assert "no data" in str(raised.value)


def test_waiting_names_a_mistake_in_the_job_itself(deployment: Any, client: Spotkeep, make: Any) -> None:
    failure = "AlgorithmError: python train.py exited with code 2:\ntrain.py: error: unrecognized arguments: --lr 1"
    ended = {"state": RunState.FAILED, "end_reason": EndReason.SCRIPT_FAILED, "failure_reason": failure}
    deployment.dynamodb.add(make.completed(**ended))
    with pytest.raises(RunFailedError) as raised:
        client.run(RUN).wait()
    assert "the script does not know --lr 1" in str(raised.value)


def test_waiting_ends_where_the_run_paused_as_it_was_asked_to(deployment: Any, client: Spotkeep, make: Any) -> None:
    paused = {"state": RunState.STOPPED, "end_reason": EndReason.PAUSED, "paused_at_step": 1000}
    deployment.dynamodb.add(make.completed(**paused))
    run = client.run(RUN)
    assert run.wait() is run
    assert run.paused_at_step == 1000


def test_metrics_are_a_frame_by_step_and_the_best_is_named(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.completed(), metrics=MEASURED)
    run = client.run(RUN)
    frame = run.metrics()
    assert list(frame.columns) == ["loss", "rate"]
    assert frame.index.name == "step"
    assert frame["loss"].to_dict() == {10: 0.25, 20: 0.5}
    assert frame["rate"].isna().to_dict() == {10: False, 20: True}
    assert run.best() == run.best("loss") == Measurement(metric="loss", step=10, value=0.25)
    for without in ("rate", "accuracy"):
        with pytest.raises(UsageError, match=f"has no best {without}"):
            run.best(without)


def test_a_run_that_measured_nothing_has_an_empty_frame_and_no_best(
    deployment: Any, client: Spotkeep, make: Any
) -> None:
    deployment.dynamodb.add(make.completed())
    assert client.run(RUN).metrics().empty
    with pytest.raises(UsageError, match="has no best value"):
        client.run(RUN).best()


def test_without_pandas_an_error_says_what_to_install(
    deployment: Any, client: Spotkeep, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.dynamodb.add(make.completed(), metrics=MEASURED)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pandas is not installed") as missing:
        client.run(RUN).metrics()
    assert "pip install 'spotkeep[client]'" in str(missing.value)


def test_a_run_is_stopped_and_resumed_with_fixed_code(
    deployment: Any, client: Spotkeep, make: Any, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('fixed')")
    (tmp_path / "shared").symlink_to(tmp_path)
    deployment.dynamodb.add(make.completed(state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED))
    deployment.answers["stop"] = {"ok": True, "run": RUN}
    deployment.answers["resume"] = {"ok": True, "run": RUN, "attempt": 2}
    run = client.run(RUN)
    assert run.stop() is run
    with pytest.warns(UserWarning, match=r"stays behind.*found shared") as warned:
        assert run.resume(source=tmp_path, max_run="4h") is run
    assert warned[0].filename == __file__
    stop, resume = deployment.invocations
    assert stop == {"action": "stop", "run": RUN}
    assert resume["changes"]["max_run"] == "4h"
    assert len(resume["changes"]["source"]["sha256"]) == 64
    deployment.answers["resume"] = {"ok": False, "problems": [], "message": "no"}
    with pytest.raises(RefusedError, match="was not resumed"):
        run.resume()


def test_all_that_is_recorded_is_one_document(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.completed(), timeline=make.timeline(), attempts=[make.attempt()], metrics=MEASURED)
    document = client.run(RUN).describe()
    assert document["run"]["state"] == "COMPLETED"
    assert (len(document["attempts"]), len(document["timeline"])) == (1, len(make.timeline()))
    assert document["metrics"]["loss"]["best"] == 0.25


class Tags(HTMLParser):
    """What a page has."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert not attrs
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_its_page_shows_what_counts_and_runs_nothing_of_a_stranger(
    deployment: Any, client: Spotkeep, make: Any
) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m"
    deployment.dynamodb.add(
        make.completed(state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED, failure_reason=hostile),
        metrics=ScriptMetrics(metrics={"loss": LOSS, "<img src=x onerror=y>": RATE}),
    )
    page = Tags(client.run(RUN)._repr_html_())
    assert page.tags == {"table", "caption", "tr", "th", "td"}
    assert "0.5 at step 20, best 0.25 at step 10 ▁█" in page.text
    assert "<script>alert(1)</script>\\x1b[31m" in page.text


def test_a_run_at_work_has_its_step_and_its_bar(deployment: Any, client: Spotkeep, make: Any) -> None:
    progress = Progress(step=40, total_steps=100, reported_at=NOW, read_to=NOW.timestamp())
    deployment.dynamodb.add(make.run(progress=progress))
    run = client.run(RUN)
    assert str(run) == f"<Run {RUN}: training, step 40 of 100, 18m>"
    assert '<progress max="1" value="0.4000"' in run._repr_html_()


def test_an_object_whose_record_is_gone_still_has_a_text(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.run())
    run = client.run(RUN)
    deployment.dynamodb.lost_connections = 1
    assert "no connection" in repr(run)


def test_runs_are_listed_newest_first_and_shown_as_a_table(deployment: Any, client: Spotkeep, make: Any) -> None:
    for number, owner in enumerate(("ada", "<b>grace</b>"), start=1):
        created = NOW - timedelta(hours=number)
        deployment.dynamodb.add(make.run(f"digits-{number}", owner=owner, created_at=created))
    rehearsed = make.run("rehearsed-1", token="rehearsal-0123", created_at=NOW - timedelta(hours=5))
    deployment.dynamodb.add(rehearsed)
    runs = client.runs()
    assert [run.id for run in runs] == ["digits-1", "digits-2"]
    assert [run.id for run in client.runs(owner="ada")] == ["digits-1"]
    assert len(client.runs(limit=1)) == 1
    assert repr(runs).splitlines() == [
        "digits-1  training  ml.m5.xlarge spot  1h  ada",
        "digits-2  training  ml.m5.xlarge spot  2h  <b>grace</b>",
    ]
    assert "&lt;b&gt;grace&lt;/b&gt;" in runs._repr_html_()
    assert repr(client.sweeps()) == "[]"


@pytest.mark.parametrize("limit", [-1, 0, 1001])
def test_a_limit_out_of_its_range_is_refused_with_the_range(client: Spotkeep, limit: int) -> None:
    for listed in (client.runs, client.sweeps):
        with pytest.raises(UsageError, match=rf"limit is {limit}\nHint: give a whole number from 1 to 1000"):
            listed(limit=limit)


def test_the_model_is_downloaded_again_and_again(
    deployment: Any, client: Spotkeep, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    completed = make.completed()
    deployment.dynamodb.add(completed)
    key = completed.output_uri.partition("//")[2].partition("/")[2]
    run = client.run(RUN)
    for content in (b"an archive", b"a newer archive"):
        deployment.s3.contents[key] = content
        path = run.download_model()
        assert path == Path(RUN) / "model.tar.gz"
        assert path.read_bytes() == content
    assert run.download_model("a/folder").parent == Path("a/folder")
    assert [each.name for each in Path("a/folder").iterdir()] == ["model.tar.gz"]


def test_a_run_without_a_model_says_so(deployment: Any, client: Spotkeep, make: Any) -> None:
    deployment.dynamodb.add(make.run())
    with pytest.raises(UsageError, match="has no model yet"):
        client.run(RUN).download_model()


def test_a_deployment_that_cannot_be_reached_is_said_at_once() -> None:
    with pytest.raises(NoConnectionError):
        Spotkeep(deployment="nowhere", region="eu-central-1", profile="no-such-profile")


JOB = {"name": "digits-sweep", "command": "train"}


@pytest.fixture
def found(deployment: Any, client: Spotkeep) -> SweepHandle:
    deployment.dynamodb.add_sweep(sweep(), *TRIALS)
    return client.sweep("digits")


def test_it_is_launched_and_found_again(deployment: Any, client: Spotkeep) -> None:
    deployment.answers["validate"] = {"ok": True, "warnings": []}
    deployment.answers["launch"] = {"ok": True, "sweep": SWEEP, "trials": {"running": 3}}
    assert client.launch_sweep(JOB, sweep=REQUEST, max_cost=40).id == SWEEP
    launch = deployment.invocations[-1]
    assert (launch["sweep"]["trials"], launch["max_cost"]) == (9, 40)
    deployment.dynamodb.add_sweep(sweep())
    assert client.sweep("digits").id == SWEEP
    with pytest.raises(RunNotFoundError, match="no sweep 'dogits'"):
        client.sweep("dogits")


def test_a_run_is_no_sweep_and_a_sweep_no_run(deployment: Any, client: Spotkeep) -> None:
    with pytest.raises(UsageError, match="has no field sweep"):
        client.launch_sweep(JOB)
    with pytest.raises(UsageError, match="is a sweep") as refused:
        client.launch(JOB, sweep=REQUEST)
    assert str(refused.value).endswith("\nHint: call launch_sweep")
    with pytest.raises(UsageError, match="has a schedule"):
        client.launch_sweep(JOB, sweep=REQUEST, schedule="rate(1 day)")
    assert deployment.invocations == []


def test_waiting_shows_each_change_once_and_ends_with_the_search(
    deployment: Any, found: SweepHandle, meanwhile: list[Callable[[], object]]
) -> None:
    over = sweep(state=SweepState.COMPLETED, ended_at=NOW, counts=TrialCounts(paused=6, completed=3))
    meanwhile += [lambda: None, lambda: setattr(deployment.dynamodb, "lost_connections", 2)]
    meanwhile += [lambda: None, lambda: deployment.dynamodb.add_sweep(over)]
    lines: list[str] = []
    assert found.wait(show=lines.append) is found
    assert lines == [
        f"{SWEEP}: running; 2 running, 1 paused, 1 completed, 1 failed; best trial 2: 0.31 at step 300",
        f"{SWEEP}: completed; 6 paused, 3 completed; best trial 2: 0.31 at step 300",
    ]
    assert found.state == "COMPLETED"
    assert repr(found) == f"<Sweep {lines[-1]}>"


def test_waiting_gives_up_where_the_deployment_stays_out_of_reach(deployment: Any, found: SweepHandle) -> None:
    deployment.dynamodb.lost_connections = 1_000
    with pytest.raises(NoConnectionError):
        found.wait()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (SweepState.FAILED, RunFailedError),
        (SweepState.STOPPED, RunStoppedError),
        (SweepState.PAUSED, RunStoppedError),
    ],
)
def test_waiting_raises_where_the_search_is_not_over(
    deployment: Any, client: Spotkeep, state: SweepState, error: type[Exception]
) -> None:
    deployment.dynamodb.add_sweep(sweep(state=state, ended_at=NOW, ended_because="its max_cost of $40.00 is spent"))
    with pytest.raises(error, match=f"is {state.value.lower()}, its max_cost"):
        client.sweep(SWEEP).wait()


def test_trials_are_a_frame_by_number_and_the_best_one_is_a_run(
    deployment: Any, client: Spotkeep, found: SweepHandle, make: Any
) -> None:
    frame = found.trials()
    assert frame.index.name == "trial"
    assert list(frame.index) == [1, 2, 3, 4, 5]
    assert frame["state"].tolist() == ["PAUSED", "COMPLETED", "FAILED", "RUNNING", "RUNNING"]
    assert frame.loc[4, ["best", "best_step", "parameters.lr", "parameters.depth"]].tolist() == [0.4, 300, 0.004, 34]
    best = found.best()
    assert (best.number, best.value, best.parameters["depth"]) == (2, 0.31, 34)
    deployment.dynamodb.add(make.run(run=best.run))
    assert client.run(best.run).id == frame.loc[2, "run"]


def test_a_sweep_that_has_measured_nothing_has_no_best_trial(deployment: Any, client: Spotkeep) -> None:
    deployment.dynamodb.add_sweep(sweep(best=None))
    with pytest.raises(UsageError, match="has no best trial yet"):
        client.sweep(SWEEP).best()
    assert client.sweep(SWEEP).trials().empty


def test_its_failed_trials_are_tried_again_with_fixed_code(deployment: Any, found: SweepHandle, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('fixed')")
    deployment.answers["resume"] = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": {"running": 2}}
    assert found.resume(source=tmp_path, max_cost=60) is found
    [invocation] = deployment.invocations
    [key] = deployment.uploads
    assert key.startswith(f"sources/{SWEEP}/")
    assert (invocation["action"], invocation["sweep"]) == ("resume", SWEEP)
    assert invocation["changes"]["max_cost"] == 60
    assert invocation["changes"]["source"]["uri"].endswith(key)


def test_it_is_stopped(deployment: Any, found: SweepHandle) -> None:
    deployment.answers["stop"] = {"ok": True, "sweep": SWEEP, "state": "STOPPING"}
    assert found.stop() is found
    assert deployment.invocations == [{"action": "stop", "sweep": SWEEP}]
