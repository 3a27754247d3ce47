"""`spotkeep schema`: the JSON schema of a job file, for editors."""

import typer

from spotkeep_cli.terminal import Terminal


def schema(context: typer.Context) -> None:
    """Print the JSON schema of a job file (published as docs/job.schema.json)."""
    from spotkeep_cli.launching.job_schema import job_file_schema

    del context
    Terminal(as_json=True).give_json(job_file_schema())
