"""Validation of a job document: every problem at once, each with the field, what was found and what to do (I7).

The fields are read one by one by `request`; a rule between fields is judged when all the fields it is about could be
read. What a deployment adds (its image, its limits, its bucket) comes in as `DeploymentDefaults`. Pure: what only AWS
or the run table can know is checked by `launch`.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from spotkeep_jobs.decisions.ladder import first_job, price_of, rungs_of, shortest_job_seconds
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.request import (
    BACKENDS,
    DAY_SECONDS,
    EBS_LIMITS,
    GP3_IOPS_PER_THROUGHPUT,
    MAX_CHANNELS,
    MAX_ENVIRONMENT,
    MAX_FLEET_TYPES,
    MAX_HYPERPARAMETERS,
    MAX_INSTANCE_TYPES,
    MAX_RUN_ID_LENGTH,
    MAX_TAGS,
    MAX_WAIT_SECONDS,
    NO_CHECKPOINTS_SPOT_SECONDS,
    Channel,
    ChannelData,
    GitSource,
    JobRequest,
    RungRequest,
    VolumeRequest,
)
from spotkeep_jobs.errors import Problem, RequestRefusedError

MAX_PROBLEMS: Final = 200
DEFAULT_ACCOUNT_LIMIT_SECONDS: Final = 432_000
"""A new account's quota for the longest training job: 5 days."""
OWN_TAGS: Final = 4
OWN_VARIABLES: Final = 3

_PLACEHOLDERS: Final[Mapping[str, Any]] = {"name": "placeholder", "command": ["true"]}
_SECRET_FIELDS: Final = ("environment", "hyperparameters")
_LOOKS_SECRET: Final = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY)(_|$)", re.I
)
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
    "maxbudget": "budget",
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
NOT_ON_EC2: Final[Mapping[str, str]] = {
    "image": "Remove it: the instances' AMI is a setting of the deployment (instance_ami).",
    "instance_count": "Remove it: a run on EC2 has one instance. Launch several runs for independent trainings.",
    "volume_size_gb": "Write volume: {size_gb: ...}.",
    "ladder": "Remove it: a fleet chooses among all instance_types and zones by itself.",
    "longest_wait": "Remove it: max_wait bounds how long the run may take in all.",
    "spot_only": "Remove it: capacity: spot stays on spot.",
    "max_total_run": "Remove it: max_run bounds the training, over all instances.",
    "max_cost": "Remove it; max_price bounds what an hour may cost, max_run how many there are.",
    "deadline": "Remove it: runs on EC2 are not steered by a deadline.",
    "budget": "Remove it: runs on EC2 are not told of a budget.",
    "keep_alive": "Remove it: warm pools are SageMaker's.",
    "team": "Remove it: a role a team is for SageMaker jobs.",
}
"""Fields of a training job that a run on EC2 does not take, and what to do instead."""
ONLY_ON_EC2: Final[Mapping[str, str]] = dict.fromkeys(
    ("volume", "max_price", "rebalance"), "Add backend: ec2, or remove it."
)
_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = 80
_SHOWN.maxother = 80
_SHOWN.maxlevel = 2
_SHOWN.maxlist = _SHOWN.maxdict = 4


@dataclass(frozen=True, kw_only=True)
class DeploymentDefaults:
    """What a deployment fills in and insists on.

    Attributes:
        image: the container image of documents that name none.
        instance_type: the instance type of documents that name none.
        checkpoint_bucket: the bucket the execution role may write, under `runs/`.
        max_run_limit_seconds: the account's longest training job, where it is known.
        prices: on-demand US dollars per instance and hour, by instance type.
        max_keep_alive_seconds: the longest a warm pool may be kept, where the deployment says so.
        teams: the teams that have a role of their own; None where that is not known.
        fleet_instance_types: the EC2 types of documents that name none; None where the deployment has no fleets.
    """

    image: str | None = None
    instance_type: str | None = None
    checkpoint_bucket: str | None = None
    max_run_limit_seconds: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    max_keep_alive_seconds: int | None = None
    teams: tuple[str, ...] | None = None
    fleet_instance_types: tuple[str, ...] | None = None


