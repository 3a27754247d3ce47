"""One run of Weights & Biases through all attempts, with its real client and a stand-in of its API on this machine.

Offline the client asks no server for its run, so only a server shows that an attempt goes on with it. The
stand-in answers what the client asks of it: the state of a run (`RunResumeStatus`), its creation (`UpsertBucket`), and
the lines of its history (`file_stream`).
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spotkeep_fleet.training_spec import WandbPlace

pytest.importorskip("wandb")
pytestmark = pytest.mark.long

RUN = "digits-1a2b3c4d"
PLACE = WandbPlace("digits", "vision")
SCRIPT = """
import os, sys, time
import wandb, spotkeep

state = {"progress": {"steps": 0}}
with spotkeep.Checkpointer(state, every_steps=1) as checkpointer, wandb.init(config={"lr": 0.1}) as run:
    print("began", run.id, run.name, run.resumed, run.step, flush=True)
    assert os.path.realpath(run.dir).startswith(os.path.realpath(os.environ["WANDB_DIR"]) + "/"), run.dir
    for step in checkpointer.steps(6):
        run.log({"loss": 100 - step}, step=step)
        if step == int(sys.argv[1]):
            print("waiting", flush=True)
            while not checkpointer.interrupted:
                time.sleep(0.01)
"""


class Tracker:
    """The runs that the stand-in knows, by their names, and what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.runs: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.changing = threading.Lock()

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        operation = query.split("(")[0].split()[1]
        with self.changing:
            self.asked.append(operation)
            if operation == "RunResumeStatus":
                return {"model": {"id": "p", "name": PLACE.project, "entity": {"id": "e", "name": PLACE.entity},
                                  "bucket": self._found(variables["name"])}}  # fmt: skip
            if operation == "UpsertBucket":
                inserted = variables["name"] not in self.runs
                run = self.runs.setdefault(variables["name"], {"history": [], "config": {}, "summary": "{}"})
                run["place"] = (variables["entity"], variables["project"])
                run["display"] = variables["displayName"] or run.get("display")
                run["config"] |= json.loads(variables["config"] or "{}")
                run["summary"] = variables["summaryMetrics"] or run["summary"]
                return {"upsertBucket": {"inserted": inserted, "bucket": self._bucket(variables["name"])}}
            if operation == "CreateRunFiles":
                files = [{"name": name, "uploadUrl": f"{self.url}/files/{name}"} for name in variables["files"]]
                named = {"runID": f"id-{variables['run']}", "uploadHeaders": [], "files": files}
                return {"createRunFiles": named}
            if operation == "Viewer":
                return {"viewer": {"id": "u", "entity": PLACE.entity, "username": "ada", "flags": "{}"}}
        return {}

    def take_lines(self, path: str, document: dict[str, Any]) -> None:
        run = self.runs[path.split("/")[-2]]
        stream = (document.get("files") or {}).get("wandb-history.jsonl")
        with self.changing:
            if stream is not None:
                run["history"][stream["offset"] :] = [json.loads(line) for line in stream["content"]]
            if document.get("complete"):
                run["exit"] = document.get("exitcode")

    def wait_for_step(self, step: int) -> None:
        """Wait until the line of a step has come. The client sends lines every few seconds, and a kill loses others."""
        ends = time.monotonic() + 300
        while not any(line["_step"] == step for line in self.runs[RUN]["history"]):
            assert time.monotonic() < ends
            time.sleep(0.1)

    def _found(self, name: str) -> dict[str, Any] | None:
        if name not in self.runs:
            return None
        run = self.runs[name]
        tail = json.dumps([json.dumps(run["history"][-1])]) if run["history"] else "[]"
        return {
            **self._bucket(name), "summaryMetrics": run["summary"], "logLineCount": 0, "eventsLineCount": 0,
            "historyTail": tail, "eventsTail": "[]", "tags": [], "notes": None, "wandbConfig": '{"t": 1}',
        }  # fmt: skip

    def _bucket(self, name: str) -> dict[str, Any]:
        run = self.runs[name]
        project = {"id": "p", "name": PLACE.project, "entity": {"id": "e", "name": PLACE.entity}}
        return {
            "id": f"id-{name}", "name": name, "displayName": run.get("display"), "description": None,
            "config": json.dumps(run["config"]), "sweepName": None, "project": project,
            "historyLineCount": len(run["history"]),
        }  # fmt: skip


