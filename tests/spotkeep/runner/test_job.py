"""`spotkeep.pyz run -- command`, as PID 1 of a container runs it: real processes, the zipapp, an empty environment."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from spotkeep.__main__ import main
from spotkeep.runner.exits_on_notice import EXITS_NAME, keep_count
from spotkeep.runner.job import run_job
from spotkeep_fleet.training_spec import (
    NOT_STARTED,
    SPEC_VARIABLE,
    MlflowPlace,
    RunNumber,
    SearchedMetric,
    TrainingSpec,
    encode_spec,
    spec_file_name,
)

from .conftest import put_spec

# Waits in its fourth step for the notice; a resumed one begins with the fifth.
WAITS_FOR_NOTICE = """
import time
import spotkeep
state = {"progress": {"steps": []}}
with spotkeep.Checkpointer(state, every_steps=1000) as checkpointer:
    for step in checkpointer.steps(6):
        state["progress"]["steps"].append(step)
        if step == 3:
            print("waiting", flush=True)
            while not checkpointer.interrupted:
                time.sleep(0.01)
assert state["progress"]["steps"] == [0, 1, 2, 3, 4, 5]
"""


def test_a_command_runs_with_the_library_and_its_environment(start):
    job = start(
        ["python", "train.py"],
        script="""
            import json, os, spotkeep
            print(spotkeep.__file__)
            print(json.dumps(dict(os.environ)))
        """,
    )
    assert job.finish() == 0, job.stderr
    assert [event["event"] for event in job.events] == ["start", "exit"]
    assert job.events[0]["python"] == "{}.{}.{}".format(*sys.version_info)
    assert job.events[1]["code"] == 0
    library, environment = job.lines[1], json.loads(job.lines[2])
    assert "spotkeep.pyz" in library
    assert environment["SM_MODEL_DIR"] == str(job.base / "model")
    assert environment["SPOTKEEP_CHECKPOINT_DIR"] == str(job.base / "checkpoints")
    assert job.failure is None
    assert all((job.base / name).is_dir() for name in ("model", "output/data", "checkpoints"))


def test_a_script_with_argparse_alone_gets_its_hyperparameters_though_a_queue_had_no_room_for_them(start):
    hyperparameters = {"lr": "0.1", "epochs": "30", "amp": "true", "note": "two words; $HOME"}
    job = start(
        ["python", "train.py", "--model", "resnet"],
        spec={"environment": {"WORD": "yes"}, "hyperparameters": hyperparameters},
        script="""
            import argparse, os
            parser = argparse.ArgumentParser()
            for name, kind in {"lr": float, "epochs": int, "amp": str, "note": str, "model": str}.items():
                parser.add_argument(f"--{name}", type=kind)
            print(sorted(vars(parser.parse_args()).items()))
            print(*(os.environ[name] for name in ("WORD", "SM_HP_LR", "SM_CHANNELS")))
        """,
    )
    assert job.finish() == 0, job.stderr
    given = {"amp": "True", "epochs": 30, "lr": 0.1, "model": "resnet", "note": "two words; $HOME"}
    assert job.lines[1:3] == [str(sorted(given.items())), "yes 0.1 []"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("none", """['--model', 'resnet'] true ["-b","True"]"""),
        ("json", """['--model', 'resnet', '--b', 'true'] true ["--b","true"]"""),
    ],
)
def test_a_job_may_have_its_hyperparameters_as_json_or_leave_them_out(start, tmp_path, arguments, said):
    configuration = tmp_path / "ml" / "input" / "config"
    configuration.mkdir(parents=True)
    (configuration / "hyperparameters.json").write_text('{"b": "true"}')
    job = start(
        ["python", "train.py", "--model", "resnet"],
        spec={"arguments": arguments},
        script="import os, sys; print(sys.argv[1:], os.environ['SM_HP_B'], os.environ['SM_USER_ARGS'])",
    )
    assert job.finish() == 0, job.stderr
    assert job.lines[1] == said


def usable(interpreter):
    found = shutil.which(interpreter)
    return (
        found if found and subprocess.run([found, "--version"], capture_output=True, env={}).returncode == 0 else None
    )


@pytest.mark.parametrize("version", ["python3.9", "python3.10", "python3.11", "python3.12", "python3.13"])
def test_any_python_since_3_9_runs_it_alone(start, version):
    interpreter = usable(version)
    if interpreter is None:
        pytest.skip(f"no {version} on this machine")
    job = start(
        [interpreter, "train.py"],
        script=WAITS_FOR_NOTICE,
        interpreter=interpreter,
        spec={"metrics": {"steps": SearchedMetric("step (.)")}, "number": RunNumber(1, 1)},
        SPOTKEEP_NOTICE_SECONDS="0",
    )
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert job.events[-2] == {**job.events[-2], "event": "saved", "step": 4, "reason": "notice"}


def test_a_script_that_fails_leaves_its_last_words(start):
    job = start(
        ["python", "train.py"],
        script="import sys; print('so far so good', file=sys.stderr); raise ValueError('no data')",
    )
    assert job.finish() == 1
    assert job.failure.startswith("python train.py exited with code 1:\nso far so good\nTraceback")
    assert job.failure.endswith("ValueError: no data")
    assert job.stderr.endswith("ValueError: no data\n"), "standard error is passed on"
    assert job.events[-1]["code"] == 1


def test_everything_a_script_writes_passes_through_in_order(start):
    script = """
        import sys
        for number in range(20000):
            print(number)
            print(number, file=sys.stderr)
    """
    job = start(["python", "train.py"], script=script)
    # Both pipes fill up: read them together.
    out, err = job.process.communicate()
    numbers = [str(number) for number in range(20000)]
    assert err.split() == numbers
    assert out.splitlines()[1:-1] == numbers


@pytest.mark.parametrize(
    ("file", "content", "command", "code", "reason"),
    [
        (None, "", "no-such-program", 127, "was not found on PATH"),
        ("train.py", "print(1)", "./train.py", 126, "chmod +x it"),
        ("executable", "print(1)", "./executable", 126, "give it a #! line"),
        ("ml/input/data/source/source.zip", "damaged", "true", 66, "source.zip cannot be read"),
        ("ml/input/config/hyperparameters.json", "{", "true", 78, "hyperparameters.json"),
        ("ml/checkpoints", "a file", "true", 70, "is SAGEMAKER_BASE_DIR right?"),
    ],
)
def test_a_command_that_cannot_start_is_reported(tmp_path, monkeypatch, capfd, file, content, command, code, reason):
    if file is not None:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(0o755 if path.name == "executable" else 0o644)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    assert run_job(TrainingSpec((command,))) == code
    failure = (tmp_path / "ml/output/failure").read_text()
    assert reason in failure
    assert failure.startswith(NOT_STARTED) == (code in {126, 127}), "the others may pass, or have a name of their own"
    assert reason in capfd.readouterr().err


def test_the_script_gets_what_its_spec_says(start, tmp_path):
    configuration = tmp_path / "ml" / "input" / "config"
    configuration.mkdir(parents=True)
    # A request in a queue had room for one of them.
    (configuration / "hyperparameters.json").write_text('{"lr": "0.1"}')
    names = ("WORD", "SPOTKEEP_PAUSE_AT_STEP", "SPOTKEEP_RUN_INDEX", "SPOTKEEP_RUN_COUNT")
    job = start(
        ["python", "train.py"],
        script=f"""
            import os, sys
            print(sys.argv[1:], *(os.environ[name] for name in {names}))
            print(os.environ["MLFLOW_TRACKING_URI"], os.environ["MLFLOW_EXPERIMENT_NAME"])
        """,
        spec={
            "environment": {"WORD": "yes"},
            "hyperparameters": {"lr": "0.1", "epochs": "3"},
            "pause_at_step": 10,
            "number": RunNumber(2, 3),
            "mlflow": MlflowPlace("https://mlflow.example.com", "digits"),
        },
    )
    assert job.finish() == 0, job.stderr
    assert job.lines[1:3] == ["['--epochs', '3', '--lr', '0.1'] yes 10 2 3", "https://mlflow.example.com digits"]
    kept = json.loads((configuration / "hyperparameters.json").read_text())
    assert kept == {"lr": "0.1", "epochs": "3"}, "scripts read them there"


def test_whose_job_it_is_no_users_variable_changes(start):
    changed = {"SPOTKEEP_LAUNCH": "another", "SPOTKEEP_EVENTS": "off"}
    command = ["python", "-c", "import os; print(os.environ['SPOTKEEP_LAUNCH'])"]
    job = start(command, spec={"environment": changed}, SPOTKEEP_LAUNCH="feed")
    assert job.finish() == 0, job.stderr
    assert job.lines[1] == "feed"
    assert {event["launch"] for event in job.events} == {"feed"}


def test_a_command_by_hand_goes_before_the_spec(start, tmp_path):
    place = put_spec(tmp_path / "ml", TrainingSpec(("false",)))
    job = start(["echo", "by hand"], **{SPEC_VARIABLE: place})
    assert job.finish() == 0, job.stderr
    assert "by hand" in job.lines


def test_a_command_that_calls_the_runner_without_one_of_its_own_does_not_run_itself(start, pyz):
    script = f"""
        import os, subprocess, sys
        depth = int(os.environ.get("DEPTH", "0"))
        print("depth", depth, flush=True)
        if depth == 0:
            nested = [sys.executable, {str(pyz)!r}, "run"]
            sys.exit(subprocess.call(nested, env={{**os.environ, "DEPTH": "1"}}))
    """
    job = start(["python", "train.py"], script=script, spec={})
    assert job.finish() == 64
    assert "depth 1" not in job.lines
    assert "no command after `run --`" in job.stderr


SPEC = encode_spec(TrainingSpec(("true",)))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (spec_file_name(SPEC), None, "the training spec cannot be read"),
        (spec_file_name(SPEC), SPEC.replace(b"true", b"evil"), "is not the one that was launched"),
        ("0123.json", SPEC, "is not the one that was launched"),
        (spec_file_name(b"{"), b"{", "it is no JSON"),
        (spec_file_name(b'{"command":7}'), b'{"command":7}', "command is a int, not a list of texts"),
        (spec_file_name(b"\xff"), b"\xff", "can't decode"),
    ],
)
def test_a_spec_that_is_not_the_launched_one_runs_nothing(tmp_path, monkeypatch, name, content, reason):
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))
    monkeypatch.setenv(SPEC_VARIABLE, f"/opt/ml/{name}")
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run_job() == 78
    assert reason in (tmp_path / "output/failure").read_text()


def test_a_command_runs_in_its_source_and_is_told_where_that_is(tmp_path, monkeypatch, capfd, make_tar):
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    (tmp_path / "ml/input/data/source").mkdir(parents=True)
    make_tar({"name": "train.py"}).rename(tmp_path / "ml/input/data/source/source.tar.gz")
    command = ("sh", "-c", 'test "$PWD" -ef "$SM_SOURCE_DIR" && ls "$SM_SOURCE_DIR"')
    assert run_job(TrainingSpec(command)) == 0
    assert "train.py" in capfd.readouterr().out.split()


@pytest.mark.parametrize("arguments", [[], ["run"], ["run", "--"], ["walk"], ["--unknown"], ["walk", "--", "true"]])
def test_wrong_usage_is_64_and_says_the_right_one(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["spotkeep.pyz", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 64
    assert "use: spotkeep.pyz run -- python train.py" in capsys.readouterr().err


def test_it_knows_its_version(pyz):
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(pyz), "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("spotkeep ")


SHELLS = {
    "a shell that passes nothing on": ["sh", "-c", "python train.py; exit $?"],
    "a process that starts another": ["python", "-c", "import subprocess as s; exit(s.call(['python', 'train.py']))"],
}


@pytest.mark.parametrize("command", SHELLS.values(), ids=SHELLS.keys())
def test_a_notice_reaches_the_training_whatever_stands_between(start, command):
    job = start(command, script=WAITS_FOR_NOTICE, SPOTKEEP_NOTICE_SECONDS="30")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.wait_for("saved", reason="notice")["step"] == 4


def test_after_a_notice_the_exit_code_is_75_and_the_next_process_goes_on(start):
    job = start(["python", "train.py"], script=WAITS_FOR_NOTICE, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75
    assert job.failure is None
    assert job.events[-1]["code"] == 75
    resumed = start(["python", "train.py"], script=WAITS_FOR_NOTICE)
    assert resumed.finish() == 0, resumed.stderr
    assert resumed.events[1] == {**resumed.events[1], "event": "resume", "step": 4, "checkpoint": "step-4"}
    assert resumed.failure is None


def test_a_script_that_a_notice_kills_has_not_failed(start):
    job = start(["sh", "-c", "echo waiting; exec sleep 60"], SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75
    assert job.failure is None


def test_a_launcher_with_an_exit_code_of_its_own_does_not_make_an_interruption_a_failure(start):
    """As torchrun, which ends with 1 when a worker has left with 75."""
    job = start(["sh", "-c", "python train.py || exit 1"], script=WAITS_FOR_NOTICE, SPOTKEEP_NOTICE_SECONDS="30")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75)
    os.killpg(job.process.pid, signal.SIGKILL)
    job.process.wait()
    assert job.failure is None


def test_a_script_that_fails_after_a_notice_has_failed(start):
    script = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("cannot save"))
        print("waiting", flush=True)
        time.sleep(60)
    """
    job = start(["python", "train.py"], script=script, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 1
    assert job.failure.endswith("cannot save")


FINISHES_WITHIN_A_NOTICE = """
    import os, pathlib, signal, time
    import spotkeep
    with spotkeep.Checkpointer({}) as checkpointer:
        for step in checkpointer.steps(3):
            pass
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waiting", flush=True)
    while not pathlib.Path(os.environ["SPOTKEEP_NOTICE_FILE"]).exists():
        time.sleep(0.01)
"""


def test_a_script_that_says_that_it_is_done_has_finished_though_a_notice_came(start):
    job = start(["python", "train.py"], script=FINISHES_WITHIN_A_NOTICE, SPOTKEEP_NOTICE_SECONDS="600")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 0, "and the job does not wait for the end of the notice"
    assert [event["event"] for event in job.events][-2:] == ["finish", "exit"]


HANDLER_OF_ITS_OWN = (
    "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('waiting', flush=True); "
    "signal.pause()"
)
ENDS_WITH_0 = {
    "a handler of the script's own": ["python", "-c", HANDLER_OF_ITS_OWN],
    "a shell that traps it": ["sh", "-c", "trap 'exit 0' TERM; echo waiting; while :; do sleep 0.01; done"],
}


@pytest.mark.parametrize("command", ENDS_WITH_0.values(), ids=ENDS_WITH_0.keys())
def test_a_command_that_ends_with_0_on_a_notice_is_interrupted(start, command):
    job = start(command, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert [(event["event"], event["code"]) for event in job.events[1:]] == [("exit-on-notice", 75), ("exit", 75)]
    assert "it counts as interrupted and starts again" in job.stderr
    assert job.failure is None


def test_that_the_training_of_a_command_is_interrupted_counts_more_than_the_commands_0(start):
    """Not one of the exits that count as done in the end: the library knows that it was interrupted, and has saved."""
    job = start(["sh", "-c", "python train.py || true"], script=WAITS_FOR_NOTICE, SPOTKEEP_NOTICE_SECONDS="600")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit", code=75)
    assert job.process.poll() is None, "and the job waits for the platform"
    assert not any(event["event"] == "exit-on-notice" for event in job.events)


def test_a_training_that_ends_with_0_in_the_middle_of_its_steps_is_not_done(start):
    script = """
        import signal, sys, spotkeep
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        for name in ("first", "second"):
            with spotkeep.Checkpointer({}, directory=name) as checkpointer:
                for step in checkpointer.steps(3):
                    if name == "second":
                        print("waiting", flush=True)
                        signal.pause()
    """
    job = start(["python", "train.py"], script=script, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, "though the training before it was done"


def test_three_exits_with_0_on_a_notice_in_a_row_count_as_done_and_any_other_end_between_them_begins_anew(
    start, tmp_path
):
    script = """
        import os, pathlib, signal, sys
        assert list(pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"]).iterdir()) == [], "the script does not meet it"
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("waiting", flush=True)
        if sys.argv[1] == "fails":
            sys.exit(1)
        signal.pause()
    """
    checkpoints = tmp_path / "ml" / "checkpoints"
    checkpoints.mkdir(parents=True)
    keep_count(checkpoints, EXITS_NAME, 2, launch=None)
    codes = []
    for how in ("fails", "noticed", "noticed"):
        job = start(["python", "train.py", how], script=script, SPOTKEEP_NOTICE_SECONDS="0")
        job.wait_for_line("waiting")
        if how == "noticed":
            job.process.send_signal(signal.SIGTERM)
        codes.append(job.finish())
        if len(codes) == 2:
            assert job.events[-2] == {**job.events[-2], "event": "exit-on-notice", "in_a_row": 1, "code": 75}
            keep_count(checkpoints, EXITS_NAME, 2, launch=None)
    assert codes == [1, 75, 0], job.stderr
    assert job.events[-2:] == [
        {**job.events[-2], "event": "exit-on-notice", "in_a_row": 3, "code": 0},
        {**job.events[-1], "event": "exit", "code": 0},
    ]
    assert "it counts as done, for it is number 3 in a row" in job.stderr


def test_what_a_shell_leaves_behind_gets_sigterm_too(start, tmp_path):
    script = """
        import pathlib, signal, sys, time
        def leave(*_):
            pathlib.Path("left").write_text("in order")
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        print("waiting", flush=True)
        time.sleep(60)
    """
    job = start(["sh", "-c", "python train.py; exit $?"], script=script, SPOTKEEP_NOTICE_SECONDS="600")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    job.wait_for("exit")
    while not (tmp_path / "left").exists():
        time.sleep(0.01)
    assert job.process.poll() is None, "the job waits for the platform"


def test_a_signal_to_the_group_ends_all_of_it(start):
    script = """
        import subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print(child.pid, flush=True)
        time.sleep(600)
    """
    job = start(["sh", "-c", "python train.py; true"], script=script)
    job.wait_for("start")
    grandchild = int(job.next_line())
    assert os.getpgid(grandchild) == job.process.pid
    os.killpg(job.process.pid, signal.SIGKILL)
    assert job.finish() == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to hand orphans to the job, as to a PID 1")
def test_orphans_are_taken_care_of_as_pid_1_must(start):
    become_subreaper = 36
    library = ctypes.CDLL(None)
    script = """
        import os, pathlib, time
        if os.fork() == 0:
            if os.fork() == 0:
                os._exit(0)
            os._exit(0)
        os.wait()
        runner = os.getppid()
        children = pathlib.Path(f"/proc/{runner}/task/{runner}/children")
        while children.read_text().split() != [str(os.getpid())]:
            time.sleep(0.01)
        print("alone", flush=True)
    """
    job = start(["python", "train.py"], script=script, preexec=lambda: library.prctl(become_subreaper, 1, 0, 0, 0))
    job.wait_for_line("alone")
    assert job.finish() == 0


@pytest.mark.long
def test_a_job_killed_at_any_moment_goes_on_from_what_it_saved(start):
    # It does not come to its end before the kill: the test may be slow.
    script = """
        import random, sys, time, spotkeep
        rng, seen, waits_after = random.Random(3), {"numbers": []}, int(sys.argv[1])
        with spotkeep.Checkpointer({"rng": rng, "seen": seen}, every_steps=7) as checkpointer:
            first = checkpointer.step
            for step in checkpointer.steps(100):
                seen["numbers"].append(rng.random())
                if step == max(first, waits_after) + 15:
                    time.sleep(600)
        assert len(seen["numbers"]) == 100
        print("sum", repr(sum(seen["numbers"])), flush=True)
    """
    to_the_end = ["python", "train.py", "100"]
    whole = start(to_the_end, script=script)
    assert whole.finish() == 0
    expected = next(line for line in whole.lines if line.startswith("sum"))
    shutil.rmtree(whole.base)
    last_saved = 0
    for kill_at in (1, 8, 80):
        job = start(["python", "train.py", str(kill_at)], script=script)
        assert job.wait_for("resume")["step"] >= last_saved
        job.wait_for("progress", step=max(kill_at, job.events[-1]["step"] + 1))
        os.killpg(job.process.pid, signal.SIGKILL)
        job.finish()
        last_saved = max([last_saved, *(event["step"] for event in job.events if event["event"] == "saved")])
        assert not any(event["event"] == "fallback" for event in job.events)
    last = start(to_the_end, script=script)
    assert last.finish() == 0
    assert expected in last.lines


def test_what_ec2_announces_to_the_script_is_an_interruption_to_the_runner(start, metadata_service):
    metadata_service.action = json.dumps({"action": "terminate", "time": "2126-01-01T00:00:00Z"}).encode()
    job = start(
        ["python", "train.py"],
        script=WAITS_FOR_NOTICE,
        AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata_service.url,
    )
    assert job.finish() == 75, job.stderr
    assert job.failure is None
    # It is known what EC2 does next: the job need not wait for it.
    assert [event["event"] for event in job.events][-1] == "exit"


def test_a_training_outside_the_main_thread_gets_its_notice_from_the_runner(start):
    script = "import threading\ndef train():\n" + "".join(
        f"    {line}\n" for line in WAITS_FOR_NOTICE.strip().splitlines() if not line.startswith("import threading")
    )
    script += """
def run():
    try:
        train()
    except SystemExit as left:
        codes.append(left.code)
codes = []
thread = threading.Thread(target=run)
thread.start()
thread.join()
raise SystemExit(codes[0])
"""
    job = start(["python", "train.py"], script=script, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    code = job.finish()
    assert code == 75, job.stderr


def test_a_user_who_names_a_notice_file_is_not_kept_waiting_and_says_when_the_notice_ends(start, tmp_path):
    """An instance's agent: it has left its notice there, and has a volume to let go of when the training has left."""
    notice = tmp_path / "outer.json"
    job = start(["python", "train.py"], script=WAITS_FOR_NOTICE, SPOTKEEP_NOTICE_FILE=str(notice))
    job.wait_for_line("waiting")
    deadline = time.time() + 400
    notice.write_text(json.dumps({"source": "EC2 terminate", "deadline": deadline}))
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75
    assert time.time() < deadline - 20
    assert json.loads(notice.read_text()) == {"source": "EC2 terminate", "deadline": deadline}
    assert [event["step"] for event in job.events if event["event"] == "saved"] == [4]
