"""Commands that take or make a job file: `spotkeep launch`, `plan`, `doctor`, `schema` and `import`."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from spotkeep_cli.commands.parameters import (
    AsJson,
    AsPage,
    AssumeYes,
    Detach,
    JobFile,
    Overrides,
    invocation_of,
    write_page,
)
from spotkeep_cli.errors import NoConnectionError, OrphanError, UsageError
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.importing.training_job import ImportedJob
    from spotkeep_jobs.record.record import BackendName

Like = Annotated[
    str | None,
    typer.Option("--like", metavar="RUN", help="Take over the criteria of that run's warm pool.", show_default=False),
]


def launch(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    like: Like = None,
    yes: AssumeYes = False,
    detach: Detach = False,
    as_json: AsJson = False,
) -> None:
    """Launch a run and follow it. Ctrl-C leaves it running.

    Several runs of one file (runs: n) are launched, listed and not followed; so is a sweep. A file with a schedule
    is launched when the schedule fires.
    """
    from spotkeep_cli.following import follow_to_the_end
    from spotkeep_cli.launching.answers import refused, show_launched
    from spotkeep_cli.launching.job_checks import source_warnings
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.launching.judgement import judge_or_refuse, overrides_like
    from spotkeep_cli.launching.launch_view import launch_view
    from spotkeep_cli.launching.preparation import send
    from spotkeep_cli.planning.launch_forecast import forecast_launch
    from spotkeep_cli.planning.plan_view import launch_forecast_view
    from spotkeep_cli.planning.spot_or_pool import MOST_RUNS, advice_for
    from spotkeep_cli.run_names import find_run
    from spotkeep_cli.terminal import problem_list

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    document = read_job_file(job_file, overrides=overrides or ())
    deployment = invocation.deployment()
    if like is not None:
        other = find_run(deployment.table, like, command=invocation.options.command)
        document = document.with_fields(overrides_like(other, document))
    prepared, judgement = judge_or_refuse(
        document, deployment=deployment, new_token=invocation.seams.new_token, what="nothing was launched"
    )
    forecast = None
    if judgement.sweep is None and judgement.schedule is None:
        with terminal.remarks.status("forecasting"):
            forecast = forecast_launch(judgement, deployment=deployment, invocation=invocation)
    if forecast is not None and forecast.problems:
        raise refused(list(forecast.problems), what="nothing was launched", document=document)
    where = "the local AWS" if invocation.options.local else deployment.region
    place, now = f"{invocation.options.deployment} in {where}", invocation.seams.now()
    terminal.show(launch_view(judgement, prepared=prepared, where=place, now=now))
    if forecast is not None:
        terminal.show(launch_forecast_view(forecast))
    advice = advice_for(
        judgement.request,
        usd_per_hour=judgement.usd_per_hour,
        runs=deployment.table.runs.list(limit=MOST_RUNS, unreadable={}),
    )
    if advice is not None:
        terminal.show(f"Spot or pool: {advice}.")
    of_forecast = forecast.warnings if forecast else ()
    if warnings := [*judgement.warnings, *of_forecast, *source_warnings(prepared)]:
        terminal.show(problem_list(document.located(warnings), mark="!", style="yellow"))
    terminal.confirm("Launch it?" if judgement.schedule is None else "Schedule it?", assume_yes=yes)
    answer = send(prepared, deployment=deployment, plan=None if forecast is None else forecast.as_plan())
    # Only a token that the user gave can stand for an earlier launch; a repeat with our own is this launch.
    known = bool(answer.get("replayed")) and document.fields.get("token") is not None
    if "run" not in answer:
        show_launched(answer, known=known, invocation=invocation, terminal=terminal)
        return
    follow_to_the_end(
        answer if forecast is None else {**answer, "forecast": forecast.as_document()},
        became="was launched before with this token; nothing new was launched" if known else "launched",
        invocation=invocation,
        deployment=deployment,
        terminal=terminal,
        detach=detach,
    )


_KNOWLEDGE = "What is known of capacity"


def _time(what: str) -> Any:
    return typer.Option(metavar="TIME", help=what, show_default=False)


def plan(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    deadline: Annotated[
        str | None, _time("Until when it must be done: 60h, 2d12h. Default: deadline, else max_wait.")
    ] = None,
    work: Annotated[str | None, _time("Training time without interruptions. Default: work, else max_run.")] = None,
    restart: Annotated[
        str | None, _time("From asking for capacity to working, checkpoint loaded. Default: restart, else 12m.")
    ] = None,
    save: Annotated[str, typer.Option(metavar="TIME", help="The time that training stands still for a save.")] = "30s",
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A capacity trace, or a folder of them.",
            rich_help_panel=_KNOWLEDGE,
            show_default=False,
        ),
    ] = None,
    zones: Annotated[
        list[str] | None,
        typer.Option(
            "--zone", metavar="ZONE", help="Only this zone. Repeatable.", rich_help_panel=_KNOWLEDGE, show_default=False
        ),
    ] = None,
    on_demand_price: Annotated[
        float | None,
        typer.Option(metavar="USD", help="On-demand price an hour.", rich_help_panel=_KNOWLEDGE, show_default=False),
    ] = None,
    band: Annotated[
        str,
        typer.Option(
            metavar="BAND",
            help="Interruption band of the Spot Instance Advisor: <5%, 5-10%, 10-15%, 15-20%, >20%.",
            rich_help_panel=_KNOWLEDGE,
        ),
    ] = ">20%",
    compare: Annotated[bool, typer.Option("--compare", help="Set other policies beside it.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: a .png, .svg or .pdf file.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the imagined futures: the same seed, the same plan.")] = 0,
    as_page: AsPage = None,
    as_json: AsJson = False,
) -> None:
    """Forecast cost, end and interruptions of a job with a deadline."""
    from spotkeep_cli.planning.job_planning import PlanOptions, plan_job, seconds_of
    from spotkeep_cli.planning.plan_view import plan_view

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    options = PlanOptions(
        deadline_s=None if deadline is None else seconds_of("--deadline", deadline),
        work_s=None if work is None else seconds_of("--work", work),
        restart_s=None if restart is None else seconds_of("--restart", restart),
        save_s=seconds_of("--save", save),
        traces=traces,
        zones=tuple(zones or ()),
        on_demand_price=on_demand_price,
        band=band,
        compare=compare,
        plot=plot,
        seed=seed,
    )
    with terminal.remarks.status("planning"):
        planned = plan_job(job_file, overrides=overrides or (), options=options, invocation=invocation)
        if plot is not None:
            from spotkeep_cli.planning.plan_plots import save_plan_plot

            save_plan_plot(planned, plot)
    quoted = shlex.quote(str(job_file))
    given = [("--deadline", deadline), ("--work", work), ("--traces", traces), ("--on-demand-price", on_demand_price)]
    given += [("--zone", zone) for zone in zones or ()]
    same = [f"{option} {shlex.quote(str(value))}" for option, value in given if value is not None]
    again = invocation.command(" ".join(["plan", quoted, *same]))
    steps = [] if compare else [NextStep(command=f"{again} --compare", what="set other policies beside it")]
    steps.append(NextStep(command=invocation.command(f"launch {quoted}"), what="launch it"))
    page: Path | None = None
    if as_page is not None:
        from spotkeep_cli.planning.plan_report import plan_html

        made_by = f"{again}{' --compare' if compare else ''} --html"
        html = plan_html(planned, steps=steps, made_by=made_by, now=invocation.seams.now())
        page = write_page(html, name=f"{planned.name}-plan", to=as_page)
    if as_json:
        written = {} if page is None else {"page": str(page)}
        terminal.give_json({"ok": True, "job_file": str(job_file), **planned.as_document(), **written})
        return
    terminal.show(plan_view(planned, width=terminal.people.width))
    if plot is not None:
        terminal.show("", f"The spread of cost and end is drawn in {plot}")
    if page is not None:
        terminal.remark(f"page: {page}")
    terminal.show_next(*steps)


def doctor(
    context: typer.Context,
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.YAML", help="The job file.", show_default=False)
    ] = None,
    *,
    account: Annotated[
        bool,
        typer.Option(
            "--account", help="Check the account instead, for things that belong to no live run, and for quotas."
        ),
    ] = False,
    permissions: Annotated[
        bool,
        typer.Option("--permissions", help="Show the last rehearsal's calls, their grants, and unused grants."),
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check a job file without launching anything, or the account without changing anything."""
    if permissions and job_file is None and not account:
        show_permissions(as_json=as_json)
        return
    if account and job_file is None:
        check_account(invocation_of(context), as_json=as_json)
        return
    if job_file is None or account or permissions:
        raise UsageError(
            "doctor checks a job file, the account or the permissions, one of the three",
            hint="spotkeep doctor job.yaml, or: spotkeep doctor --account, or: spotkeep doctor --permissions",
        )
    from spotkeep_cli.commands.doctor_job_file import check_job_file

    check_job_file(job_file, overrides=overrides or (), invocation=invocation_of(context), as_json=as_json)


