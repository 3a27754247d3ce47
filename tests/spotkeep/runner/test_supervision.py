"""What a job does between a notice and its end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from spotkeep.errors import CommandError, MissingToolError
from spotkeep.notices.notice import Notice, read_notice
from spotkeep.runner import failure, supervision
from spotkeep.runner.failure import block_named
from spotkeep.runner.layout import import_root
from spotkeep.runner.supervision import Receivers, Supervisor, bash_words, receivers_behind


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only during a sleep."""
    now = [1000.0]

    def sleep(seconds):
        assert seconds > 0
        now[0] += seconds

    monkeypatch.setattr(supervision.time, "time", lambda: now[0])
    monkeypatch.setattr(supervision.time, "sleep", sleep)
    return now


def test_the_container_is_kept_until_the_notice_is_over_and_no_longer(tmp_path, clock):
    supervisor = Supervisor(notice_file=tmp_path / "notice.json")
    supervisor.notice = Notice(source="SIGTERM", deadline=1120.0)
    supervisor.hold_until_deadline()
    assert clock[0] == pytest.approx(1120.0)


def test_without_a_notice_nothing_is_waited_for(tmp_path, clock):
    Supervisor(notice_file=tmp_path / "notice.json").hold_until_deadline()
    assert clock[0] == 1000.0


def test_sigterm_leaves_a_notice_for_every_process_of_the_job(tmp_path, clock):
    path = tmp_path / "notice.json"
    before = signal.getsignal(signal.SIGTERM)
    with Supervisor(notice_file=path) as supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
        first = supervisor.notice
        os.kill(os.getpid(), signal.SIGTERM)
        assert supervisor.notice is first
    assert read_notice(path) == first == Notice(source="SIGTERM", deadline=1120.0)
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_that_comes_before_the_command_has_started_is_passed_on_when_it_has(tmp_path):
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        os.kill(os.getpid(), signal.SIGUSR1)
        outcome = supervisor.run(["sleep", "600"], environment=dict(os.environ), directory=None)
    assert outcome.exit_code == 128 + signal.SIGUSR1


def test_a_notice_file_that_cannot_be_written_does_not_keep_the_signal(tmp_path, capfd):
    with Supervisor(notice_file=tmp_path / "missing" / "notice.json") as supervisor:
        os.kill(os.getpid(), signal.SIGTERM)
        assert supervisor.notice is not None
    assert "the notice file could not be written" in capfd.readouterr().err


def test_a_command_that_ends_while_a_signal_is_handled_still_has_its_exit_code(tmp_path, monkeypatch):
    def end_the_command(*_):
        os.kill(supervisor._child.pid, signal.SIGKILL)
        # Ended, and not waited for: that is the supervisor's to do.
        os.waitid(os.P_PID, supervisor._child.pid, os.WEXITED | os.WNOWAIT)

    def interrupted(stream, **passing):
        os.kill(os.getpid(), signal.SIGTERM)
        return passed(stream, **passing)

    passed = supervision._PassedStream
    monkeypatch.setattr(supervision, "_PassedStream", interrupted)
    monkeypatch.setattr(supervision, "write_notice", end_the_command)
    monkeypatch.setattr(supervision.os, "getpgrp", lambda: 0)  # this process may lead the group of the tests
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        outcome = supervisor.run(["sleep", "60"], environment=dict(os.environ), directory=None)
    assert outcome.exit_code == 128 + signal.SIGKILL


