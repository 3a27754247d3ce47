"""One job from start to end: read, prepare, run, say how it ended."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spotkeep import events
from spotkeep.errors import CommandError, JobError, MissingToolError
from spotkeep.notices.notice import EXIT_INTERRUPTED, NOTICE_FILE_VARIABLE, left_file
from spotkeep.notices.trainings import all_are_done, forget_trainings
from spotkeep.version import __version__

from .block import bash_words
from .environment import command_arguments, find_hardware, job_environment
from .exits_on_notice import MOST_IN_A_ROW, CommandEnding, ending_of_exit_0, keep_exits, take_exits
from .failure import MAX_CHARACTERS, NOT_STARTED, failure_text, says_ended_by_sigterm
from .host_names import await_host_names
from .installation import Preparation, prepare_machine
from .layout import JobLayout, import_root, read_configuration
from .metric_search import searched_metrics
from .parameters_file import take_over_parameters
from .script_checkpoints.putting_aside import put_aside_cut_off
from .source import prepare_source
from .supervision import Supervisor

NO_PREPARATION = Preparation()
ARGUMENTS = (HYPERPARAMETERS, JSON, NO_ARGUMENTS) = ("hyperparameters", "json", "none")
"""What follows the command: hyperparameters in the way of SageMaker's toolkit, or as JSON, or nothing."""

_KILLED_BY_SIGTERM = 143


def run_job(
    command: Sequence[str] | str, *, arguments: str = HYPERPARAMETERS, preparation: Preparation = NO_PREPARATION
) -> int:
    """Run a training command as this environment's job. Gives the exit code.

    The command is words, or a block of lines for bash. Its arguments are one of `ARGUMENTS`: the job's hyperparameters
    in the way of SageMaker's toolkit, or as JSON in the way of the SageMaker SDK 3, or none. What is to be installed
    and set up first is a part of the job: a notice that comes meanwhile ends it as it ends the command.

    After an interruption notice the code is 75 unless the command is done (`exits_on_notice`), or failed of its own
    accord. If the notice came by SIGTERM, this function returns only when it is over: how a platform reads a container
    that ends meanwhile is not known. Not so where the agent that started this job names a notice file of its own: it
    knows what comes next, and waits for this job to be gone.
    """
    layout = JobLayout.from_environment(os.environ)
    try:
        take_over_parameters(layout, os.environ)
    except JobError as error:
        return _not_begun(layout, error)
    os.environ.setdefault("SPOTKEEP_EVENTS", "stdout")
    scratch = Path(tempfile.mkdtemp(prefix="spotkeep-"))
    given = os.environ.get(NOTICE_FILE_VARIABLE)
    notice_file = Path(given) if given else scratch / "notice.json"
    try:
        with Supervisor(notice_file=notice_file) as supervisor:
            exit_code = _supervised(
                command,
                layout,
                supervisor,
                notice_file=notice_file,
                arguments=arguments,
                preparation=preparation,
                scratch=scratch,
            )
            events.emit("exit", code=exit_code)
            if supervisor.notice is not None and exit_code and not given:
                supervisor.hold_until_deadline()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return exit_code


def _supervised(
    command: Sequence[str] | str,
    layout: JobLayout,
    supervisor: Supervisor,
    *,
    notice_file: Path,
    arguments: str,
    preparation: Preparation,
    scratch: Path,
) -> int:
    events.emit("start", python=platform.python_version(), spotkeep=__version__)
    try:
        configuration = read_configuration(layout)
        for directory in (layout.model, layout.output_data, configuration.checkpoint_directory):
            _make(directory)
        words = command_arguments(configuration.hyperparameters, as_json=arguments == JSON)
        environment = job_environment(
            inherited=os.environ,
            layout=layout,
            configuration=configuration,
            hardware=find_hardware(),
            import_root=import_root(),
            notice_file=notice_file,
            arguments=words,
        )
        if isinstance(command, str):
            bash_words(command, [], environment=environment)  # Before anything is installed for it.
        source = prepare_source(layout, environment)
        if source is not None:
            environment["SM_SOURCE_DIR"] = str(source)
        if not supervisor.announced:
            environment = prepare_machine(
                preparation,
                layout=layout,
                source=source,
                environment=environment,
                supervisor=supervisor,
                scratch=scratch,
                first_host=configuration.current_host == configuration.hosts[0],
            )
        await_host_names(configuration.hosts, is_over=lambda: supervisor.announced)
        if supervisor.announced:
            return EXIT_INTERRUPTED
        checkpoints, launch = configuration.checkpoint_directory, os.environ.get(events.LAUNCH_VARIABLE)
        exits_before = take_exits(checkpoints, launch=launch)
        forget_trainings(notice_file)
        put_aside_cut_off(checkpoints, layout.put_aside)
        outcome = supervisor.run(
            command,
            arguments=words if arguments != NO_ARGUMENTS else [],
            environment=environment,
            directory=source,
            search_root=import_root() if searched_metrics(os.environ) else None,
        )
    except JobError as error:
        return _not_begun(layout, error)
    # A launcher of many workers (torchrun) has a code of its own for a worker that left with 75, a shell even a 0.
    left = left_file(notice_file).exists()
    if not outcome.exit_code:
        done = all_are_done(notice_file)
        ending = ending_of_exit_0(noticed=outcome.noticed, left=left, done=done, exits_before=exits_before)
        if ending.exits_in_a_row:
            _say_exit_on_notice(ending)
        if ending.exits_in_a_row and ending.exit_code:
            keep_exits(checkpoints, ending.exits_in_a_row, launch=launch)
        return ending.exit_code
    left |= outcome.exit_code in (EXIT_INTERRUPTED, _KILLED_BY_SIGTERM) or says_ended_by_sigterm(outcome.stderr_tail)
    if supervisor.announced and left:
        return EXIT_INTERRUPTED
    _leave_failure(
        layout,
        failure_text(
            command=command,
            exit_code=outcome.exit_code,
            stderr_tail=outcome.stderr_tail,
            memory_kills=outcome.memory_kills,
        ),
    )
    return outcome.exit_code


def _say_exit_on_notice(ending: CommandEnding) -> None:
    """Say what became of an exit with code 0 on a notice."""
    number = ending.exits_in_a_row
    events.emit("exit-on-notice", in_a_row=number, code=ending.exit_code)
    meaning = (
        f"it counts as interrupted and starts again ({number} in a row; {MOST_IN_A_ROW} count as done)"
        if ending.exit_code
        else f"it counts as done, for it is number {number} in a row. If it was only interrupted: let it save on "
        "SIGTERM and end with code 75, and launch it anew with the checkpoint_prefix of this run"
    )
    said = "the command ended with code 0 on a notice and did not say that it is done"
    sys.stderr.write(f"spotkeep: {said}: {meaning}\n")


def _not_begun(layout: JobLayout, error: JobError) -> int:
    """Say why the command was not started; give the exit code."""
    is_for_good = isinstance(error, (CommandError, MissingToolError))
    _leave_failure(layout, f"{NOT_STARTED if is_for_good else ''}{error}")
    sys.stderr.write(f"spotkeep: {error}\n")
    return error.exit_code


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"the directory {directory} cannot be made: {error}; is SAGEMAKER_BASE_DIR right?") from error


def _leave_failure(layout: JobLayout, text: str) -> None:
    try:
        layout.failure.parent.mkdir(parents=True, exist_ok=True)
        layout.failure.write_text(text[:MAX_CHARACTERS], encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"spotkeep: the failure file could not be written: {error}\n")
