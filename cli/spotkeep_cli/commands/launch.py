"""`spotkeep launch job.yaml`: shows the plan, asks, launches, follows."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, Detach, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import Terminal

Like = Annotated[
    str | None,
    typer.Option(
        "--like", metavar="RUN", help="Take over what a job needs to fit that run's warm pool.", show_default=False
    ),
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
    advice = advice_for(judgement, runs=deployment.table.runs.list(limit=MOST_RUNS, unreadable={}))
    if advice is not None:
        terminal.show(f"Spot or pool: {advice}.")
    if warnings := [*judgement.warnings, *(forecast.warnings if forecast else ())]:
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