def show_permissions(*, as_json: bool) -> None:
    """Show what the last rehearsal found of the deployment's permissions.

    Raises:
        UsageError: There was none.
    """
    from spotkeep_cli.aws.connection import rehearsal_directory
    from spotkeep_cli.rehearsal.permissions import (
        FILE_NAME,
        permission_document,
        permission_summary,
        permission_tables,
        read_permissions,
    )

    terminal = Terminal(as_json=as_json)
    reports, judging = read_permissions(rehearsal_directory() / FILE_NAME)
    if as_json:
        terminal.give_json(permission_document(reports, judging=judging))
        return
    for part in (*permission_summary(reports, judging=judging), *permission_tables(reports)):
        terminal.show(part)


def check_account(invocation: "Invocation", *, as_json: bool) -> None:
    """Check the account, read-only, and show what was found.

    Raises:
        OrphanError: Something should not be there.
        NoConnectionError: Something could not be read.
    """
    from spotkeep_cli.account import check
    from spotkeep_cli.account.view import account_report
    from spotkeep_cli.rendering.quantities import counted

    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    with terminal.remarks.status("reading jobs, warm pools, schedules, checkpoints and quotas"):
        found = check.check_account(deployment, clock=invocation.seams.now)
    if as_json:
        terminal.give_json(found.as_document())
    else:
        about = f"{invocation.options.deployment} in {deployment.region}"
        verdict = f"{counted(found.wrong, 'thing')} that should not be there" if found.wrong else "no orphans"
        terminal.show(f"{about}: {verdict}")
        for part in account_report(found, now=invocation.seams.now(), width=terminal.people.width):
            terminal.show(part)
        terminal.show_next(
            NextStep(command=invocation.command("ps"), what="the runs at work"),
            NextStep(command=invocation.command("pool ls"), what="warm pools, and who left them"),
        )
    if found.wrong:
        raise OrphanError(
            f"{counted(found.wrong, 'thing')} in the account should not be there",
            hint="the controller removes by rule, once an hour; the commands above do it now",
        )
    if found.unreadable:
        raise NoConnectionError(
            f"{' and '.join(found.unreadable)} could not be read",
            hint=f"ask for the managed policy of users of the deployment {invocation.options.deployment!r}",
        )