def test_a_program_that_bash_was_about_to_start_when_sigterm_came_gets_it_too(tmp_path, monkeypatch):
    """bash has looked for signals, and starts its next line: a search for its programs at that time finds none."""

    def found_later(bash, signum):
        monkeypatch.setattr(supervision, "receivers_behind", receivers_behind)
        return Receivers(programs=(), shells=(bash,))

    begun = tmp_path / "begun"
    monkeypatch.setattr(supervision, "receivers_behind", found_later)
    monkeypatch.setattr(supervision.os, "getpgrp", lambda: 0)
    with Supervisor(notice_file=tmp_path / "notice.json") as supervisor:
        watch = threading.Thread(target=_signal_when, args=(begun,))
        watch.start()
        outcome = supervisor.run(
            f"bash -c 'echo > {begun}; exec sleep 600'\n", environment=dict(os.environ), directory=None
        )
        watch.join()
    assert outcome.exit_code == 128 + signal.SIGTERM


def _signal_when(path):
    while not path.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


_AS_PROCESS_1 = """
import os, sys
from pathlib import Path
from spotkeep.runner.supervision import Supervisor

notice = Path(sys.argv[1])
with Supervisor(notice_file=notice) as supervisor:
    notice.write_text("{}")
    outcome = supervisor.run(["sh", "-c", "exit 75"], environment=dict(os.environ), directory=None)
print(os.getpid(), os.getpgrp(), outcome.exit_code)
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("setsid") is None,
    reason="a process 1 needs root, unshare and setsid",
)
def test_a_containers_process_1_that_is_alone_after_a_notice_gives_the_commands_exit_code(tmp_path):
    """Its group is number 1, and a signal to that group goes to all others in the container: there may be none."""
    command = [
        "unshare",
        "--pid",
        "--fork",
        "setsid",
        sys.executable,
        "-c",
        _AS_PROCESS_1,
        str(tmp_path / "notice.json"),
    ]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": import_root()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["1", "1", "75"], done.stderr


@pytest.mark.parametrize("counted_before", [0, 3])
def test_kills_for_memory_are_those_while_the_command_ran(tmp_path, monkeypatch, counted_before):
    counts = tmp_path / "vmstat"
    counts.write_text(f"nr_free_pages 1\noom_kill {counted_before}\n")
    monkeypatch.setattr(failure, "_KERNEL_COUNTS", counts)
    command = ["sh", "-c", f"echo oom_kill {counted_before + 1} > {counts}; kill -9 $$"]
    outcome = Supervisor(notice_file=tmp_path / "notice.json").run(
        command, environment=dict(os.environ), directory=None
    )
    assert (outcome.exit_code, outcome.memory_kills) == (137, 1)


@pytest.mark.parametrize("counts", [None, "nr_free_pages 1\n"], ids=["no such file", "an old kernel"])
def test_where_the_kernel_does_not_count_kills_there_are_none(tmp_path, monkeypatch, counts):
    path = tmp_path / "vmstat"
    if counts is not None:
        path.write_text(counts)
    monkeypatch.setattr(failure, "_KERNEL_COUNTS", path)
    outcome = Supervisor(notice_file=tmp_path / "notice.json").run(
        ["true"], environment=dict(os.environ), directory=None
    )
    assert (outcome.exit_code, outcome.memory_kills) == (0, 0)


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps")
@pytest.mark.parametrize("processes", [Path("/proc"), Path("/nowhere")], ids=["the kernel's files", "ps, as on macOS"])
def test_a_program_behind_two_shells_is_found_and_a_program_is_itself(processes):
    lines = "( sleep 60; true ) & echo $!; wait"
    with subprocess.Popen(["bash", "-c", f"bash -c '{lines}'; true"], stdout=subprocess.PIPE, text=True) as shell:
        try:
            subshell = int(shell.stdout.readline())
            [program] = _children(subshell)
            for pid in (shell.pid, program):
                found = receivers_behind(pid, signal.SIGTERM, processes=processes)
                assert found == Receivers(programs=(program,), shells=())
        finally:
            for pid in receivers_behind(shell.pid, signal.SIGKILL).programs:
                subprocess.run(["kill", "-9", str(pid)], check=True)


def test_a_shell_that_runs_nothing_is_no_program():
    with subprocess.Popen(["bash", "-c", "read line"], stdin=subprocess.PIPE, text=True) as shell:
        assert receivers_behind(shell.pid, signal.SIGTERM) == Receivers(programs=(), shells=(shell.pid,))
        shell.communicate("")


def _children(parent: int) -> list[int]:
    """Wait for what a shell has started, and give it."""
    while True:
        listed = subprocess.run(
            ["ps", "-A", "-o", "ppid=,pid=,comm="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 2) for line in listed.splitlines()]
        found = [int(pid) for ppid, pid, name in rows if int(ppid) == parent and name.strip().endswith("sleep")]
        if found:
            return found


SAVES_ON_SIGTERM = """
    import pathlib, signal, sys, time
    def leave(*_):
        print("saves", flush=True)
        time.sleep(0.1)
        print("saved", flush=True)
        sys.exit(int(sys.argv[1]))
    signal.signal(signal.SIGTERM, leave)
    print("waiting", flush=True)
    while True:
        time.sleep(60)