NO_DEFAULTS: Final = DeploymentDefaults()


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
        """The request.

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
        now: when the run would be launched: a deadline is then judged. None for a document that was accepted before.
    """
    if not isinstance(document, Mapping):
        problem = Problem(
            field="(document)",
            found=shown(document),
            problem="is not a JSON object",
            fix='Send an object with at least `name` and `command`: {"name": "first", "command": "python train.py"}',
        )
        return Validation(request=None, draft=None, problems=(problem,), warnings=())
    request, problems, unread = _read(document)
    request = _with_defaults(request, given=document.keys() - unread, defaults=defaults)
    for reads, rule in _RULES:
        if unread.isdisjoint(reads):
            problems.extend(rule(request, defaults))
    if now is not None and unread.isdisjoint(_DEADLINE_READS):
        problems.extend(_deadline_can_be_kept(request, now=now))
    warnings = tuple(_warnings(request, defaults)) if not unread else ()
    if len(problems) > MAX_PROBLEMS:
        more = Problem(
            field="(document)",
            found=f"more than {MAX_PROBLEMS} problems",
            problem="has more problems than are shown",
            fix="Correct those above and validate again.",
        )
        problems = [*problems[:MAX_PROBLEMS], more]
    return Validation(request=None if problems else request, draft=request, problems=tuple(problems), warnings=warnings)


def shown(value: object) -> str:
    """A value as a problem shows it: short, printable, whatever it is."""
    try:
        text = _SHOWN.repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 160 else f"{text[:157]}..."


def nearest(word: object, known: Sequence[str]) -> str:
    """The fix for an unknown word: the known one that was probably meant, or all there are.

    Args:
        word: what was written, of any type.
        known: what could have been.
    """
    folded = {_folded(choice): choice for choice in known}
    near = difflib.get_close_matches(_folded(str(word)[:100]), folded, n=1, cutoff=0.6)
    return f"Did you mean `{folded[near[0]]}`?" if near else f"Known are: {', '.join(known)}."


def _folded(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "").replace(" ", "")


def _read(document: Mapping[Any, Any]) -> tuple[JobRequest, list[Problem], set[str]]:
    """Read every field that can be read.

    Returns:
        A request in which the fields that could not be read have placeholders or defaults, the problems, and the
        names of those fields.
    """
    known = JobRequest.model_fields
    unknown = [name for name in document if name not in known]
    # Unknown fields are named here: pydantic cannot say a name that is not valid Unicode.
    problems = [
        Problem(
            field=_printable(name),
            found=_outlined(document[name]),
            problem="is not a known field",
            fix=_nearest_field(name, known),
        )
        for name in unknown[: MAX_PROBLEMS + 1]
    ]
    fields = {name: document[name] for name in known if document.get(name) is not None}
    # Only one of the two is taken; of a word that is neither the types are judged by their own form.
    backend = fields.get("backend", "sagemaker")
    context = {"backend": backend if backend in BACKENDS else None}
    try:
        return JobRequest.model_validate(fields, context=context), problems, set()
    except ValidationError as error:
        problems = [*_problems(error, document), *problems]
        unread = {str(detail["loc"][0]) for detail in error.errors(include_url=False, include_context=False)}
    readable = {name: value for name, value in fields.items() if name not in unread}
    return JobRequest.model_validate({**_PLACEHOLDERS, **readable}, context=context), problems, unread


def _problems(error: ValidationError, document: Mapping[Any, Any]) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        location = list(detail["loc"])
        if location[:2] == ["source", "str"]:
            continue  # The other half of "text or a mapping": a mapping is judged as one.
        if location[:2] == ["source", "GitSource"]:
            del location[1]
        found = _found(location, detail["input"])
        known = _fields_at(location)
        field = _path(location, document)
        if detail["type"] == "spotkeep":
            context = detail.get("ctx", {})
            yield Problem(field=field, found=found, problem=context["problem"], fix=f"{context['fix'].rstrip('.')}.")
        elif detail["type"] == "missing":
            yield Problem(field=field, found="nothing", problem="is required", fix=_fix(location, missing=True))
        elif detail["type"] in {"extra_forbidden", "invalid_key"}:
            yield Problem(
                field=field, found=found, problem="is not a known field", fix=_nearest_field(location[-1], known)
            )
        else:
            yield Problem(field=field, found=found, problem=_lower(detail["msg"]), fix=_fix(location))


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _found(location: list[Any], value: object) -> str:
    """What was found; a value that may be a secret is described, not shown."""
    if location and location[0] in _SECRET_FIELDS and location[-1] != "[key]" and len(location) > 1:
        return (
            f"text of {len(value)} characters" if isinstance(value, str) else f"a value of type {type(value).__name__}"
        )
    if location and location[0] in _SECRET_FIELDS and len(location) == 1:
        return f"a value of type {type(value).__name__}"
    return shown(value)


def _outlined(value: object) -> str:
    """The value of an unknown field: what has parts may be a misspelled environment, so only their number is told."""
    if not isinstance(value, Mapping | list):
        return shown(value)
    kind = "an object" if isinstance(value, Mapping) else "a list"
    return f"{kind} of {len(value)} {'entry' if len(value) == 1 else 'entries'}"


