"""The steps of the commands around the engine.

They judge the job file, show the rehearsal, write the report and print the next steps.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import sys
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.aws.connection import INSTALLED_FROM, app_to_deploy, rehearsal_directory
from spotkeep_cli.errors import (
    LocalFailureError,
    MissingModuleError,
    RehearsalFailedError,
    RehearsalNotJudgedError,
    UsageError,
)
from spotkeep_cli.failure_causes import hint_of_failure
from spotkeep_cli.launching.answers import refused
from spotkeep_cli.launching.job_checks import with_checks
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.judgement import judge_here
from spotkeep_cli.launching.preparation import prepare
from spotkeep_cli.rehearsal import engine
from spotkeep_cli.rehearsal.engine import RehearsalPlan
from spotkeep_cli.rehearsal.evidence import SCRIPT_FAILED_HINT, RehearsedRunFailedError
from spotkeep_cli.rehearsal.page import Circumstances, report_page
from spotkeep_cli.rehearsal.permissions import FILE_NAME, denials, write_permissions
from spotkeep_cli.rehearsal.verdict import missing_module
from spotkeep_cli.rehearsal.view import RehearsalView, drawn
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.quantities import counted
from spotkeep_cli.signals import unwinding_on_sigterm
from spotkeep_cli.terminal import NextStep, problem_list
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.schedules.document import launched_by_a_schedule
from spotkeep_local.errors import LocalAwsError
from spotkeep_local.training.job_host import path_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.text import Text

    from spotkeep_cli.errors import LocatedProblem
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.rehearsal.engine import Scenario
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal

OUTPUT_NAME = "output.log"
"""The file beside the report with all lines that the script printed."""
_LOCK_NAME = "lock"
_MOST_DENIALS = 3
_SET_UP_BY_MAKE = frozenset({"torch", "keras", "lightning", "transformers", "accelerate"})
_PACKAGES = {"PIL": "pillow", "cv2": "opencv-python-headless", "sklearn": "scikit-learn", "yaml": "pyyaml"}
"""Packages with another name than their module."""


def activation(
    *, environment: Mapping[str, str] = os.environ, prefix: Path = Path(sys.prefix), directory: Path | None = None
) -> list[NextStep]:
    """Return the step that comes first where `spotkeep` is in a virtual environment that is not active.

    Args:
        environment: The environment of this process. Under `make`, its PATH differs from the PATH of the user's shell.
        prefix: The environment that `spotkeep` runs in.
        directory: The user's working directory. The current directory by default.

    Returns:
        One step. None where the shell finds `spotkeep`, or where the way to it is unknown.
    """
    here = directory or Path.cwd()
    script = prefix / "bin" / "activate"
    found = shutil.which("spotkeep", path=environment.get("PATH", ""))
    on_path = found is not None and Path(found).resolve().parent == (prefix / "bin").resolve()
    under_make = "MAKELEVEL" in environment
    active = environment.get("VIRTUAL_ENV") == str(prefix)
    if active or (on_path and not under_make) or not script.is_file():
        return []
    from_here = script.relative_to(here) if script.is_relative_to(here) else script
    return [NextStep(command=f"source {shlex.quote(str(from_here))}", what="puts spotkeep on the PATH of this shell")]


def rehearse_job(
    job_file: Path,
    scenario: Scenario,
    *,
    overrides: Sequence[str],
    timeout_seconds: float,
    keep_running: bool,
    report_path: Path | None,
    invocation: Invocation,
    terminal: Terminal,
    deploy: bool = True,
    python: Path | None = None,
) -> None:
    """Judge the job file, rehearse it, show and write the report, and print the next steps.

    Args:
        job_file: The job file.
        scenario: The kind of rehearsal.
        overrides: `--set` values.
        timeout_seconds: The longest wait for any one event, in seconds.
        keep_running: True to keep the local AWS up afterwards.
        report_path: The path of the report, or None for its place in the project's state.
        invocation: The command's own words.
        terminal: The terminal that shows the progress.
        deploy: True to deploy the app first.
        python: The interpreter that the script runs with. None for the interpreter of this command.

    Raises:
        JobFileError: The file cannot be read.
        RefusedError: The job file has problems. The error carries every problem that can be found here, with its line.
        UsageError: A rehearsal cannot judge such a job.
        LocalFailureError: The local AWS or the CDK CLI failed.
        RehearsalNotJudgedError: There is no verdict.
        MissingModuleError: The script needs a Python module that is not installed here.
        RehearsalFailedError: The run did not pass.
    """
    document = read_job_file(job_file, overrides=overrides).with_fields(scenario.job_fields)
    if (kind_of(launched_by_a_schedule(document.fields)) == "sweep") != scenario.of_sweep:
        raise _other_command(job_file, of_sweep=scenario.of_sweep)
    if python is not None:
        document = in_python(document, python)
    warnings = judged_here(document, invocation=invocation)
    plan = RehearsalPlan(
        scenario=scenario,
        document=document,
        invocation=invocation,
        project_dir=app_to_deploy(),
        settings=scenario.settings(document.fields),
        timeout_seconds=timeout_seconds,
        deploy=deploy,
        keep_running=keep_running,
    )
    terminal.show(scenario.introduction.format(job_file=job_file))
    if warnings:
        terminal.show(f"{job_file}: {counted(len(warnings), 'warning')}")
        terminal.show(problem_list(warnings, mark="!", style="yellow"), "")
    with own_directory(rehearsal_directory()) if report_path is None else nullcontext(report_path.parent) as directory:
        path = report_path or directory / scenario.report_name
        _rehearse_and_report(plan, path, job_file=job_file, terminal=terminal)


def _rehearse_and_report(plan: RehearsalPlan, path: Path, *, job_file: Path, terminal: Terminal) -> None:
    """Rehearse, write the report to this path, and print the next steps."""
    scenario = plan.scenario
    output = path.with_name(OUTPUT_NAME)
    view = RehearsalView(terminal.people)
    try:
        with view, unwinding_on_sigterm():
            report = engine.rehearse(plan, view=view)
    except LocalAwsError as error:
        raise LocalFailureError.of(error) from error
    except RehearsalNotJudgedError as error:
        if isinstance(error, RehearsedRunFailedError) and (module := missing_module(error.failure)):
            raise _not_installed(module) from error
        if view.said:
            _write_output(output, view.said)
            terminal.show(f"The script's output: {_from_here(output)}")
        raise
    report.write(path)
    write_permissions(report.permissions, path.with_name(FILE_NAME), judging=report.judging)
    _write_output(output, view.said)
    denied = denials(report.permissions)
    hint = hint_of_failure(report.failure or "") if report.fails_alone else scenario.failed_hint
    hint = hint or SCRIPT_FAILED_HINT
    quoted = shlex.quote(str(job_file))
    steps = [replace(step, command=step.command.format(job_file=quoted)) for step in scenario.next_steps]
    again = NextStep(command=f"spotkeep {scenario.command} {quoted}", what="rehearse it again")
    page = _page_beside(path)
    circumstances = Circumstances(
        job_file=str(job_file),
        said=view.said,
        hint=None if report.passed else hint,
        steps=steps if report.passed and not denied else [again],
        footer=f"Written by a rehearsal on {quantities.moment(plan.invocation.seams.now())} UTC",
    )
    page.write_text(report_page(report, circumstances), encoding="utf-8")
    if terminal.as_json:
        terminal.give_json(report.to_document())
    else:
        of_permissions = [f"AWS would deny: {line}" for line in denied[:_MOST_DENIALS]] if not report.passed else []
        files = _files(page, document=path, output=output if view.said else None)
        for part in drawn(report, before_verdict=[*of_permissions, files]):
            terminal.show(part)
    if module := report.missing_module:
        raise _not_installed(module)
    if not report.passed:
        raise RehearsalFailedError("the rehearsal did not pass", hint=hint)
    if denied:
        raise RehearsalFailedError(
            f"the rehearsal passed, but AWS would deny {quantities.counted(len(denied), 'permission')}: {denied[0]}",
            hint="spotkeep doctor --permissions shows each call and the statement that decided",
        )
    terminal.show_next(*activation(), *steps)


@contextmanager
def own_directory(directory: Path) -> Iterator[Path]:
    """Give a directory for the files of a rehearsal, which no other one under way writes to.

    Args:
        directory: The directory, which the first one has. The next ones have `2`, `3` and so on in it.
    """
    for number in count(1):
        own = directory if number == 1 else directory / str(number)
        own.mkdir(parents=True, exist_ok=True)
        with (own / _LOCK_NAME).open("a", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield own
            return


def _other_command(job_file: Path, *, of_sweep: bool) -> UsageError:
    what, command = ("a single job", "rehearse") if of_sweep else ("a sweep", "rehearse-sweep")
    return UsageError(f"{job_file} is of {what}", hint=f"spotkeep {command} {shlex.quote(str(job_file))}")


def in_python(document: JobDocument, python: Path) -> JobDocument:
    """Return a job that runs `python` and `python3` from the directory of an interpreter.

    This interpreter stands for the one of the image.

    Args:
        document: The job file.
        python: The interpreter, of a virtual or conda environment.

    Raises:
        UsageError: The path is no interpreter, or commands would not find it by those names.
    """
    # A virtual environment's is a link to another Python, and it is the link that knows its packages.
    path = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100 - `resolve` would follow the link
    lacking = [name for name in ("python", "python3") if not os.access(path.parent / name, os.X_OK)]
    if not os.access(path, os.X_OK) or path.is_dir() or lacking:
        missing = f"no {' and no '.join(lacking)} beside it" if lacking else "it cannot be executed"
        raise UsageError(
            f"--python {python} is no Python of an environment: {missing}",
            hint=f"give the interpreter of a virtual or conda environment, for example {sys.prefix}/bin/python",
        )
    given = document.fields.get("environment")
    variables = given if isinstance(given, dict) else {}
    return document.with_fields({"environment": {**variables, "PATH": path_with(path.parent)}})


def _page_beside(report: Path) -> Path:
    """Return the place of the page of a report, which has another name than its document."""
    page = report.with_suffix(".html")
    return page if page != report else report.with_name(f"{report.name}.html")


def _write_output(path: Path, said: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in said), encoding="utf-8")


def _files(page: Path, *, document: Path, output: Path | None) -> Text:
    from rich.text import Text

    lines = [f"Report: {_from_here(page)}", f"For programs: {_from_here(document)}"]
    if output is not None:
        lines.append(f"The script's output: {_from_here(output)}")
    permissions = document.with_name(FILE_NAME)
    is_read_by_doctor = permissions.parent == rehearsal_directory()
    lines.append(f"Permissions: {'spotkeep doctor --permissions' if is_read_by_doctor else _from_here(permissions)}")
    # A path is copied, and a fold would break it.
    return Text("\n".join(lines), no_wrap=True, overflow="ignore")


def judged_here(document: JobDocument, *, invocation: Invocation) -> list[LocatedProblem]:
    """Judge the job file as far as possible here, and return the warnings of `doctor`."""
    if document.fields.get("command") is None and {"image", "framework", "algorithm"} & document.fields.keys():
        raise UsageError(
            "a rehearsal judges what a script prints and saves, and this job has no command: the image's own entry "
            "point runs",
            hint="launch it on a local AWS instead, with a program in place of the image: spotkeep local up; "
            "spotkeep local image IMAGE PROGRAM; spotkeep --local launch JOB_FILE",
        )
    prepared = prepare(document, deployment=None, new_token=invocation.seams.new_token)
    judgement = judge_here(prepared, now=invocation.seams.now())
    if judgement.problems:
        raise refused(list(judgement.problems), what="nothing was rehearsed", document=document)
    return document.located(with_checks(judgement.warnings, prepared))


def installation(module: str) -> str:
    """Return the instruction to install a Python module where local jobs find it.

    Local jobs find it in the environment of this command.

    Args:
        module: The module's name, as scripts import it.
    """
    if module in _SET_UP_BY_MAKE and INSTALLED_FROM is not None and Path(sys.prefix) == INSTALLED_FROM / ".venv":
        where = "" if Path.cwd() == INSTALLED_FROM else f"-C {shlex.quote(str(INSTALLED_FROM))} "
        return f"install it: make {where}setup-torch"
    python = shlex.quote(str(Path(sys.prefix) / "bin" / "python"))
    return (
        f"install it for the Python that local jobs run with: {python} -m pip install {_PACKAGES.get(module, module)}"
    )


def _not_installed(module: str) -> MissingModuleError:
    return MissingModuleError(
        f"the rehearsal was not judged: the script imports {module!r}, which is not installed for local jobs",
        hint=f"{installation(module)}\n(or write it into requirements.txt in the source, or rehearse with the "
        "Python that has it: --python PATH; a module of your own must be in the job's `source`)",
    )


def _from_here(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
