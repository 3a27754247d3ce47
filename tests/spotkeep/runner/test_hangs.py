"""A command that hangs: real processes of the zipapp, silent for longer than a second or two."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from spotkeep.notices.notice import alive_file
from spotkeep.runner import hangs
from spotkeep.runner.hangs import HangWatch
from spotkeep.runner.process_table import known_processes
from spotkeep_fleet.training_spec import HangLimit, SearchedMetric

LOADING_SECONDS = 5
"""A limit that Python does not reach while it starts and imports the library, on a busy machine."""
HANGS_ONCE = """
import os, time, spotkeep
state = {"progress": {"steps": []}}
with spotkeep.Checkpointer(state, every_steps=2) as checkpointer:
    for step in checkpointer.steps(6):
        state["progress"]["steps"].append(step)
        if step == 4 and not os.path.exists("hung"):
            open("hung", "w").close()
            time.sleep(600)
print("done", state["progress"]["steps"], flush=True)
"""
RANKS = """
import os, signal, subprocess, sys, time
import spotkeep
if sys.argv[1:]:
    # A rank that answers each step, and is stopped in its fourth one, the first time.
    for line in sys.stdin:
        if line == "3\\n" and not os.path.exists("stopped"):
            open("stopped", "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        sys.stdout.write(line)
        sys.stdout.flush()
    sys.exit()
subprocess.Popen(["sleep", "600"], start_new_session=True)
subprocess.Popen(["sh", "-c", "trap '' TERM; (setsid sleep 600 &) ; sleep 600"])
rank = subprocess.Popen([sys.executable, "train.py", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
state = {"progress": {"steps": []}}
with spotkeep.Checkpointer(state, every_steps=1) as checkpointer:
    for step in checkpointer.steps(6):
        state["progress"]["steps"].append(step)
        print(step, file=rank.stdin, flush=True)
        assert rank.stdout.readline() == f"{step}\\n"
        time.sleep(0.5)  # The rank that is continued does not reach the end before the notice.
rank.stdin.close()
print("done", state["progress"]["steps"], flush=True)
os._exit(0)
"""


def names(events: list[dict[str, Any]], *kinds: str) -> list[str]:
    return [event["event"] for event in events if event["event"] in kinds]


@pytest.mark.long
def test_a_silence_is_reported_once_and_so_is_the_next_one(start, tmp_path):
    job = start(
        ["python", "train.py"],
        spec={"stuck": HangLimit(LOADING_SECONDS), "metrics": {"loss": SearchedMetric("loss=(.*)")}},
        script="""
            import pathlib, time
            for number in range(2):
                print(f"loss={number}", flush=True)
                while not pathlib.Path(f"go-on-{number}").exists():
                    time.sleep(0.05)
            print("done")
        """,
    )
    for number in range(2):
        stuck = job.wait_for("stuck")
        assert stuck["seconds"] >= LOADING_SECONDS
        assert "restarts" not in stuck
        if number == 0:
            time.sleep(1.5 * LOADING_SECONDS)  # longer than the limit, and not reported again
        (tmp_path / f"go-on-{number}").touch()
        if number == 0:
            job.wait_for("moves-again")
    assert job.finish() == 0, job.stderr
    assert names(job.events, "stuck").count("stuck") == 2
    assert re.search(r"the command stands still, no step and no line of output for \d+ s\b", job.stderr)
    assert job.failure is None


def test_without_a_limit_a_command_may_be_silent(start):
    job = start(["python", "-c", "import time; time.sleep(1.5)"], spec={})
    assert job.finish() == 0
    assert names(job.events, "start", "stuck", "exit") == ["start", "exit"]


@pytest.mark.long
def test_steps_of_the_library_are_life_though_no_line_is_printed(start):
    job = start(
        ["python", "train.py"],
        spec={"stuck": HangLimit(LOADING_SECONDS, restart=True)},
        SPOTKEEP_PROGRESS_SECONDS="1000",
        script="""
            import time, spotkeep
            with spotkeep.Checkpointer({"progress": {"n": 0}}, every_steps=1000) as checkpointer:
                for step in checkpointer.steps(20):
                    time.sleep(0.4)
        """,
    )
    assert job.finish() == 0, job.stderr
    assert names(job.events, "stuck") == []


@pytest.mark.long
def test_a_command_that_hangs_saves_if_it_can_and_goes_on_from_its_checkpoint(start):
    job = start(
        ["python", "train.py"],
        script=HANGS_ONCE,
        spec={"stuck": HangLimit(LOADING_SECONDS, restart=True)},
        SPOTKEEP_NOTICE_SECONDS="1",
    )
    assert job.finish() == 0, job.stderr
    assert names(job.events, "start", "stuck", "resume", "finish", "exit") == [
        "start", "resume", "stuck", "start", "resume", "finish", "exit",
    ]  # fmt: skip
    stuck = next(event for event in job.events if event["event"] == "stuck")
    assert {name: stuck[name] for name in ("restarts", "at_most")} == {"restarts": 0, "at_most": 3}
    assert [event["step"] for event in job.events if event["event"] == "resume"] == [0, 4]
    assert job.lines[-2] == "done [0, 1, 2, 3, 4, 5]"
    assert not list((job.base / "checkpoints").glob("stuck*"))


@pytest.mark.long
def test_a_stopped_rank_is_continued_and_saves_and_no_process_of_the_first_start_is_left(start):
    job = start(
        ["python", "train.py"],
        script=RANKS,
        spec={"stuck": HangLimit(LOADING_SECONDS, restart=True)},
        SPOTKEEP_NOTICE_SECONDS="10",  # Its shell ignores SIGTERM. A busy machine needs some seconds for a save.
    )
    job.wait_for("resume")
    before = set(_sleepers(job.process.pid))
    assert len(before) == 3
    job.wait_for("resume")
    assert not before & set(known_processes())
    assert job.finish() == 0, job.stderr
    resumed = [event["step"] for event in job.events if event["event"] == "resume"]
    assert resumed in ([0, 4], [0, 5]), "it saved once its rank was continued, or had saved before it was stopped"
    assert job.lines[-2] == "done [0, 1, 2, 3, 4, 5]"


def _sleepers(runner: int) -> list[int]:
    ends = time.monotonic() + 300
    found: list[int] = []
    while len(found) < 3 and time.monotonic() < ends:
        known = known_processes()
        mine = hangs.descendants_of(runner, known)
        found = [pid for pid in mine if known[pid].name == "sleep"]
        time.sleep(0.05)
    return found


@pytest.mark.long
def test_a_command_that_always_hangs_is_started_as_often_as_allowed_and_then_fails_with_the_reason(start):
    job = start(
        "echo begun\npython train.py | tee said\n",
        script="import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
        spec={"stuck": HangLimit(1, restart=True, at_most=2)},
        SPOTKEEP_NOTICE_SECONDS="0.2",
    )
    assert job.finish() == 1
    assert [event["restarts"] for event in job.events if event["event"] == "stuck"] == [0, 1, 2]
    assert job.lines.count("begun") == 3
    assert job.failure == (
        "the command hung: no step and no line of output for 1 s (stuck), once more after 2 starts from its checkpoint "
        "(stuck.at_most)"
    )
    assert not list((job.base / "checkpoints").iterdir())


@pytest.mark.long
def test_the_starts_are_counted_on_across_an_interruption(start, tmp_path):
    script = HANGS_ONCE.replace('print("done"', 'print("waiting", flush=True); time.sleep(600); print("done"')
    given = {"script": script, "spec": {"stuck": HangLimit(LOADING_SECONDS, restart=True, at_most=1)}}
    job = start(["python", "train.py"], **given, SPOTKEEP_NOTICE_SECONDS="0.2")
    job.wait_for("resume")
    job.wait_for("resume")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert json.loads((job.base / "checkpoints" / "stuck-restarts.json").read_text()) == {"count": 1, "launch": None}
    (tmp_path / "hung").unlink()
    again = start(["python", "train.py"], **given, SPOTKEEP_NOTICE_SECONDS="0.2")
    assert again.finish() == 1
    assert "once more after 1 starts" in again.failure


@pytest.mark.long
def test_a_notice_of_the_platform_while_it_is_ended_counts_as_the_interruption(start):
    job = start(
        ["python", "train.py"],
        script="""
            import os, signal, time
            asked = []
            signal.signal(signal.SIGTERM, lambda *_: (asked.append(1), os.write(1, b"asked\\n")))
            while len(asked) < 2:
                time.sleep(0.05)
        """,
        spec={"stuck": HangLimit(LOADING_SECONDS, restart=True)},
        SPOTKEEP_NOTICE_SECONDS="600",
    )
    job.wait_for("stuck")
    job.wait_for_line("asked")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75)
    assert names(job.events, "start", "stuck", "exit") == ["start", "stuck", "exit"]
    assert job.failure is None


def test_other_hosts_than_the_first_may_be_silent(start, tmp_path):
    configuration = tmp_path / "ml" / "input" / "config"
    configuration.mkdir(parents=True)
    hosts = ["127.0.0.1", "localhost"]
    (configuration / "resourceconfig.json").write_text(json.dumps({"current_host": hosts[1], "hosts": hosts}))
    job = start(["python", "-c", "import time; time.sleep(1.5)"], spec={"stuck": HangLimit(1)})
    assert job.finish() == 0, job.stderr
    assert names(job.events, "stuck") == []


@pytest.mark.long
def test_a_program_of_the_setup_stays(start, tmp_path):
    job = start(
        ["python", "train.py"],
        script="""
            import os, time
            if not os.path.exists("hung"):
                open("hung", "w").close()
                time.sleep(600)
            os.kill(int(open("server").read()), 0)
            print("still there", flush=True)
        """,
        spec={
            "stuck": HangLimit(LOADING_SECONDS, restart=True),
            "setup": "sleep 600 > /dev/null 2>&1 &\necho $! > server\n",
        },
        SPOTKEEP_NOTICE_SECONDS="0.2",
    )
    assert job.finish() == 0, job.stderr
    assert "still there" in job.lines


@pytest.fixture
def sleeper() -> Any:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield process
        process.kill()


def watch_with(notice_file: Path, said: list[str]) -> HangWatch:
    """Give a watch that starts the command again, and the place where it says what it does."""
    return HangWatch(
        HangLimit(1, restart=True),
        restarts=0,
        notice_file=notice_file,
        announced=lambda: False,
        terminate=lambda: None,
        say=lambda event, **_fields: said.append(event),
        longest_kill_seconds=0.2,
    )


def test_processes_that_sigkill_does_not_end_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(hangs, "_send", lambda _pid, _signum: None)  # as in a call of the kernel
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0.1")
    watch = watch_with(tmp_path / "notice.json", said)
    watch.prepare()
    assert alive_file(tmp_path / "notice.json").exists()
    with subprocess.Popen(["sleep", "600"]) as process:
        thread = threading.Thread(target=watch.watch)
        thread.start()
        assert watch.given_up.wait(30)
        thread.join()
        process.kill()
    assert said == ["stuck"]
    assert watch.has_ended_command
    assert (tmp_path / "notice.json").exists()
    watch.take_back_notice()
    assert not (tmp_path / "notice.json").exists()


def test_a_stopped_process_finds_the_notice_once_it_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notice_file = tmp_path / "notice.json"
    found: list[bool] = []

    def note_notice(_pid: int, signum: int) -> None:
        if signum == signal.SIGCONT:
            found.append(notice_file.exists())

    monkeypatch.setattr(hangs, "_send", note_notice)
    monkeypatch.setenv("SPOTKEEP_NOTICE_SECONDS", "0.1")
    watch = watch_with(notice_file, [])
    watch.prepare()
    with subprocess.Popen(["sleep", "600"]) as process:
        watch.watch()
        process.kill()
    assert found
    assert all(found)


def test_a_notice_of_someone_else_stays(tmp_path: Path) -> None:
    notice_file = tmp_path / "notice.json"
    watch = watch_with(notice_file, [])
    notice_file.write_text(json.dumps({"source": "EC2 terminate", "deadline": time.time() + 60}))
    watch.take_back_notice()
    assert notice_file.exists()
    notice_file.unlink()
    watch.take_back_notice()


RANKS_OF_TORCH = """
import os, signal, time
import torch, torch.distributed as dist
import spotkeep

dist.init_process_group("gloo")
state = {"progress": {"steps": []}}
is_first = not os.path.exists("stopped")
with spotkeep.Checkpointer(state, every_steps=1) as checkpointer:
    open("begun", "w").close()
    for step in checkpointer.steps(8):
        if is_first and step == 5 and dist.get_rank() == 1:
            open("stopped", "w").close()
            os.kill(os.getpid(), signal.SIGSTOP)
        dist.all_reduce(torch.ones(1))
        state["progress"]["steps"].append(step)
        while is_first and step == 5 and not checkpointer.noticed:
            time.sleep(0.1)  # The ranks that go on do not reach the end before they see the notice.
if dist.get_rank() == 0:
    print("done", state["progress"]["steps"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.torch
@pytest.mark.long
def test_a_rank_of_torchrun_that_is_stopped_while_the_others_wait_for_it_is_noticed(start):
    pytest.importorskip("torch")
    job = start(
        """
        rm -f begun
        until [ -e begun ]; do echo imports torch; sleep 1; done &
        python -m torch.distributed.run --standalone --nproc-per-node 2 train.py
        """,
        script=RANKS_OF_TORCH,
        # Longer than a world of two ends on a busy machine. Its begin, which takes longer, is no silence.
        spec={"stuck": HangLimit(25, restart=True)},
        SPOTKEEP_NOTICE_SECONDS="20",
        OMP_NUM_THREADS="1",
    )
    stuck = job.wait_for("stuck")
    assert 25 <= stuck["seconds"] < 25 + 60
    assert job.finish() == 0, job.stderr
    assert names(job.events, "start", "resume", "stuck", "finish") == [
        "start", "resume", "stuck", "start", "resume", "finish",
    ]  # fmt: skip
    resumed = [event["step"] for event in job.events if event["event"] == "resume"]
    assert resumed[0] == 0
    assert resumed[1] in range(4, 8)
    assert "done [0, 1, 2, 3, 4, 5, 6, 7]" in job.lines