def _path(location: list[Any], document: Mapping[Any, Any]) -> str:
    """The place of a problem as a person would write it."""
    parts = [part for part in location if part != "[key]"]
    written = _printable(parts[0]) if parts else "(document)"
    channels = document.get("channels")
    for depth, part in enumerate(parts[1:], start=1):
        if isinstance(part, int) and depth == 1 and parts[0] == "channels" and isinstance(channels, Mapping):
            names = list(channels)
            written += f".{_printable(names[part])}" if part < len(names) else f"[{part}]"
        elif isinstance(part, int):
            written += f"[{part}]"
        else:
            written += f".{_printable(part)}"
    return written


def _printable(part: object) -> str:
    text = str(part).encode("unicode_escape", "backslashreplace").decode("ascii") if part != "" else "''"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fields_at(location: list[Any]) -> Mapping[str, Any]:
    models: dict[Any, type[BaseModel]] = {
        "channels": Channel, "source": GitSource, "ladder": RungRequest, "volume": VolumeRequest
    }  # fmt: skip
    model = models.get(location[0], ChannelData) if len(location) > 1 else JobRequest
    return model.model_fields


def _nearest_field(name: object, known: Mapping[str, Any]) -> str:
    """The fix for an unknown field: the field that was probably meant."""
    other = _OTHER_NAMES.get(_folded(str(name)[:100]))
    return f"Did you mean `{other}`?" if other in known else nearest(name, tuple(known))


def _fix(location: list[Any], *, missing: bool = False) -> str:
    """The fix pydantic does not give: what the field is for, from its own description."""
    names = [part for part in location if isinstance(part, str) and part in _fields_at(location)]
    if not names:
        return "Write it as the documentation of the job file says."
    info = _fields_at(location)[names[-1]]
    example = repr(info.examples[0]) if info.examples else ""
    if missing:
        return f"Add it, for example {names[-1]}: {example}."
    return f"{info.description}{f' For example: {example}.' if example else ''}"


def _with_defaults(request: JobRequest, *, given: set[Any], defaults: DeploymentDefaults) -> JobRequest:
    """Fill in what depends on other fields or on the deployment, so that the record says all that was decided."""
    on_ec2 = request.backend == "ec2"
    limit = None if on_ec2 else defaults.max_run_limit_seconds
    default_types: tuple[str, ...] = (defaults.instance_type,) if defaults.instance_type else ()
    if on_ec2:
        default_types = defaults.fleet_instance_types or ()
    types = request.types or (default_types if request.ladder is None else ())
    max_run = request.max_run if "max_run" in given or limit is None else min(request.max_run, limit)
    max_wait = request.max_wait
    # A ladder says where to look; who writes one need not also say that it is to be used. A deadline needs one.
    laddered = request.ladder is not None or (request.deadline is not None and not request.spot_only)
    capacity = "auto" if laddered and "capacity" not in given else request.capacity
    if max_wait is None and capacity == "spot":
        longest = MAX_WAIT_SECONDS if request.checkpoints or on_ec2 else NO_CHECKPOINTS_SPOT_SECONDS
        max_wait = min(max_run + DAY_SECONDS, longest)
    update: dict[str, Any] = {
        "image": request.image or (None if on_ec2 else defaults.image),
        "max_run": max_run,
        "max_wait": max_wait,
        "capacity": capacity,
    }
    if not (request.instance_types and request.instance_type):
        update |= {"instance_types": types or None, "instance_type": None}
    return request.model_copy(update=update)


_Rule = Callable[[JobRequest, DeploymentDefaults], Iterator[Problem]]
_RULES: list[tuple[tuple[str, ...], _Rule]] = []


def _rule(*reads: str) -> Callable[[_Rule], _Rule]:
    """Register a rule between fields; it is judged when all of them could be read."""

    def register(rule: _Rule) -> _Rule:
        _RULES.append((reads, rule))
        return rule

    return register


