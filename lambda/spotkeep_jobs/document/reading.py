"""What can be read of a job document, field by field; of the rest, every problem in words (I7).

Unknown fields, wrong types and impossible values are told with the field, what was found and what to do; a value that
may be a secret is described, not shown. Nothing here knows a deployment, or a rule between fields.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from spotkeep_jobs.document.limits import BACKENDS
from spotkeep_jobs.document.request import (
    ArchiveSource,
    Channel,
    ChannelData,
    FallbackRequest,
    GitSource,
    JobRequest,
    VolumeRequest,
)
from spotkeep_jobs.errors import Problem

MAX_PROBLEMS: Final = 200
_PLACEHOLDERS: Final[Mapping[str, Any]] = {"name": "placeholder", "command": ["true"]}
_SECRET_FIELDS: Final = ("environment", "hyperparameters")


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


_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = 80
_SHOWN.maxother = 80
_SHOWN.maxlevel = 2
_SHOWN.maxlist = _SHOWN.maxdict = 4


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
        Problem(
            field=_printable(name),
            found=outlined(document[name]),
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
        if location[0] == "source" and len(location) > 1:
            if location[1] != _source_meant(document.get("source")).__name__:
                continue  # The other half of "an archive or a repository".
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


def _source_meant(source: object) -> type[ArchiveSource | GitSource]:
    """As which of the two a mapping is judged."""
    archive = isinstance(source, Mapping) and not {"uri", "sha256"}.isdisjoint(source) and "git" not in source
    return ArchiveSource if archive else GitSource


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


def outlined(value: object) -> str:
    """A value of which only the number of parts is told: it may be a misspelled environment."""
    if not isinstance(value, Mapping | BaseModel | list | tuple):
        return shown(value)
    if isinstance(value, BaseModel):
        value = dict(value)
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
        "channels": Channel, "ladder": FallbackRequest, "volume": VolumeRequest
    }  # fmt: skip
    if location[0] == "source" and len(location) > 1:
        return {**GitSource.model_fields, **ArchiveSource.model_fields}
    model = models.get(location[0], ChannelData) if len(location) > 1 else JobRequest
    return model.model_fields


def _nearest_field(name: object, known: Mapping[str, Any]) -> str:
    """The fix for an unknown field: the field that was probably meant."""
    if name == "budget" and "max_cost" in known:
        return "Write max_cost: it notifies at 80% as budget did, and ends the run when all is spent."
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
