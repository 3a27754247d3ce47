"""The JSON schema of a job file: the launcher's own, and what the command line adds to it."""

from __future__ import annotations

from typing import Any

from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.schedules.document import ScheduleRequest
from spotkeep_jobs.sweeps.document import SweepRequest

SCHEMA_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def job_file_schema() -> dict[str, Any]:
    """Return the schema of job.yaml, where a source may also be a path of this machine, or a branch."""
    schema = JobRequest.model_json_schema()
    source = schema["properties"]["source"]
    source["anyOf"] = [
        {"type": "string", "minLength": 1, "description": "A path relative to the job file, packed and uploaded."},
        *source["anyOf"],
        {
            "type": "object",
            "properties": {"git": {"type": "string"}, "branch": {"type": "string", "minLength": 1}},
            "required": ["git", "branch"],
            "additionalProperties": False,
            "description": "A branch or tag; the launch takes the commit that it is at.",
        },
    ]
    source["examples"] = [".", *source.get("examples", [])]
    sweep = SweepRequest.model_json_schema()
    schema["$defs"] |= sweep.pop("$defs", {})
    schema["properties"]["sweep"] = sweep | {
        "description": "Makes a sweep of it: many trials, each a run with parameters of its own (docs/sweeps.md)."
    }
    schedule = ScheduleRequest.model_json_schema()
    schema["properties"]["schedule"] = {
        "anyOf": [{"type": "string", "minLength": 1, "description": "The expression alone."}, schedule],
        "description": "Launches it again and again: cron(...) or rate(...), with a time zone (docs/schedules.md).",
        "examples": ["cron(0 2 * * ? *)"],
    }
    return {"$schema": SCHEMA_DIALECT, **schema, "title": "Spotkeep job file"}
