"""Validation of a job document, which finds every problem at once (I7).

Each problem names the field, the value that was found, and the remedy. A subject's rule between fields is judged when
all the fields it is about could be read. The deployment's facts come in as `DeploymentDefaults`. The module is pure,
and `runs.launch` checks the facts that only AWS or the run table can know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

from pydantic import ValidationError

from spotkeep_jobs.document import capacity, command, fleet, image, metrics, queue, secrets, source, spending, times
from spotkeep_jobs.document.deployment_facts import NO_DEFAULTS, DeploymentDefaults
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES, FRAMEWORK_IMAGES
from spotkeep_jobs.document.image import aws_image, default_image_for, saves_checkpoints
from spotkeep_jobs.document.reading import (
    INTO_A_FILE,
    Rule,
    Wording,
    more_than_fit,
    nearest,
    outlined,
    printable_name,
    problems_of,
    rule,
    shown,
    too_large,
    unknown_field,
)
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.spending import COST_READS, cost_problems
from spotkeep_jobs.document.times import (
    DAY_SECONDS,
    DEADLINE_READS,
    MAX_WAIT_SECONDS,
    NO_CHECKPOINTS_SPOT_SECONDS,
    deadline_can_be_kept,
)
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.bounds import MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES
from spotkeep_jobs.with_changes import with_changes


def with_defaults(request: JobRequest, *, given: set[Any], defaults: DeploymentDefaults) -> JobRequest:
    """Fill in defaults that depend on other fields or on the deployment, so that the record holds every decision."""
    on_ec2 = request.backend == "ec2"
    limit = defaults.max_run_limit_seconds
    default_types: tuple[str, ...] = (defaults.instance_type,) if defaults.instance_type else ()
    if on_ec2:
        default_types = defaults.fleet_instance_types or ()
    share = request.share
    if request.queue is not None and (queue := (defaults.queues or {}).get(request.queue)) is not None:
        share = share or (next(iter(queue.shares)) if len(queue.shares) == 1 else None)
        of_share = queue.shares[share].types if share in queue.shares else queue.types
        default_types = tuple(of_share) if len(of_share) == 1 else ()
    types = request.types or (default_types if request.ladder is None else ())
    max_run = request.max_run if "max_run" in given or limit is None else min(request.max_run, limit)
    max_wait = request.max_wait
    checkpoints = request.checkpoints
    if request.algorithm is not None and "checkpoints" not in given:
        checkpoints = saves_checkpoints(request.algorithm)
    # A ladder that is given is meant to be used: capacity need not say so. A deadline needs fallbacks.
    laddered = request.ladder is not None or (request.deadline is not None and not request.spot_only)
    capacity = "auto" if laddered and "capacity" not in given else request.capacity
    # A fleet on demand waits as one on spot does, and its instances bill while none of them trains.
    if max_wait is None and (capacity == "spot" or on_ec2):
        longest = MAX_WAIT_SECONDS if checkpoints or on_ec2 else NO_CHECKPOINTS_SPOT_SECONDS
        max_wait = min(max_run + DAY_SECONDS, longest)
    every_type = types or request.every_type
    image, framework, algorithm = request.image, request.framework, request.algorithm
    # The deployment's default image is for commands: no document asks for its entry point.
    if request.command is not None and image is None and framework is None and algorithm is None and not on_ec2:
        image = default_image_for(defaults.image, instance_types=every_type)
    if image is None and framework is not None and defaults.region is not None:
        image = aws_image(FRAMEWORK_IMAGES[framework], region=defaults.region, instance_types=every_type)
        framework = framework if image is None else None
    if image is None and algorithm is not None and defaults.region is not None and not on_ec2:
        image = aws_image(ALGORITHM_IMAGES[algorithm], region=defaults.region, instance_types=every_type)
    if not (request.instance_types and request.instance_type):
        request = with_changes(request, instance_types=types or None, instance_type=None)
    return with_changes(
        request,
        image=image,
        framework=framework,
        checkpoints=checkpoints,
        max_run=max_run,
        max_wait=max_wait,
        capacity=capacity,
        share=share,
    )


_OWN_TAGS: Final = {"sagemaker": 4, "ec2": 7}
"""Spotkeep's own tags, which are deployment, run, attempt and owner.