@_rule("backend", "image")
def _image_is_known(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.image is None and request.backend == "sagemaker":
        yield Problem(
            field="image",
            found="nothing",
            problem="is required: this deployment has no default image",
            fix="Name a container image, or set `default_image` of the deployment.",
        )


@_rule("backend", "instance_types", "instance_type", "capacity", "ladder")
def _instance_types_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.instance_types and request.instance_type:
        yield Problem(
            field="instance_type",
            found=shown(request.instance_type),
            problem="is given together with instance_types",
            fix="Give one of the two.",
        )
        return
    types = request.types
    if request.ladder is not None:
        if types:
            yield Problem(
                field="instance_types",
                found=", ".join(types),
                problem="is given together with ladder, whose rungs name their own",
                fix="Move the types into the rungs, or remove ladder.",
            )
    elif not types:
        yield Problem(
            field="instance_types",
            found="nothing",
            problem="is required: this deployment has no default instance type",
            fix=f"Name at least one instance type, for example {_example_type(request)}.",
        )
    elif request.backend == "ec2":
        if len(types) > MAX_FLEET_TYPES:
            yield Problem(
                field="instance_types",
                found=f"{len(types)} types",
                problem=f"names more than {MAX_FLEET_TYPES} instance types",
                fix=f"Keep the best {MAX_FLEET_TYPES}.",
            )
    elif len(types) > MAX_INSTANCE_TYPES:
        yield Problem(
            field="instance_types",
            found=f"{len(types)} types",
            problem=f"names more than {MAX_INSTANCE_TYPES} instance types",
            fix=f"Keep the best {MAX_INSTANCE_TYPES}.",
        )
    elif len(types) > 1 and request.capacity == "spot":
        yield Problem(
            field="instance_types",
            found=", ".join(types),
            problem="names several instance types; managed spot takes one",
            fix=f"Choose capacity: auto, which tries one after the other, or keep one, for example {types[0]}.",
        )


@_rule("capacity", "ladder", "longest_wait")
def _ladder_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "auto":
        for name in ("ladder", "longest_wait"):
            if getattr(request, name) is not None:
                yield Problem(
                    field=name,
                    found=shown(request.capacity),
                    problem=f"is given with capacity: {request.capacity}, which looks in one place only",
                    fix=f"Choose capacity: auto, or remove {name}.",
                )
        return
    for number, rung in enumerate(request.ladder or ()):
        place = f"ladder[{number}]"
        if rung.instance_types and rung.instance_type:
            yield Problem(
                field=f"{place}.instance_type",
                found=shown(rung.instance_type),
                problem="is given together with instance_types",
                fix="Give one of the two.",
            )
        elif not rung.types:
            yield Problem(
                field=f"{place}.instance_types",
                found="nothing",
                problem="is required",
                fix="Name at least one instance type, for example ml.g5.xlarge.",
            )
        elif len(rung.types) > MAX_INSTANCE_TYPES:
            yield Problem(
                field=f"{place}.instance_types",
                found=f"{len(rung.types)} types",
                problem=f"names more than {MAX_INSTANCE_TYPES} instance types",
                fix=f"Keep the best {MAX_INSTANCE_TYPES}, or add a rung.",
            )


@_rule("capacity", "ladder", "spot_only")
def _spot_only_is_kept(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if not request.spot_only:
        return
    places = [f"ladder[{n}].capacity" for n, rung in enumerate(request.ladder or ()) if rung.capacity == "on-demand"]
    for place in ["capacity", *places] if request.capacity == "on-demand" else places:
        yield Problem(
            field=place,
            found="on-demand",
            problem="is on demand, and spot_only forbids that",
            fix="Make it spot, or remove spot_only.",
        )


@_rule("max_run", "max_total_run")
def _total_covers_a_job(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_total_run is not None and request.max_total_run < request.max_run:
        yield Problem(
            field="max_total_run",
            found=format_duration(request.max_total_run),
            problem=f"is below max_run ({format_duration(request.max_run)}), which is for one job",
            fix=f"Raise it to {format_duration(request.max_run)} or more, or lower max_run.",
        )


@_rule("checkpoints", "max_total_run", "max_run", "script_retries")
def _following_jobs_need_checkpoints(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if not request.checkpoints and (request.max_total_run or 0) > request.max_run:
        yield Problem(
            field="max_total_run",
            found=format_duration(request.max_total_run or 0),
            problem="is given with checkpoints: false: each job would start over and end at max_run again",
            fix="Let the script save checkpoints (checkpoints: true), or remove max_total_run.",
        )


@_rule("max_cost", "capacity", "ladder", "instance_types", "instance_type", "spot_only")
def _cost_can_be_counted(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_cost is None:
        return
    if unknown := _unpriced_types(request, defaults):
        yield Problem(
            field="max_cost",
            found=shown(request.max_cost),
            problem=f"cannot be kept: this deployment does not know the price of {', '.join(unknown)}",
            fix="Add the price to the setting `prices` of the deployment, or remove max_cost.",
        )
    elif request.types or request.ladder:
        seconds = first_job(request, prices=defaults.prices).max_run_seconds
        if seconds < shortest_job_seconds(request):
            yield Problem(
                field="max_cost",
                found=shown(request.max_cost),
                problem=f"pays for {seconds} s of the first job, which is not worth its start",
                fix="Raise it, or choose a cheaper instance type.",
            )


@_rule("budget", "capacity", "ladder", "instance_types", "instance_type", "spot_only")
def _budget_can_be_counted(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.budget is None:
        return
    if unknown := _unpriced_types(request, defaults):
        yield Problem(
            field="budget",
            found=shown(request.budget),
            problem=f"cannot be counted: this deployment does not know the price of {', '.join(unknown)}",
            fix="Add the price to the setting `prices` of the deployment, or remove budget.",
        )


def _unpriced_types(request: JobRequest, defaults: DeploymentDefaults) -> list[str]:
    types = {each for rung in rungs_of(request) for each in rung.instance_types}
    return sorted(each for each in types if price_of([each], prices=defaults.prices) is None)


@_rule("deadline", "capacity", "ladder", "spot_only", "checkpoints")
def _deadline_has_a_way_out(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.deadline is None:
        return
    if request.capacity == "spot" or request.spot_only:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="cannot be promised on spot alone: on-demand capacity takes over when time runs short",
            fix="Remove spot_only." if request.spot_only else "Choose capacity: auto, or leave capacity out.",
        )
    elif request.ladder is not None and request.ladder[-1].capacity != "on-demand":
        yield Problem(
            field=f"ladder[{len(request.ladder) - 1}].capacity",
            found=request.ladder[-1].capacity,
            problem="is the last rung of a run with a deadline, which must be on demand",
            fix="Add a rung with capacity: on-demand.",
        )
    if request.capacity == "auto" and not request.checkpoints:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="is given with checkpoints: false: what is done on spot could not be taken along on demand",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )


@_rule("work", "max_run", "max_total_run")
def _work_fits_its_limits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    allowed = request.max_total_run or request.max_run
    if request.work is not None and request.work > allowed:
        yield Problem(
            field="work",
            found=format_duration(request.work),
            problem=f"is above the {format_duration(allowed)} that the run may train "
            f"({'max_total_run' if request.max_total_run else 'max_run'})",
            fix=f"Raise that to more than {format_duration(request.work)}, or lower work.",
        )


_DEADLINE_READS: Final = ("deadline", "work", "restart", "max_run", "max_total_run")


def _deadline_can_be_kept(request: JobRequest, *, now: datetime) -> Iterator[Problem]:
    """On demand from the very start, with no interruption: what is earlier than that cannot be promised."""
    at = request.deadline_at(now)
    needed = request.seconds_on_demand
    if at is None or (at - now).total_seconds() >= needed:
        return
    work = "work" if request.work else "max_total_run" if request.max_total_run else "max_run"
    better = "" if request.work else f", or say how long the training really takes (work; now {work} is taken for it)"
    earliest = (now + timedelta(seconds=needed)).astimezone(UTC)
    yield Problem(
        field="deadline",
        found=_deadline_shown(request),
        problem=f"cannot be kept even on demand: {format_duration(request.work_seconds)} of work and "
        f"{format_duration(needed - request.work_seconds)} to start take {format_duration(needed)}",
        fix=f"Give {format_duration(needed)} or more (the earliest end is {earliest:%Y-%m-%d %H:%M} UTC){better}.",
    )


def _deadline_shown(request: JobRequest) -> str:
    if isinstance(request.deadline, int):
        return format_duration(request.deadline)
    return "nothing" if request.deadline is None else f"{request.deadline:%Y-%m-%d %H:%M} UTC"


@_rule("capacity", "keep_alive")
def _no_warm_pool_on_spot(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity != "on-demand" and request.keep_alive:
        yield Problem(
            field="keep_alive",
            found=format_duration(request.keep_alive),
            problem=f"is given with capacity: {request.capacity}; AWS keeps no warm pool for spot instances",
            fix="Either keep spot and remove keep_alive (cheaper), or keep keep_alive and choose capacity: on-demand "
            "(the next job starts faster).",
        )


@_rule("keep_alive")
def _pool_within_the_limit(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    longest = defaults.max_keep_alive_seconds
    if longest is not None and request.keep_alive > longest:
        yield Problem(
            field="keep_alive",
            found=format_duration(request.keep_alive),
            problem=f"is longer than this deployment keeps a warm pool ({format_duration(longest)})",
            fix=f"Give {format_duration(longest)} at most, or ask for a higher max_keep_alive_seconds."
            if longest
            else "Remove keep_alive, or ask for a higher max_keep_alive_seconds.",
        )


@_rule("team")
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


@_rule("capacity", "max_wait")
def _no_wait_on_demand(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity == "on-demand" and request.max_wait is not None:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem="is given without spot; only a spot job waits for capacity",
            fix="Remove max_wait, or choose capacity: spot.",
        )
    if request.capacity == "auto" and request.max_wait is not None:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem="is given with a capacity ladder, where each rung has a longest wait of its own",
            fix="Give longest_wait instead: how long to wait for capacity before the next rung.",
        )


@_rule("backend", "capacity", "max_run", "max_wait", "checkpoints")
def _wait_exceeds_run(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.capacity == "auto" and not request.checkpoints and request.max_run >= NO_CHECKPOINTS_SPOT_SECONDS:
        yield Problem(
            field="max_run",
            found=format_duration(request.max_run),
            problem="is too long for spot without checkpoints: an interruption would start over, and AWS allows one "
            "hour in all, waiting included",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )
    if request.capacity != "spot" or request.max_wait is None:
        return
    bounded = request.backend == "sagemaker" and not request.checkpoints
    if bounded and max(request.max_run + 1, request.max_wait) > NO_CHECKPOINTS_SPOT_SECONDS:
        over = "max_run" if request.max_run >= NO_CHECKPOINTS_SPOT_SECONDS else "max_wait"
        seconds = request.max_run if over == "max_run" else request.max_wait
        yield Problem(
            field=over,
            found=format_duration(seconds),
            problem="is too long for spot without checkpoints: an interruption would start over, and AWS allows one "
            "hour in all, waiting included",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand, or keep max_run "
            "below max_wait and max_wait within 1h.",
        )
    elif request.max_wait <= request.max_run:
        yield Problem(
            field="max_wait",
            found=format_duration(request.max_wait),
            problem=f"is not above max_run ({format_duration(request.max_run)}); it covers waiting and running",
            fix=f"Raise it above {format_duration(request.max_run)}, for example to "
            f"{format_duration(min(request.max_run + DAY_SECONDS, MAX_WAIT_SECONDS))}, or lower max_run.",
        )


@_rule("max_run")
def _run_within_account_limit(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    limit = defaults.max_run_limit_seconds
    if limit is not None and request.max_run > limit:
        yield Problem(
            field="max_run",
            found=format_duration(request.max_run),
            problem=f"is above this deployment's limit of {format_duration(limit)}",
            fix=f"Lower it to {format_duration(limit)} and resume the run, or have the limit raised.",
        )


@_rule("channels", "source")
def _channels_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    names = [channel.name for channel in request.channels]
    for name in sorted({name for name in names if names.count(name) > 1}) if len(names) <= MAX_CHANNELS else ():
        yield Problem(
            field="channels", found=shown(name), problem="is the name of more than one channel", fix="Rename one."
        )
    own = 2 if isinstance(request.source, str) else 1
    if len(names) > MAX_CHANNELS - own:
        yield Problem(
            field="channels",
            found=f"{len(names)} channels",
            problem=f"names more channels than the {MAX_CHANNELS - own} that AWS leaves beside Spotkeep's {own}",
            fix="Put data under a common prefix and use one channel for it.",
        )


@_rule("hyperparameters")
def _hyperparameters_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if len(request.hyperparameters) > MAX_HYPERPARAMETERS:
        yield Problem(
            field="hyperparameters",
            found=f"{len(request.hyperparameters)} hyperparameters",
            problem=f"holds more than {MAX_HYPERPARAMETERS}",
            fix="Put the rest into a file of the source or a channel.",
        )


@_rule("environment", "source")
def _environment_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    own = OWN_VARIABLES + (2 if isinstance(request.source, GitSource) else 0)
    if len(request.environment) > MAX_ENVIRONMENT - own:
        yield Problem(
            field="environment",
            found=f"{len(request.environment)} variables",
            problem=f"holds more variables than the {MAX_ENVIRONMENT - own} that AWS leaves beside Spotkeep's {own}",
            fix="Put the rest into a file of the source or a channel.",
        )


@_rule("tags")
def _tags_fit(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if len(request.tags) > MAX_TAGS - OWN_TAGS:
        yield Problem(
            field="tags",
            found=f"{len(request.tags)} tags",
            problem=f"holds more tags than the {MAX_TAGS - OWN_TAGS} that AWS leaves beside Spotkeep's {OWN_TAGS}",
            fix="Remove some.",
        )


@_rule("checkpoints", "checkpoint_prefix")
def _prefix_needs_checkpoints(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.checkpoint_prefix is not None and not request.checkpoints:
        yield Problem(
            field="checkpoint_prefix",
            found=shown(request.checkpoint_prefix),
            problem="is given with checkpoints: false",
            fix="Remove checkpoint_prefix, or set checkpoints: true.",
        )


@_rule("checkpoint_prefix")
def _prefix_is_a_lineage(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """Inside the deployment's bucket prefixes have one shape, so that none lies inside another (I1)."""
    runs = f"s3://{defaults.checkpoint_bucket}/"
    prefix = request.checkpoint_prefix
    if prefix is None or not prefix.startswith(runs):
        return
    shape = rf"runs/[a-zA-Z0-9][a-zA-Z0-9-]{{0,{MAX_RUN_ID_LENGTH - 1}}}/checkpoints/"
    if not re.fullmatch(shape, prefix.removeprefix(runs), re.ASCII):
        yield Problem(
            field="checkpoint_prefix",
            found=shown(prefix),
            problem="is not where runs keep their checkpoints in this deployment's bucket",
            fix=f"Give {runs}runs/<run>/checkpoints/, or leave it out for one of the run's own.",
        )


@_rule("backend", *NOT_ON_EC2, *ONLY_ON_EC2)
def _fields_are_of_the_backend(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    """A recorded request names every field, so what has its default counts as not given."""
    on_ec2 = request.backend == "ec2"
    if on_ec2 and defaults.fleet_instance_types is None and defaults is not NO_DEFAULTS:
        yield Problem(
            field="backend",
            found="ec2",
            problem="needs EC2 fleets, and this deployment has none",
            fix="Set ec2_fleets and deploy again, or launch it on SageMaker: remove backend.",
        )
    foreign: Mapping[str, str] = NOT_ON_EC2 if on_ec2 else ONLY_ON_EC2
    for name, fix in foreign.items():
        value = getattr(request, name)
        if value != JobRequest.model_fields[name].get_default(call_default_factory=True):
            yield Problem(
                field=name,
                found=shown(value) if not isinstance(value, BaseModel | tuple) else _outlined(_listed_or_mapped(value)),
                problem=f"is not taken with backend: {request.backend}",
                fix=fix,
            )
    if on_ec2 and request.capacity == "auto" and request.ladder is None:
        yield Problem(
            field="capacity",
            found="auto",
            problem="is SageMaker's ladder of one type after the other",
            fix="Choose capacity: spot, where a fleet chooses among all types and zones by itself, or on-demand.",
        )
    if on_ec2:
        for channel in request.channels:
            if channel.input_mode != "File":
                yield Problem(
                    field=f"channels.{channel.name}.input_mode",
                    found=channel.input_mode,
                    problem="is SageMaker's: an instance copies its channels to the volume, once",
                    fix="Use File, or read the objects in the script.",
                )


def _listed_or_mapped(value: object) -> object:
    return dict(value) if isinstance(value, BaseModel) else list(value) if isinstance(value, tuple) else value


@_rule("backend", "volume")
def _volume_fits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    volume = request.volume
    if request.backend != "ec2" or volume is None:
        return
    limits = EBS_LIMITS[volume.type]
    low, high = limits.size_gb
    if not low <= volume.size_gb <= high:
        yield Problem(
            field="volume.size_gb",
            found=str(volume.size_gb),
            problem=f"is not a size of {volume.type}, which has {low:,} to {high:,} GiB",
            fix=f"Choose {low:,} to {high:,}, or another type.",
        )
    yield from _provisioned_speed_fits(volume)
    if volume.snapshot and volume.volume:
        yield Problem(
            field="volume.snapshot",
            found=volume.snapshot,
            problem="is given together with a volume to begin on",
            fix="Give one of the two.",
        )
    if volume.volume and volume.when_done == "delete":
        yield Problem(
            field="volume.when_done",
            found="delete",
            problem="is given with a volume of your own, which Spotkeep never deletes",
            fix="Remove when_done, and delete the volume yourself when you are done.",
        )


def _example_type(request: JobRequest) -> str:
    return "g5.xlarge" if request.backend == "ec2" else "ml.g5.xlarge"


def _ec2_warnings(request: JobRequest) -> Iterator[str]:
    if not request.checkpoints:
        yield (
            "checkpoints: false keeps nothing in S3: what the script saves is on the volume alone, and is lost with it."
        )
    if request.capacity == "spot" and len(request.types) == 1:
        yield (
            f"one instance type ({request.types[0]}) is one pool a zone: name several types, and a fleet finds "
            "capacity sooner and loses it less often."
        )
    if request.volume is not None and request.volume.initialization_rate is None and request.volume.size_gb > 200:
        yield (
            f"volume.initialization_rate is not given: after a move to another zone, {request.volume.size_gb:,} GiB "
            "are fetched block by block as they are read, which is slow."
        )


def _provisioned_speed_fits(volume: VolumeRequest) -> Iterator[Problem]:
    limits = EBS_LIMITS[volume.type]
    if volume.iops is None and limits.iops is not None and volume.type != "gp3":
        yield Problem(
            field="volume.iops",
            found="nothing",
            problem=f"is required: {volume.type} is provisioned",
            fix=f"Give {limits.iops[0]:,} to {limits.iops[1]:,}, or choose gp3.",
        )
    elif volume.iops is not None and limits.iops is None:
        yield Problem(
            field="volume.iops",
            found=str(volume.iops),
            problem=f"cannot be provisioned of {volume.type}",
            fix="Remove it, or choose gp3 or io2.",
        )
    elif volume.iops is not None and limits.iops is not None:
        low, high = limits.iops[0], min(limits.iops[1], max(limits.iops[0], limits.iops_per_gb * volume.size_gb))
        if not low <= volume.iops <= high:
            yield Problem(
                field="volume.iops",
                found=str(volume.iops),
                problem=f"is not what {volume.type} of {volume.size_gb:,} GiB takes: {low:,} to {high:,}",
                fix=f"Choose {low:,} to {high:,}.",
            )
    if volume.throughput is not None and volume.type != "gp3":
        yield Problem(
            field="volume.throughput",
            found=str(volume.throughput),
            problem=f"cannot be provisioned of {volume.type}",
            fix="Remove it, or choose gp3.",
        )
    elif volume.throughput is not None:
        most = (volume.iops or 3_000) // GP3_IOPS_PER_THROUGHPUT
        if volume.throughput > most:
            yield Problem(
                field="volume.throughput",
                found=str(volume.throughput),
                problem=f"asks for more than the {most:,} MiB/s that {volume.iops or 3_000:,} IOPS allow",
                fix=f"Raise volume.iops to {volume.throughput * GP3_IOPS_PER_THROUGHPUT:,}, or lower it to {most:,}.",
            )


def _warnings(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[str]:
    bucket = defaults.checkpoint_bucket
    prefix = request.checkpoint_prefix
    if prefix is not None and bucket is not None and not prefix.startswith(f"s3://{bucket}/"):
        yield (
            f"checkpoint_prefix {prefix} is outside this deployment's bucket: the execution role can write there only "
            "if somebody allowed it."
        )
    if request.max_run > DEFAULT_ACCOUNT_LIMIT_SECONDS and defaults.max_run_limit_seconds is None:
        yield (
            f"max_run {format_duration(request.max_run)} is above the {format_duration(DEFAULT_ACCOUNT_LIMIT_SECONDS)} "
            "that AWS allows a new account; SageMaker refuses the job unless that quota was raised."
        )
    secrets = sorted(name for name in request.environment if _LOOKS_SECRET.search(name))
    if secrets:
        yield (
            f"environment {', '.join(secrets)} looks like a secret; whoever may describe the job can read it. "
            "Read secrets in the script from AWS Secrets Manager."
        )
    if request.capacity == "on-demand" and request.keep_alive:
        yield (
            f"keep_alive {format_duration(request.keep_alive)} is billed after the job ends, and a new account's "
            "warm-pool quota is 0: the job then runs and no pool is kept."
        )
        if len(request.types) > 1:
            yield (
                "keep_alive with several instance types: AWS does not say whether such a job takes a warm pool. Name "
                "the one type whose pools it shall take and leave."
            )
    if request.backend == "ec2":
        yield from _ec2_warnings(request)
    if (
        request.image is not None
        and ".dkr.ecr." not in request.image
        and not request.image.startswith("public.ecr.aws/")
    ):
        yield f"image {request.image} is not in Amazon ECR; SageMaker pulls from other registries only inside a VPC."
    price = price_of([each for rung in rungs_of(request) for each in rung.instance_types], prices=defaults.prices)
    if price is not None:
        on_demand_usd = request.seconds_on_demand / 3_600 * price * request.instance_count
        if request.deadline is not None and request.max_cost is not None and request.max_cost < on_demand_usd:
            yield (
                f"max_cost {request.max_cost:.2f} USD may end the run before its deadline is kept: all of its work on "
                f"demand would cost {on_demand_usd:.2f} USD."
            )
        if request.capacity == "on-demand" and request.budget is not None and request.budget < on_demand_usd:
            yield (
                f"budget {request.budget:.2f} USD is below what the work costs on demand, which is "
                f"{on_demand_usd:.2f} USD."
            )
    if request.capacity != "on-demand" and not request.checkpoints and request.backend == "sagemaker":
        yield "spot without checkpoints starts over after an interruption."
