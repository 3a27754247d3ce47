"""`spotkeep pool ls | match | extend | stop`: the warm pools that jobs left."""

import shlex
from typing import Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, JobFile, Overrides, RunName, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

app = typer.Typer(
    help="See, match, extend and end warm pools: instances that stay for the next job.", no_args_is_help=True
)

Duration = Annotated[str, typer.Argument(metavar="TIME", help="The time to add: 30m, 900, 1h.", show_default=False)]


@app.command()
def ls(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List warm pools with their instances, owners, time left and cost so far."""
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.rendering.lists import pool_list
    from spotkeep_jobs.record.record import Pool

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    answer = ask_launcher(invocation.deployment(), {"action": "pools"}, what="no pool was listed")
    terminal.remark_unreadable(answer.get("unreadable", {}))
    if as_json:
        terminal.give_json(answer)
        return
    pools = [Pool.model_validate(document) for document in answer["pools"]]
    if not pools:
        terminal.show("No warm pool: a job leaves one with capacity: on-demand and keep_alive.")
        terminal.show_next(NextStep(command=invocation.command("ps --all"), what="the runs there were"))
        return
    terminal.show(pool_list(pools, now=invocation.seams.now(), width=terminal.people.width))
    first = pools[0].run
    terminal.show_next(
        NextStep(command=invocation.command(f"launch job.yaml --like {first}"), what="run the next job on it"),
        NextStep(command=invocation.command(f"pool extend {first} 30m"), what="keep it longer"),
        NextStep(command=invocation.command(f"pool stop {first}"), what="end it now"),
    )


@app.command()
def match(context: typer.Context, job_file: JobFile, *, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Say which pool a job would take, and for each other one every criterion that differs."""
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.launching.judgement import judge_or_refuse, match_document
    from spotkeep_cli.rendering.lists import pool_matches
    from spotkeep_cli.rendering.quantities import counted

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    document = read_job_file(job_file, overrides=overrides or ())
    _, judgement = judge_or_refuse(
        document,
        deployment=invocation.deployment(),
        new_token=invocation.seams.new_token,
        what="nothing was matched",
    )
    fitting = [each for each in judgement.pools if each.fits]
    if as_json:
        terminal.give_json(
            {
                "ok": True,
                "takes": fitting[0].pool.run if fitting else None,
                "pools": [match_document(each) for each in judgement.pools],
            }
        )
        return
    quoted = shlex.quote(str(job_file))
    launch = NextStep(command=invocation.command(f"launch {quoted}"), what="launch it")
    if not judgement.pools:
        terminal.show("There is no warm pool: the job starts on new instances.")
        terminal.show_next(launch)
        return
    found = f"takes the pool of {fitting[0].pool.run}" if fitting else "takes none of them"
    terminal.show(f"{counted(len(judgement.pools), 'warm pool')}; {job_file} {found}")
    terminal.show(pool_matches(judgement.pools, now=invocation.seams.now()))
    nearest = judgement.pools[0].pool.run
    like = NextStep(command=invocation.command(f"launch {quoted} --like {nearest}"), what="take over what differs")
    terminal.show_next(*([launch] if fitting else [like, launch]))


@app.command()
def extend(context: typer.Context, run_name: RunName, time: Duration, *, as_json: AsJson = False) -> None:
    """Keep a pool longer; beyond the service's limits it is refused with the limit."""
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.rendering.lists import left, machines
    from spotkeep_cli.rendering.quantities import moment
    from spotkeep_cli.run_names import find_run
    from spotkeep_jobs.record.record import Pool

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    request: dict[str, Any] = {"action": "extend-pool", "run": run.run, "for": time}
    if pools := deployment.table.pools.of_run(run.run):
        request["kept_until"] = pools[-1].kept_until.isoformat()  # The call may be repeated: it then extends it once.
    answer = ask_launcher(deployment, request, what=f"the pool of {run.run} was not extended")
    if as_json:
        terminal.give_json(answer)
        return
    pool = Pool.model_validate(answer["pool"])
    now = invocation.seams.now()
    terminal.show(
        f"The pool of {run.run} ({machines(pool)}) is kept until {moment(pool.kept_until)} UTC, "
        f"for another {left(pool, now=now)}."
    )
    terminal.show_next(
        NextStep(command=invocation.command(f"launch job.yaml --like {run.run}"), what="run the next job on it"),
        NextStep(command=invocation.command(f"pool stop {run.run}"), what="end it now"),
    )


@app.command()
def stop(context: typer.Context, run_name: RunName, *, yes: AssumeYes = False, as_json: AsJson = False) -> None:
    """End a pool: its instances are given back and cost nothing more."""
    from spotkeep_cli.launching.answers import ask_launcher
    from spotkeep_cli.rendering.lists import machines
    from spotkeep_cli.rendering.quantities import dollars
    from spotkeep_cli.run_names import find_run
    from spotkeep_jobs.pools.warm_pool import idle_usd
    from spotkeep_jobs.record.record import Pool
    from spotkeep_jobs.record.states import PoolState

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    terminal.confirm(f"End the warm pool of {run.run}?", assume_yes=yes)
    request = {"action": "stop-pool", "run": run.run}
    answer = ask_launcher(deployment, request, what=f"the pool of {run.run} was not ended")
    if as_json:
        terminal.give_json(answer)
        return
    pool = Pool.model_validate(answer["pool"])
    cost = idle_usd(pool, now=invocation.seams.now())
    idle = "" if cost is None else f" Its idle time cost {dollars(cost)}."
    is_over = "is over" if pool.state is PoolState.ENDED else "is being ended"
    terminal.show(f"The pool of {run.run} ({machines(pool)}) {is_over}.{idle}")
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {run.run}"), what="the bill, with the pool on it")
    )