An instance has a Name besides, and may get the tag of a drill. The tags that EC2 itself adds begin with `aws:`, and AWS
does not count them.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html (Tag restrictions)
"""
_MAX_TAGS: Final = 50
_TEXTS: Final = (
    "hyperparameters",
    "environment",
    "secrets",
    "metrics",
    "command",
    "setup",
    "channels",
    "tags",
    "ladder",
)
"""The fields that can be long."""


@rule("backend", "tags")
def _tags_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    own = _OWN_TAGS[request.backend]
    yield from more_than_fit("tags", request.tags, limit=_MAX_TAGS, own=own, fix="Remove some.")


@rule("runs", *_TEXTS)
def _document_fits_its_record(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    most = min(MAX_DOCUMENT_BYTES, MAX_DOCUMENTS_BYTES // request.runs)
    yield from too_large(request.as_document(), most=most, record="a run's", fix=INTO_A_FILE)


@rule("team")
def _team_is_known(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.team is None or defaults.teams is None or request.team in defaults.teams:
        return
    yield Problem(
        field="team",
        found=shown(request.team),
        problem="has no role of its own in this deployment",
        fix=nearest(request.team, defaults.teams)
        if defaults.teams
        else "Remove team, or ask for it in the setting isolated_teams.",
    )


RULES: Final[tuple[Rule, ...]] = (
    *image.RULES,
    *capacity.RULES,
    *times.RULES,
    *spending.RULES,
    *source.RULES,
    *command.RULES,
    *metrics.RULES,
    *secrets.RULES,
    *fleet.RULES,
    *queue.RULES,
    _tags_fit,
    _team_is_known,
    _document_fits_its_record,
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
    "secret": "secrets",
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
    secret=("environment", "hyperparameters", "secret", "secrets"),
    other_names=_OTHER_NAMES,
    gone={"budget": "Write max_cost: it notifies at 80% as budget did, and ends the run when all is spent."},
)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The judgement of a document.

    Attributes:
        request: The request with every default filled in. None if it is refused.
        draft: The readable part of the document, with placeholders and defaults elsewhere. None if it is no object.
        problems: The reasons of a refusal. Empty if the document is not refused.
        warnings: Warnings of things that are allowed but probably not meant, in sentences.
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
        document: The document as it was sent, of any type.
        defaults: The values that the deployment fills in and insists on.
        now: The time of the launch, at which its deadline, its worst cost and the age of its image are judged. None for
            a document that was accepted before.
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
    for each in RULES:
        if unread.isdisjoint(each.reads):
            problems.extend(each.problems(request, defaults))
    if now is not None and unread.isdisjoint(DEADLINE_READS):
        problems.extend(deadline_can_be_kept(request, now=now))
    if now is not None and unread.isdisjoint(COST_READS):
        problems.extend(cost_problems(request, limits=defaults.limits, prices=defaults.prices, now=now))
    today = None if now is None else now.date()
    warnings = tuple(_warnings(request, defaults, today=today)) if not unread else ()
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


def _warnings(request: JobRequest, deployment: DeploymentDefaults, *, today: date | None) -> Iterator[str]:
    """Yield warnings of things that are allowed and probably not meant, in sentences."""
    yield from command.command_warnings(request)
    yield from times.time_warnings(request, deployment)
    yield from fleet.fleet_warnings(request)
    yield from queue.queue_warnings(request)
    yield from image.image_warnings(request, deployment, types=capacity.types_of(request), today=today)
    yield from spending.spending_warnings(request, deployment)
    yield from capacity.capacity_warnings(request)
