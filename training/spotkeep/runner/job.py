"""One job from its start to its end, with its spec, its preparation, its command and its result."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shlex
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from spotkeep import events
from spotkeep.disk.writers import ATTEMPT_VARIABLE, LEASE_VARIABLE
from spotkeep.errors import (
    CommandError,
    ConfigurationError,
    HostNameError,
    JobError,
    JobSecretError,
    MissingToolError,
)
from spotkeep.notices.notice import (
    EXIT_INTERRUPTED,
    NOTICE_FILE_VARIABLE,
    all_are_done,
    forget_trainings,
    left_file,
    notice_seconds,
)
from spotkeep.version import __version__
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.ranks import MPI
from spotkeep_fleet.secret_references import without_values
from spotkeep_fleet.training_spec import (
    JSON,
    NO_ARGUMENTS,
    NOT_STARTED,
    SPEC_VARIABLE,
    WANDB_DIRECTORY,
    HangLimit,
    TrainingSpec,
    decode_spec,
    spec_file_name,
)

from .environment import Hardware, command_arguments, find_hardware, job_environment
from .exits_on_notice import EXITS_NAME, MOST_IN_A_ROW, CommandEnding, ending_of_exit_0, keep_count, take_count
from .failure import MAX_CHARACTERS, failure_text, says_ended_by_sigterm
from .hosts import DONE, ENDED, FAILED, INTERRUPTED, LOST, SILENT_SECONDS, HostEnding, OtherHosts, verdict
from .installation import prepare_machine
from .layout import JobConfiguration, JobLayout, import_root, read_configuration
from .ranks import MeetingPlace, network_variables, ranks_command
from .script_checkpoints.putting_aside import put_aside_cut_off
from .secret_values import take_secret_values
from .source import prepare_source
from .supervision import CommandOutcome, Supervisor, bash_words, start_thread

_MAX_SPEC_BYTES = 2**20
_KILLED_BY_SIGTERM = 143
_EXIT_STUCK = 1
_LARGEST_PORT = 65_535
_NAMES_OF_A_WORLD = ("TRAINING_JOB_NAME", ATTEMPT_VARIABLE, LEASE_VARIABLE)
"""The variables that only the hosts that train together have alike."""
_RESTARTS_NAME = "stuck-restarts.json"
"""The number of starts after a hang, beside the checkpoints. It is there only between two machines of the job."""
MOST_SECONDS_FOR_HOST_NAMES = 900.0
"""So long AWS's own images wait for each name.

