"""`spotkeep drill RUN`: takes a run's spot instance away through AWS FIS, and reports how the run came back."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, RunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal

Within = Annotated[float, typer.Option("--within", metavar="MINUTES", min=3, help="Give up waiting after so long.")]


def drill(
    context: typer.Context, run_name: RunName, *, within: Within = 30.0, yes: AssumeYes = False, as_json: AsJson = False
) -> None:
    """Take a run's instance away, as EC2 would, and see it come back. Needs the setting drills."""
    from spotkeep_cli.drill import on_aws
    from spotkeep_cli.drill.recovery import Phase, Recovery, absorb
    from spotkeep_cli.drill.view import drill_report, phase_line
    from spotkeep_cli.errors import DrillFailedError

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command).run
    terminal = Terminal(as_json=as_json)
    hands = on_aws.Drill(deployment, run=run)
    instance, zone = hands.instance()
    terminal.confirm(f"Take {instance} ({zone}) away from {run}? It has two minutes to save.", assume_yes=yes)

    clock = invocation.seams.now
    began = clock().timestamp()
    hands.start(instance, token=invocation.seams.new_token())
    recovery = Recovery(run=run, began_at=began, instance=instance, zone=zone, seen={})
    while not recovery.ended and clock().timestamp() - began < within * 60:
        before = set(recovery.seen)
        recovery = absorb(recovery, hands.describe(at=clock().timestamp()))
        for phase in Phase:
            if phase in recovery.seen and phase not in before:
                terminal.remark(phase_line(recovery, phase))
        if not recovery.ended:
            invocation.pause()
    if Phase.GONE not in recovery.seen:
        hands.spare(instance)

    if as_json:
        terminal.give_json(recovery.document())
    else:
        terminal.show(drill_report(recovery))
    describe = NextStep(command=invocation.command(f"describe {run}"), what="what happened to it")
    if not recovery.recovered:
        raise DrillFailedError(
            recovery.problem or f"{run} did not train again within {within:g} minutes", hint=describe.command
        )
    terminal.show_next(describe, NextStep(command=invocation.command(f"logs {run} -f"), what="see it train"))