"""


@pytest.fixture
def start_block(start):
    """Starts a job whose command is these lines."""

    def start_block(lines, **more):
        return start(textwrap.dedent(lines), **more)

    return start_block


def test_the_lines_run_one_after_the_other_and_the_hyperparameters_are_its_arguments(start_block, tmp_path):
    configuration = tmp_path / "ml" / "input" / "config"
    configuration.mkdir(parents=True)
    (configuration / "hyperparameters.json").write_text('{"lr": "0.1", "note": "two words; $HOME"}')
    job = start_block(
        """\
        #!/bin/bash
        # Peers' habits: a comment, a variable, a folder, a line that goes on, a here-document.
        export GREETING='it is'
        mkdir -p src && cd src
        python - <<'END'
        print("in Python: 'quoted' $HOME")
        END
        python -c 'import os, sys; print(os.environ["GREETING"], os.path.basename(os.getcwd()), sys.argv[1:])' \\
          "$@"
        """
    )
    assert job.finish() == 0, job.stderr
    assert job.lines[1:-1] == [
        "in Python: 'quoted' $HOME",
        "it is src ['--lr', '0.1', '--note', 'two words; $HOME']",
    ]


def test_a_line_that_fails_ends_the_block_and_is_named(start_block):
    job = start_block("echo begins\n\nfalse | cat\necho never\n")
    assert job.finish() == 1
    assert "never" not in job.lines
    assert job.failure == (
        "echo begins (and 2 more lines) exited with code 1:\nspotkeep: line 3 of the command ended with code 1"
    )


SHAPES = {
    "the last line": 'cd .\npython train.py "$CODE"\n',
    "a line before another": 'python train.py "$CODE"\necho never\n',
    "exec": 'exec python train.py "$CODE"\n',
    "a pipe": 'python train.py "$CODE" 2>&1 | tee log.txt\necho never\n',
    "an output that tee copies": 'exec > >(tee log.txt)\npython train.py "$CODE"\necho never\n',
    "an input": 'yes | python train.py "$CODE"\necho never\n',
    "if": 'if python train.py "$CODE"; then :; else exit $?; fi\n',
    "a loop": 'for fold in 1 2; do python train.py "$CODE"; echo never; done\n',
    "and": 'cd . && python train.py "$CODE" && echo never\n',
    "a subshell": '(cd . && exec python train.py "$CODE")\necho never\n',
    "a function": 'train() { python train.py "$CODE"; echo never; }\ntrain\n',
    "another script": 'printf "python train.py $CODE\\n" > run.sh\nbash run.sh\necho never\n',
    "without -e": 'set +e\npython train.py "$CODE"\necho never\n',
    "a comment behind it": 'python train.py "$CODE" # trains\n# the end\n',
}


SHOWN_ONCE_A_DAY = {
    "a line before another",
    "exec",
    "an input",
    "if",
    "a loop",
    "and",
    "a function",
    "another script",
    "without -e",
    "a comment behind it",
}


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(lines, id=name, marks=[pytest.mark.long] if name in SHOWN_ONCE_A_DAY else [])
        for name, lines in SHAPES.items()
    ],
)
def test_a_notice_reaches_the_program_alone_and_the_block_ends_with_its_code(start_block, lines):
    job = start_block(lines, script=SAVES_ON_SIGTERM, CODE="3", SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 3, job.stderr
    assert [line for line in job.lines if line in {"saves", "saved", "never"}] == ["saves", "saved"], job.stderr


def test_a_program_that_saves_and_ends_with_0_on_a_notice_is_interrupted_and_no_line_follows(start_block):
    job = start_block("python train.py 0\necho never\n", script=SAVES_ON_SIGTERM, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert "saved" in job.lines
    assert "never" not in job.lines


def test_a_program_in_the_background_saves_before_the_block_ends(start_block):
    job = start_block("python train.py 75 &\nwait $!\n", script=SAVES_ON_SIGTERM, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert job.lines.index("saved") < len(job.lines) - 1


def test_a_program_without_a_handler_that_a_notice_kills_has_not_failed(start_block):
    job = start_block("echo waiting\nsleep 60\necho never\n", SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75, job.stderr
    assert job.failure is None
    assert "never" not in job.lines


def test_a_block_that_ignores_sigterm_keeps_it_from_its_programs(start_block):
    """The notice file reaches the library in them, and a launcher that would kill its workers hears of nothing."""
    script = """
        import os, pathlib, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("the signal"))
        print("waiting", flush=True)
        while not pathlib.Path(os.environ["SPOTKEEP_NOTICE_FILE"]).exists():
            time.sleep(0.01)
    """
    job = start_block("trap '' TERM\npython train.py\necho goes on\n", script=script, SPOTKEEP_NOTICE_SECONDS="0")
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGTERM)
    assert job.finish() == 75
    assert "goes on" in job.lines


def test_another_signal_reaches_the_program_and_the_block_goes_on(start_block):
    script = """
        import signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit())
        print("waiting", flush=True)
        time.sleep(60)
    """
    job = start_block("python train.py\necho goes on\n", script=script)
    job.wait_for_line("waiting")
    job.process.send_signal(signal.SIGUSR1)
    assert job.finish() == 0, job.stderr
    assert "goes on" in job.lines


def test_an_image_without_bash_is_named_before_anything_is_installed(start_block, tmp_path):
    (tmp_path / "empty").mkdir()
    job = start_block("python train.py\n", spec={"requirements": ("missing==1",)}, PATH=str(tmp_path / "empty"))
    assert job.finish() == MissingToolError.exit_code
    assert job.failure.startswith("not started: the command is a block of lines for bash, and this image has no bash")
    assert "a list of words" in job.failure


def test_a_block_that_bash_cannot_read_runs_not_even_in_part(start_block):
    job = start_block("echo begins\nif true\n")
    assert job.finish() == 126
    assert job.failure == "not started: bash cannot read the command: line 3: syntax error: unexpected end of file"
    assert "begins" not in job.lines


def test_a_machine_is_set_up_by_a_block_that_ends_where_a_line_fails(start):
    block = "echo sets up\nfalse\necho never\n"
    job = start(["echo", "trains"], spec={"setup": block})
    assert job.finish() == 71
    assert job.failure.startswith("setup: echo sets up (and 2 more lines) exited with code 1:")
    assert [line for line in job.lines if line in {"sets up", "never", "trains"}] == ["sets up"]


def test_a_block_is_named_by_its_first_line_that_runs():
    assert block_named("# trains\n\npython train.py\n") == "python train.py (and 1 more line)"
    assert block_named("cd src && python train.py\n") == "cd src && python train.py"


def test_a_block_that_cannot_be_read_is_refused_where_its_words_are_made():
    with pytest.raises(CommandError, match="unexpected"):
        bash_words("done\n", [], environment={"PATH": "/usr/bin:/bin"})