Source: `_dns_lookup` in `sagemaker_pytorch_container/training.py`, aws/sagemaker-pytorch-training-toolkit on GitHub.
"""
_SECONDS_OF_LEFT_RANKS = 30.0
"""So long ranks may take to end after a host is gone or its command has failed. Most of them wait for that host."""
_FIRST_HOST_NAME_PAUSE_SECONDS = 0.1
_LONGEST_HOST_NAME_PAUSE_SECONDS = 5.0


def run_job(spec: TrainingSpec | None = None) -> int:
    """Run a training command as this environment's job. Gives the exit code.

    The installation and the setup are a part of the job. A notice that comes meanwhile ends them as it ends the
    command.

    After an interruption notice the code is 75. It is another one if the command is done (`exits_on_notice`), or failed
    of its own accord.

    After a notice by SIGTERM, a job that is not done returns only at the notice's deadline. It is unknown how a
    platform reads a container that ends earlier. An agent may start this job and name a notice file of its own. Such an
    agent waits for the job to end, so the function returns at once.

    Args:
        spec: The training's spec. By default the one that the environment names.
    """
    layout = JobLayout.from_environment(os.environ)
    given = os.environ.get(NOTICE_FILE_VARIABLE)
    try:
        spec = spec or _read_spec(layout, os.environ)
    except JobError as error:
        return _not_begun(layout, error)
    # The command does not get it. A runner that it starts without a command would run this same job again, without end.
    os.environ.pop(SPEC_VARIABLE, None)
    os.environ.update(spec.script_variables(run=os.environ.get("SPOTKEEP_RUN")))
    if spec.wandb is not None:
        os.environ.setdefault(WANDB_DIRECTORY, str(layout.wandb))
    os.environ.setdefault("SPOTKEEP_EVENTS", "stdout")
    scratch = Path(tempfile.mkdtemp(prefix="spotkeep-"))
    notice_file = Path(given) if given else scratch / "notice.json"
    try:
        with Supervisor(notice_file=notice_file) as supervisor:
            exit_code = _supervised(spec, layout, supervisor, notice_file=notice_file, scratch=scratch)
            events.emit("exit", code=exit_code)
            if supervisor.notice is not None and exit_code and not given:
                supervisor.hold_until_deadline()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return exit_code


def _read_spec(layout: JobLayout, environment: Mapping[str, str]) -> TrainingSpec:
    """Read the spec's file, whose name is the hash of its bytes.

    Raises:
        ConfigurationError: If there is none, it holds other bytes, or it is no valid spec.
    """
    place = environment.get(SPEC_VARIABLE)
    if not place:
        raise ConfigurationError(f"there is no command: {SPEC_VARIABLE} names no training spec, and none was given")
    path = layout.relocated(place)
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_SPEC_BYTES)
    except OSError as error:
        raise ConfigurationError(f"the training spec cannot be read: {error}; {SPEC_VARIABLE} is {place}") from error
    if spec_file_name(content) != path.name:
        raise ConfigurationError(
            f"the training spec {path} is not the one that was launched, and is not run: its bytes have the name "
            f"{spec_file_name(content)}. It was replaced; find out by whom, then launch again"
        )
    try:
        return decode_spec(content.decode("utf-8"))
    except (DocumentError, ValueError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _with_hyperparameters(
    spec: TrainingSpec, *, layout: JobLayout, configuration: JobConfiguration
) -> JobConfiguration:
    """Add the hyperparameters of a job in a queue for which its request had no room.

    Raises:
        ConfigurationError: They cannot be put into the file where scripts read them.
    """
    given = configuration.hyperparameters
    if spec.hyperparameters.keys() <= given.keys():
        return configuration
    whole = {**spec.hyperparameters, **given}
    try:
        layout.configuration.mkdir(parents=True, exist_ok=True)
        layout.hyperparameters.write_text(json.dumps(whole), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"the hyperparameters cannot be written to {layout.hyperparameters}, where scripts read them: {error}"
        ) from error
    return replace(configuration, hyperparameters=whole)


def _supervised(
    spec: TrainingSpec, layout: JobLayout, supervisor: Supervisor, *, notice_file: Path, scratch: Path
) -> int:
    command = spec.command
    events.emit("start", python=platform.python_version(), spotkeep=__version__)
    try:
        values = take_secret_values(spec, os.environ, is_over=lambda: supervisor.announced)
        supervisor.secret_values = tuple(values.values())
        os.environ.update({variable: values[reference] for variable, reference in spec.secrets.items()})
        configuration = read_configuration(layout)
        configuration = _with_hyperparameters(spec, layout=layout, configuration=configuration)
        for directory in (layout.model, layout.output_data, configuration.checkpoint_directory):
            _make(directory)
        if spec.wandb is not None:
            _make(Path(os.environ[WANDB_DIRECTORY]))  # Its client writes to another folder where there is none.
        words = command_arguments(configuration.hyperparameters, as_json=spec.arguments == JSON)
        hardware = find_hardware()
        environment = job_environment(
            inherited=os.environ,
            layout=layout,
            configuration=configuration,
            hardware=hardware,
            import_root=import_root(),
            notice_file=notice_file,
            arguments=words,
        )
        if spec.distributed is not None:
            of_type = str(configuration.resources.get("current_instance_type", ""))
            environment = {**network_variables(instance_type=of_type, hosts=len(configuration.hosts)), **environment}
        if isinstance(command, str):
            bash_words(command, [], environment=environment)  # Before anything is installed for it.
        token = None if spec.source is None else values.get(spec.source.git_secret or "")
        source = prepare_source(spec.source, layout=layout, environment=environment, token=token)
        if source is not None:
            environment["SM_SOURCE_DIR"] = str(source)
        if not supervisor.announced:
            environment = prepare_machine(
                spec,
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
        job = _Job(spec, layout, configuration, hardware, supervisor, notice_file, environment, source, words)
        return job.run()
    except JobError as error:
        if supervisor.announced and isinstance(error, JobSecretError) and not error.for_good:
            return EXIT_INTERRUPTED
        return _not_begun(layout, error, values=supervisor.secret_values)


@dataclass(frozen=True)
class _Job:
    """A job whose machine is prepared.

    Attributes:
        spec: The training's spec.
        layout: The job's directories.
        configuration: The platform's configuration.
        hardware: The machine's hardware.
        supervisor: It runs the command.
        notice_file: The file in which the processes of the job find a notice.
        environment: All variables of the command.
        source: The directory of the source.
        words: The hyperparameters as arguments.
    """

    spec: TrainingSpec
    layout: JobLayout
    configuration: JobConfiguration
    hardware: Hardware
    supervisor: Supervisor
    notice_file: Path
    environment: Mapping[str, str]
    source: Path | None
    words: Sequence[str]

    def run(self) -> int:
        """Run the job to its end. Gives the exit code.

        Raises:
            JobError: The command cannot be started, or another host does not come.
        """
        several = len(self.configuration.hosts) > 1
        exit_code = self._train_with_others() if several and self.spec.distributed is not None else self._train()
        if several and exit_code == EXIT_INTERRUPTED and NOTICE_FILE_VARIABLE not in os.environ:
            # The notice was to another host, or that host is gone. The platform is about to take this one too. What it
            # makes of a host that leaves before that is unknown.
            self.supervisor.hold_until_noticed(seconds=notice_seconds())
        return exit_code

    def _train(self) -> int:
        """Run the command, and start it again after a hang. Gives the exit code.

        Raises:
            JobError: The command cannot be started.
        """
        spec, layout, supervisor, notice_file = self.spec, self.layout, self.supervisor, self.notice_file
        configuration = self.configuration
        checkpoints, launch = configuration.checkpoint_directory, os.environ.get(events.LAUNCH_VARIABLE)
        exits_before = take_count(checkpoints, EXITS_NAME, launch=launch)
        restarts = take_count(checkpoints, _RESTARTS_NAME, launch=launch)
        # The events and most lines are those of the first host. The processes of others may be silent all the time.
        stuck = spec.stuck if configuration.current_host == configuration.hosts[0] else None
        while True:
            forget_trainings(notice_file)
            put_aside_cut_off(checkpoints, layout.put_aside)
            outcome = supervisor.run(
                self._command(),
                arguments=self.words if spec.arguments != NO_ARGUMENTS else [],
                environment=self.environment,
                directory=self.source,
                metrics=spec.metrics,
                stuck=stuck,
                restarts=restarts,
                signals_children=spec.distributed is not None and spec.distributed.launcher == MPI,
            )
            if outcome.hung and not outcome.exit_code and all_are_done(notice_file):
                return 0  # It was at its end.
            if stuck is None or not outcome.hung or supervisor.announced:
                break
            if outcome.processes_left or restarts >= stuck.at_most:
                _leave_failure(layout, _hung_text(stuck, processes_left=outcome.processes_left))
                return _EXIT_STUCK
            restarts += 1
            events.emit("start", python=platform.python_version(), spotkeep=__version__)
        if outcome.hung:
            exit_code = EXIT_INTERRUPTED
        else:
            exit_code = _ended(
                spec,
                layout,
                supervisor,
                outcome,
                notice_file=notice_file,
                exits_before=exits_before,
                checkpoints=checkpoints,
                launch=launch,
            )
        if exit_code == EXIT_INTERRUPTED and restarts:
            keep_count(checkpoints, _RESTARTS_NAME, restarts, launch=launch)
        return exit_code

    def _train_with_others(self) -> int:
        """Run the command together with those of the other hosts. Gives the exit code.

        A command that waits for a host that is gone or has failed is ended, and the code is that of the reason.

        Raises:
            JobError: The command cannot be started, or another host does not come.
        """
        configuration, supervisor = self.configuration, self.supervisor
        own_host = configuration.current_host
        ended = threading.Event()

        def end(ending: HostEnding) -> None:
            if ending.kind == DONE or supervisor.announced or ended.is_set():
                return
            ended.set()
            happened = "is gone" if ending.kind == LOST else f"has ended ({ending.kind})"
            sys.stderr.write(f"spotkeep: {ending.host} {happened}, so the ranks of {own_host} are ended\n")
            sys.stderr.flush()
            # Ranks of an interrupted training may be saving.
            seconds = notice_seconds() if ending.kind == INTERRUPTED else _SECONDS_OF_LEFT_RANKS
            start_thread(lambda: supervisor.end_command(seconds=seconds), name="end-command")

        with OtherHosts(
            hosts=configuration.hosts,
            current_host=own_host,
            job="/".join(self.environment.get(name, "") for name in _NAMES_OF_A_WORLD),
            address=self.environment["SM_MASTER_ADDR"],
            port=_port(self.environment) + 1,
            on_ending=end,
        ) as others:
            others.wait_until_all_are_there(is_over=lambda: supervisor.announced)
            try:
                exit_code = EXIT_INTERRUPTED if supervisor.announced or ended.is_set() else self._train()
            except JobError as error:
                others.say(HostEnding(own_host, FAILED, error.exit_code, str(error)))
                raise
            own = self._ending(exit_code, ended=ended.is_set())
            others.say(own)
            if own.kind in (FAILED, ENDED):
                others.wait_for_all_endings(most_seconds=SILENT_SECONDS + 2 * _SECONDS_OF_LEFT_RANKS)
            final = verdict(own, others.endings)
        if final != own:
            self._leave_reason(final.text)
        return final.code

    def _command(self) -> Sequence[str] | str:
        """Give the command, or the one that starts its ranks on this host."""
        spec, hosts = self.spec, self.configuration.hosts
        if spec.distributed is None or isinstance(spec.command, str):
            return spec.command
        several = len(hosts) > 1
        command = ranks_command(
            spec.distributed,
            command=spec.command,
            place=MeetingPlace(
                hosts=len(hosts),
                host_rank=hosts.index(self.configuration.current_host),
                address=self.environment["SM_MASTER_ADDR"] if several else "127.0.0.1",
                port=_port(self.environment) if several else _free_port(),
            ),
            hardware=self.hardware,
            environment=self.environment,
        )
        sys.stderr.write(f"spotkeep: starts the ranks of this host: {shlex.join(command)}\n")
        sys.stderr.flush()
        return command

    def _ending(self, exit_code: int, *, ended: bool) -> HostEnding:
        host = self.configuration.current_host
        if not exit_code or ended:
            return HostEnding(host, ENDED if exit_code else DONE, exit_code)
        if exit_code == EXIT_INTERRUPTED:
            return HostEnding(host, INTERRUPTED, exit_code)
        with contextlib.suppress(OSError, UnicodeError):
            return HostEnding(host, FAILED, exit_code, self.layout.failure.read_text(encoding="utf-8"))
        return HostEnding(host, FAILED, exit_code)

    def _leave_reason(self, text: str) -> None:
        """Replace the reason of this host's command by that of another host."""
        if text:
            sys.stderr.write(f"spotkeep: {text}\n")
            _leave_failure(self.layout, text)
        else:
            with contextlib.suppress(OSError):
                self.layout.failure.unlink()


