"""`spotkeep prove-permissions`: each permission of the deployment is taken away, and must be missed."""

from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, invocation_of
from spotkeep_cli.terminal import Terminal


def prove_permissions(
    context: typer.Context,
    job_file: JobFile,
    fleet_job_file: Annotated[
        Path, typer.Argument(metavar="FLEET_JOB.YAML", help="A job file of the EC2 backend.", show_default=False)
    ],
    sweep_file: Annotated[
        Path, typer.Argument(metavar="SWEEP.YAML", help="The job file of a sweep.", show_default=False)
    ],
    *,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="The longest that a rehearsal waits for anything.")
    ] = 600.0,
    live_minutes: Annotated[
        float, typer.Option(min=0, metavar="MINUTES", help="The longest that the flows run with grants withheld.")
    ] = 12.0,
    as_json: AsJson = False,
) -> None:
    """Rehearse everything on a local AWS, then take each permission away: it must be missed."""
    from spotkeep_cli.proving.command import prove_permissions as prove

    prove(
        job_file,
        fleet_job_file,
        sweep_file,
        live_minutes=live_minutes,
        timeout_seconds=timeout,
        invocation=invocation_of(context),
        terminal=Terminal(as_json=as_json),
    )
