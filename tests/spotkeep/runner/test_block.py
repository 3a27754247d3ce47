"""A command that is a block of lines for bash: what it is given, and what a notice does to the program in it."""

from __future__ import annotations

import signal
import textwrap

import pytest

from spotkeep.errors import CommandError, MissingToolError
from spotkeep.runner.failure import block_named
from spotkeep.runner.supervision import bash_words

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