def schema(context: typer.Context) -> None:
    """Print the JSON schema of a job file (published as docs/job.schema.json)."""
    from spotkeep_cli.launching.job_schema import job_file_schema

    del context
    Terminal(as_json=True).give_json(job_file_schema())


_MOST_BYTES = 1024 * 1024
_OTHER_FILES = "of a notebook: jupyter nbconvert --to script NOTEBOOK.ipynb"
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
            "SageMaker SDK or boto3; a .json file: the parameters of CreateTrainingJob, or what "
            "`aws sagemaker describe-training-job` prints; or a .yaml file: a task of SkyPilot or dstack.",
            show_default=False,
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="The job file to write; it must not be there.")] = Path(
        "job.yaml"
    ),
    backend: Annotated[
        Literal["sagemaker", "ec2"],
        typer.Option(
            "--backend",
            help="Where a task of SkyPilot or dstack runs. With ec2 its nodes are those of an EC2 fleet.",
        ),
    ] = "sagemaker",
) -> None:
    """Make a job file of a training job or a task of another tool, and name the parts left out."""
    from spotkeep_cli.importing.training_job import import_request
    from spotkeep_cli.launching.answers import refused
    from spotkeep_jobs.document.request import read_document

    invocation = invocation_of(context)
    is_task = job.endswith((".yaml", ".yml"))
    if backend != "sagemaker" and not is_task:
        raise UsageError(f"--backend {backend} is for tasks, and {job} is SageMaker's", hint="leave it out")
    if job.endswith(".py"):
        imported = _import_script(Path(job), beside=output.parent)
    elif is_task:
        imported = _import_task(Path(job), beside=output.parent, backend=backend)
    else:
        is_file = job.endswith(".json")
        if not is_file and "." in job:  # No training job has a dot in its name.
            raise UsageError(f"{job} is neither a .py script nor a .json or .yaml file", hint=_OTHER_FILES)
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
    """Return the next step for a known document that only holds a request. None for any other."""
    members = request if isinstance(request, dict) else {}
    found = next((what for member, what in _OTHER_DOCUMENTS.items() if member in members), None)
    return None if found is None else f"it is {found} into a .json file of its own"


def _name_of(path: Path) -> str:
    return re.sub("[^A-Za-z0-9]+", "-", path.stem).strip("-")


def _import_script(path: Path, *, beside: Path) -> "ImportedJob":
    """Read a script of the SageMaker SDK. Its source becomes relative to the folder of the job file."""
    from spotkeep_cli.importing.sdk_script import import_script

    try:
        imported = import_script(_read(path).decode("utf-8-sig"), name=_name_of(path))
    except (ValueError, SyntaxError, RecursionError) as error:
        raise UsageError(
            f"{path} cannot be imported: {error}",
            hint="give a script with one ModelTrainer, estimator or create_training_job in it",
        ) from error
    return _with_source_beside(imported, path, beside=beside)


def _import_task(path: Path, *, beside: Path, backend: "BackendName") -> "ImportedJob":
    """Read a task of another tool. Its source becomes relative to the folder of the job file."""
    import yaml

    from spotkeep_cli.importing.task_file import import_task

    try:
        imported = import_task(yaml.safe_load(_read(path)), name=_name_of(path), backend=backend)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(
            f"{path} cannot be imported: {error}",
            hint="give a task of SkyPilot or dstack; write a request of SageMaker's as JSON, in a .json file",
        ) from error
    return _with_source_beside(imported, path, beside=beside)


def _with_source_beside(imported: "ImportedJob", path: Path, *, beside: Path) -> "ImportedJob":
    source = imported.fields.get("source")
    if isinstance(source, str) and "://" not in source:
        imported.fields["source"] = os.path.relpath(path.parent / Path(source).expanduser(), beside)
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