def _port(environment: Mapping[str, str]) -> int:
    """Give the port at which the ranks of all hosts meet.

    Raises:
        ConfigurationError: The job's own value is no port.
    """
    given = environment["SM_MASTER_PORT"]
    if not given.isdigit() or not 0 < int(given) < _LARGEST_PORT:
        raise ConfigurationError(f"SM_MASTER_PORT is {given!r}; use a port of 1 to {_LARGEST_PORT - 1}")
    return int(given)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _ended(
    spec: TrainingSpec,
    layout: JobLayout,
    supervisor: Supervisor,
    outcome: CommandOutcome,
    *,
    notice_file: Path,
    exits_before: int,
    checkpoints: Path,
    launch: str | None,
) -> int:
    """Give the job's exit code after the command's end. Leave the reason for a failure."""
    # A launcher of many workers (torchrun) has a code of its own for a worker that left with 75, a shell even a 0.
    left = left_file(notice_file).exists()
    if not outcome.exit_code:
        done = all_are_done(notice_file)
        ending = ending_of_exit_0(noticed=outcome.noticed, left=left, done=done, exits_before=exits_before)
        if ending.exits_in_a_row:
            _say_exit_on_notice(ending)
        if ending.exits_in_a_row and ending.exit_code:
            keep_count(checkpoints, EXITS_NAME, ending.exits_in_a_row, launch=launch)
        return ending.exit_code
    left |= outcome.exit_code in (EXIT_INTERRUPTED, _KILLED_BY_SIGTERM) or says_ended_by_sigterm(outcome.stderr_tail)
    # A rank that left without a notice to this host heard of one to another host.
    if (supervisor.announced and left) or left_file(notice_file).exists():
        return EXIT_INTERRUPTED
    _leave_failure(
        layout,
        failure_text(
            command=spec.command,
            exit_code=outcome.exit_code,
            stderr_tail=outcome.stderr_tail,
            memory_kills=outcome.memory_kills,
        ),
    )
    return outcome.exit_code


