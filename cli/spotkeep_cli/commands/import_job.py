"""`spotkeep import JOB`: a training job of another client as a job file."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotkeep_cli.commands.parameters import invocation_of
from spotkeep_cli.errors import UsageError
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.importing.training_job import ImportedJob

_MOST_BYTES = 1024 * 1024
_OTHER_FILES = (
    "of a notebook: jupyter nbconvert --to script NOTEBOOK.ipynb; write a request in YAML as JSON, in a .json file"
)
_OTHER_DOCUMENTS = {
    "States": "a Step Functions definition: put the parameters of its state that calls createTrainingJob",
    "Steps": "a SageMaker pipeline: put the Arguments of its step of the type Training",
    "Resources": "a CloudFormation template, which has no training jobs: put the request that starts one",
    "TrainingJobDefinition": "a tuning job: put its TrainingJobDefinition and StaticHyperParameters",
    "TrainingJobDefinitions": "a tuning job: put one of its TrainingJobDefinitions",
    "ServerlessJobConfig": "a job without instances, which a job file cannot ask for: put the request of one with some",
}
"""Documents of AWS that hold a request, each by a member that it has, with where the request is in it."""


def import_job(
    context: typer.Context,
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB",
            help="The name of a training job with the deployment's tag; a .py script that starts one with the "
            "SageMaker SDK or boto3; or a .json file: the parameters of CreateTrainingJob, or what "
            "`aws sagemaker describe-training-job` prints.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The job file to write; it must not be there.")] = Path(
        "job.yaml"
    ),
) -> None:
    """Make a job file of a SageMaker training job, and say what it leaves out."""
    from spotkeep_cli.importing.training_job import import_request
    from spotkeep_cli.launching.answers import refused
    from spotkeep_jobs.document.validation import read_document

    invocation = invocation_of(context)
    if job.endswith(".py"):
        imported = _import_script(Path(job), beside=output.parent)
    else:
        is_file = job.endswith(".json")
        if not is_file and "." in job:  # No training job has a dot in its name.
            raise UsageError(f"{job} is neither a .py script nor a .json file", hint=_OTHER_FILES)
        request = _read_request(Path(job)) if is_file else invocation.deployment().training_job_request(job)
        _refuse_launched(job, request, invocation)
        try:
            imported = import_request(request, name=_name_of(Path(job)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{job} is no CreateTrainingJob request ({type(error).__name__}: {error})",
                hint=_other_document(request)
                or f"aws sagemaker describe-training-job --training-job-name NAME > {job if is_file else 'job.json'}",
            ) from error
    imported = imported.without_refused_entries()
    # A directory as the source is packed at the launch.
    _, problems, _ = read_document({name: value for name, value in imported.fields.items() if name != "source"})
    wrong = [each for each in problems if each.field != "command" or "command" in imported.fields]
    if wrong:
        raise refused(wrong, what="no job file was written")
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(imported.as_job_file())
    except FileExistsError as error:
        raise UsageError(f"{output} is there already", hint="name another: --output other.yaml") from error
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}", hint="name another: --output FILE") from error
    terminal = Terminal()
    terminal.show(f"{output} written")
    for line in imported.not_imported():
        terminal.show(line)
    quoted = shlex.quote(str(output))
    terminal.show_next(NextStep(command=invocation.command(f"doctor {quoted}"), what="what is missing, or refused"))


def _refuse_launched(job: str, request: Any, invocation: Invocation) -> None:
    """Refuse a job that the launcher made with a training spec. The request alone has no command.

    Raises:
        UsageError: It is such a job.
    """
    from spotkeep_fleet.training_spec import SPEC_VARIABLE

    environment = request.get("Environment") if isinstance(request, dict) else None
    if not isinstance(environment, dict) or SPEC_VARIABLE not in environment:
        return
    run = str(environment.get("SPOTKEEP_RUN") or "RUN")
    raise UsageError(
        f"{job} is a job of Spotkeep, and its command is in the training spec of run {run}",
        hint=f"{invocation.command(f'describe {shlex.quote(run)} --json')} has the job file of the run, as run.request",
    )


def _other_document(request: Any) -> str | None:
    """Return the next step for a known document that only holds a request; None for any other."""
    members = request if isinstance(request, dict) else {}
    found = next((what for member, what in _OTHER_DOCUMENTS.items() if member in members), None)
    return None if found is None else f"it is {found} into a .json file of its own"


def _name_of(path: Path) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", path.stem).strip("-")


def _import_script(path: Path, *, beside: Path) -> "ImportedJob":
    """Read a script of the SageMaker SDK; its source becomes relative to where the job file will be."""
    from spotkeep_cli.importing.sdk_script import import_script

    try:
        imported = import_script(_read(path).decode("utf-8-sig"), name=_name_of(path))
    except (ValueError, SyntaxError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be imported: {error}",
            hint="give a script with one ModelTrainer, estimator or create_training_job in it",
        ) from error
    source = imported.fields.get("source")
    if isinstance(source, str) and "://" not in source:
        imported.fields["source"] = os.path.relpath(path.parent / source, beside)
    return imported


def _read(path: Path) -> bytes:
    from spotkeep_cli.bounded_reading import read_file

    try:
        return read_file(path, most_bytes=_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="give a file of at most 1 MiB") from error


def _read_request(path: Path) -> Any:
    try:
        return json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} holds no JSON ({error})",
            hint=f"aws sagemaker describe-training-job --training-job-name NAME > {path}",
        ) from error