@pytest.fixture
def tracker() -> Iterator[Tracker]:
    runs = Tracker()

    class Api(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.headers.get("Content-Encoding") == "gzip":
                raw = gzip.decompress(raw)
            document, answer = json.loads(raw or b"{}"), {}
            if self.path == "/graphql":
                answer = {"data": runs.answer(document["query"], document.get("variables") or {})}
            elif self.path.endswith("/file_stream"):
                runs.take_lines(self.path, document)
            self._give(answer)

        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._give({})

        def do_GET(self) -> None:
            self._give({})

        def _give(self, answer: dict[str, Any]) -> None:
            written = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def handle(self) -> None:
            with contextlib.suppress(ConnectionResetError):  # The client was killed.
                super().handle()

        def log_message(self, *_args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        runs.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield runs
        server.shutdown()


def of_the_job(tracker: Tracker, home: Path) -> dict[str, str]:
    """The variables that a job has from its launch, and that a test gives the client."""
    return {
        "SPOTKEEP_RUN": RUN, "HOME": str(home), "SPOTKEEP_NOTICE_SECONDS": "30",
        "SPOTKEEP_NOTICE_FILE": str(home / "notice.json"),
        "WANDB_BASE_URL": tracker.url, "WANDB_API_KEY": "a" * 40, "WANDB_ERROR_REPORTING": "false",
    }  # fmt: skip


def test_all_attempts_of_a_run_are_one_run_of_weights_and_biases(start: Any, tracker: Tracker, tmp_path: Path) -> None:
    began = []
    for number, (held_at, how) in enumerate([(1, signal.SIGTERM), (3, signal.SIGKILL), (6, None)]):
        home = tmp_path / str(number)
        home.mkdir()
        command = ["python", "train.py", str(held_at)]
        job = start(command, script=SCRIPT, spec={"wandb": PLACE}, **of_the_job(tracker, home))
        if how is not None:
            job.wait_for_line("waiting")
            if how is signal.SIGTERM:
                job.process.send_signal(how)
                assert job.finish() == 75, job.stderr
            else:
                tracker.wait_for_step(2)
                job.process.kill()
                os.killpg(job.process.pid, signal.SIGKILL)
                job.finish()
        else:
            assert job.finish() == 0, job.stderr
        began += [line.split()[1:] for line in job.lines if line.startswith("began")]
    assert [(identity, name, resumed) for identity, name, resumed, _ in began] == [
        (RUN, RUN, "False"), (RUN, RUN, "True"), (RUN, RUN, "True"),
    ]  # fmt: skip
    assert list(tracker.runs) == [RUN]
    run = tracker.runs[RUN]
    assert (run["place"], run["display"], run["exit"]) == (("vision", "digits"), RUN, 0)
    assert [(line["_step"], line["loss"]) for line in run["history"]] == [(step, 100 - step) for step in range(6)]
    assert not list((job.base / "checkpoints").glob("*wandb*"))
    assert list((job.base / "wandb").iterdir())


RESUMES = "import wandb; print('resumed', wandb.init(id='new-one').resumed)"


@pytest.mark.parametrize(("mode", "resume", "said"), [
    ("online", "must", None), ("online", "allow", "resumed False"), ("offline", "must", "resumed False"),
])  # fmt: skip
def test_must_refuses_the_first_attempt_and_says_nothing_offline(
    start: Any, tracker: Tracker, tmp_path: Path, mode: str, resume: str, said: str | None
) -> None:
    """So `WANDB_RESUME` is `allow`."""
    given = {**of_the_job(tracker, tmp_path), "WANDB_PROJECT": "digits", "WANDB_MODE": mode, "WANDB_RESUME": resume}
    job = start(["python", "-c", RESUMES], **given)
    assert (job.finish() == 0) == (said is not None)
    assert said in job.lines if said else "requires an existing run to resume" in job.stderr, job.stderr
    assert ("new-one" in tracker.runs) == (mode == "online" and resume == "allow")


REPEATS = """
import sys, wandb
with wandb.init() as run:
    for step in range(*map(int, sys.argv[1:])):
        run.log({"loss": 100 * int(sys.argv[1]) + step}, step=step)
"""


def test_a_step_that_is_trained_again_keeps_its_first_value(start: Any, tracker: Tracker, tmp_path: Path) -> None:
    for steps in (("0", "3"), ("1", "5")):
        command = ["python", "-c", REPEATS, *steps]
        job = start(command, spec={"wandb": PLACE}, **of_the_job(tracker, tmp_path))
        assert job.finish() == 0, job.stderr
    history = [(line["_step"], line["loss"]) for line in tracker.runs[RUN]["history"]]
    assert history == [(0, 0), (1, 1), (2, 2), (3, 103), (4, 104)]