def _hung_text(stuck: HangLimit, *, processes_left: bool) -> str:
    """Give the reason why a job fails that hangs."""
    silent = f"the command hung: no step and no line of output for {stuck.after_seconds} s (stuck)"
    if processes_left:
        return f"{silent}. SIGKILL does not end its processes, which wait in the kernel, for example for a file system"
    return f"{silent}, once more after {stuck.at_most} starts from its checkpoint (stuck.at_most)"


def _say_exit_on_notice(ending: CommandEnding) -> None:
    """Emit the result of an exit with code 0 on a notice."""
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


def _not_begun(layout: JobLayout, error: JobError, *, values: Iterable[str] = ()) -> int:
    """Say why the command was not started. Give the exit code.

    Args:
        layout: The job's directories.
        error: The reason.
        values: The values of the job's secrets, which are masked.
    """
    is_for_good = error.for_good if isinstance(error, JobSecretError) else False
    is_for_good = is_for_good or isinstance(error, (CommandError, MissingToolError))
    said = without_values(str(error), values)
    _leave_failure(layout, f"{NOT_STARTED if is_for_good else ''}{said}")
    sys.stderr.write(f"spotkeep: {said}\n")
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


def await_host_names(
    hosts: Sequence[str],
    *,
    is_over: Callable[[], bool],
    look_up: Callable[[str], object] = socket.gethostbyname,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until every name resolves, for 15 minutes at most, because the platform starts hosts at different times.

    A job with one host does not wait.

    Args:
        hosts: The names of all hosts.
        is_over: Gives True once there is no need to wait any more, because a notice has come.
        look_up: Resolves a name. Raises OSError where it does not resolve.
        clock: Gives the time in seconds.
        sleep: Waits so many seconds.

    Raises:
        HostNameError: If a name does not resolve in time. Names every such host.
    """
    missing = list(hosts) if len(hosts) > 1 else []
    deadline = clock() + MOST_SECONDS_FOR_HOST_NAMES
    pause = 0.0
    while missing := [host for host in missing if not _resolves(host, look_up)]:
        if is_over():
            return
        if clock() >= deadline:
            raise HostNameError(missing, hosts=len(hosts), seconds=MOST_SECONDS_FOR_HOST_NAMES)
        if not pause:
            pause = _FIRST_HOST_NAME_PAUSE_SECONDS
            sys.stderr.write(f"spotkeep: waiting until the names of all hosts resolve: {', '.join(missing)}\n")
            sys.stderr.flush()
        sleep(pause)
        pause = min(2 * pause, _LONGEST_HOST_NAME_PAUSE_SECONDS)


def _resolves(host: str, look_up: Callable[[str], object]) -> bool:
    try:
        look_up(host)
    except (OSError, UnicodeError):  # UnicodeError: no name at all
        return False
    return True
