"""Validation of a job document: every problem at once, each with the field, what was found and what to do (I7).

A rule between fields (`rules`) is judged when all the fields it is about could be read. What a deployment adds comes in
as `DeploymentDefaults`. Pure: what only AWS or the run table can know is checked by `runs.launch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from spotkeep_jobs.document.deployment_defaults import NO_DEFAULTS, DeploymentDefaults, with_defaults
from spotkeep_jobs.document.reading import Wording, outlined, printable_name, problems_of, shown, unknown_field
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import (
    Rule,
    access,
    capacity,
    ec2,
    job_contents,
    own_entry_point,
    queues,
    spending,
    times,
)
from spotkeep_jobs.document.rules.exclusions import exclusions
from spotkeep_jobs.document.rules.spending import COST_READS, cost_problems
from spotkeep_jobs.document.rules.times import DEADLINE_READS, deadline_can_be_kept
from spotkeep_jobs.document.rules.warnings import warnings_of
from spotkeep_jobs.errors import Problem, RequestRefusedError

RULES: Final[tuple[Rule, ...]] = (
    *capacity.RULES,
    *times.RULES,
    *spending.RULES,
    *job_contents.RULES,
    *own_entry_point.RULES,
    *access.RULES,
    *ec2.RULES,
    *queues.RULES,
)
MAX_PROBLEMS: Final = 200
_BACKENDS: Final = ("sagemaker", "ec2")
_PLACEHOLDERS: Final[Mapping[str, Any]] = {"name": "placeholder", "command": ["true"]}
_OTHER_NAMES: Final = {
    "entrypoint": "command",
    "script": "command",
    "args": "command",
    "jobname": "name",
    "runid": "run",
    "imageuri": "image",
    "trainingimage": "image",
    "code": "source",
    "sourcedir": "source",
    "git": "source",
    "volumesize": "volume_size_gb",
    "volumesizeingb": "volume_size_gb",
    "spot": "capacity",
    "usespot": "capacity",
    "usespotinstances": "capacity",
    "enablemanagedspottraining": "capacity",
    "due": "deadline",
    "dueby": "deadline",
    "finishby": "deadline",
    "maxbudget": "max_cost",
    "expectedruntime": "work",
    "timeout": "max_run",
    "maxruntime": "max_run",
    "maxruntimeinseconds": "max_run",
    "maxwaittimeinseconds": "max_wait",
    "keepaliveperiod": "keep_alive",
    "keepaliveperiodinseconds": "keep_alive",
    "inputs": "channels",
    "inputdataconfig": "channels",
    "data": "channels",
    "env": "environment",
    "checkpoints3uri": "checkpoint_prefix",
    "checkpointuri": "checkpoint_prefix",
    "notifications": "notify",
    "idempotencytoken": "token",
    "clienttoken": "token",
    "s3uri": "uri",
    "inputmode": "input_mode",
    "sha": "commit",
    "url": "git",
}


_WORDING: Final = Wording(
    secret=("environment", "hyperparameters"),
    other_names=_OTHER_NAMES,
    gone={"budget": "Write max_cost: it notifies at 80% as budget did, and ends the run when all is spent."},
)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What became of a document.

    Attributes:
        request: the request with every default filled in; None if it is refused.
        draft: what of the document could be read, placeholders and defaults elsewhere; None if it is no object.
        problems: why it is refused; empty if it is not.
        warnings: what is allowed but probably not meant, in sentences.
    """

    request: JobRequest | None
    draft: JobRequest | None
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]

    def accepted(self) -> JobRequest:
        """Return the request.

        Raises:
            RequestRefusedError: the document is refused.
        """
        if self.request is None:
            raise RequestRefusedError(self.problems, warnings=self.warnings)
        return self.request


def validate(
    document: object, *, defaults: DeploymentDefaults = NO_DEFAULTS, now: datetime | None = None
) -> Validation:
    """Judge a job document as a whole.

    Args:
        document: whatever was sent, of any type.
        defaults: what the deployment fills in and insists on.
        now: when the run would be launched: its deadline, its worst cost and the age of its image are then judged. None
            for a document that was accepted before.
    """
    if not isinstance(document, Mapping):
        problem = Problem(
            field="(document)",
            found=shown(document),
            problem="is not a JSON object",
            fix='Send an object with at least `name` and `command`: {"name": "first", "command": "python train.py"}',
        )
        return Validation(request=None, draft=None, problems=(problem,), warnings=())
    request, problems, unread = read_document(document)
    request = with_defaults(request, given=document.keys() - unread, defaults=defaults)
    problems.extend(exclusions(request, unread=unread))
    for rule in RULES:
        if unread.isdisjoint(rule.reads):
            problems.extend(rule.problems(request, defaults))
    if now is not None and unread.isdisjoint(DEADLINE_READS):
        problems.extend(deadline_can_be_kept(request, now=now))
    if now is not None and unread.isdisjoint(COST_READS):
        problems.extend(cost_problems(request, limits=defaults.limits, prices=defaults.prices, now=now))
    today = None if now is None else now.date()
    warnings = tuple(warnings_of(request, defaults, today=today)) if not unread else ()
    if len(problems) > MAX_PROBLEMS:
        more = Problem(
            field="(document)",
            found=f"more than {MAX_PROBLEMS} problems",
            problem="has more problems than are shown",
            fix="Correct those above and validate again.",
        )
        problems = [*problems[:MAX_PROBLEMS], more]
    return Validation(request=None if problems else request, draft=request, problems=tuple(problems), warnings=warnings)


def read_document(document: Mapping[Any, Any]) -> tuple[JobRequest, list[Problem], set[str]]:
    """Read every field that can be read.

    Returns:
        A request in which the fields that could not be read have placeholders or defaults, the problems, and the
        names of those fields.
    """
    known = JobRequest.model_fields
    unknown = [name for name in document if name not in known]
    # Unknown fields are named here: pydantic cannot say a name that is not valid Unicode.
    problems = [
        unknown_field(name, known, field=printable_name(name), found=outlined(document[name]), wording=_WORDING)
        for name in unknown[: MAX_PROBLEMS + 1]
    ]
    fields = {name: document[name] for name in known if document.get(name) is not None}
    # Only one of the two is taken; of a word that is neither the types are judged by their own form.
    backend = fields.get("backend", "sagemaker")
    context = {"backend": backend if backend in _BACKENDS else None}
    try:
        return JobRequest.model_validate(fields, context=context), problems, set()
    except ValidationError as error:
        problems = [*problems_of(error, JobRequest, document=document, wording=_WORDING), *problems]
        unread = {str(detail["loc"][0]) for detail in error.errors(include_url=False, include_context=False)}
    readable = {name: value for name, value in fields.items() if name not in unread}
    placeholders = {name: value for name, value in _PLACEHOLDERS.items() if name in unread}
    return JobRequest.model_validate({**placeholders, **readable}, context=context), problems, unread
