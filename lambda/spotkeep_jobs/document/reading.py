"""The reading of values of a job document, the wording of problems in it, and the form of a rule.

The settings of a deployment use the same wording. Every problem names the field, its value and the remedy (I7). A value
that may be a secret is described, not shown. Where an error of pydantic has no remedy, the remedy is the field's own
description and example.

Each `read_...` takes one value, of any type, and gives it as the request keeps it. A reader refuses in words (`wrong`).
A text that stays as it is is a type with its rules (`must`).
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import itertools
import json
import math
import re
import reprlib
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from spotkeep_fleet.secret_references import read_reference
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults
    from spotkeep_jobs.document.request import JobRequest

MAX_RUN_ID_LENGTH: Final = 52
RUN_ID_HEX_DIGITS: Final = 8
MAX_WORD: Final = 256
"""The most characters of a word of a command, and of a requirement."""
MAX_VARIABLE: Final = 512
HYPHENATED: Final = r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"
_BUCKET: Final = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
LINE_ENDS: Final = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_BIG_BITS: Final = 4_096
_RESERVED_TAG_PREFIXES: Final = ("aws:", "spotkeep:")


def wrong(problem: str, fix: str) -> PydanticCustomError:
    """Return an error that carries the words of a `Problem`."""
    return PydanticCustomError("spotkeep", "{problem}. {fix}", {"problem": problem, "fix": fix})


def read_text(value: object) -> str:
    """Text that is valid Unicode."""
    if not isinstance(value, str):
        raise wrong("is not text", "Write it as text, in quotes if it looks like a number")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong("is not valid Unicode text", "Remove the broken character") from None
    return value


Text = Annotated[str, Strict()]
"""Text with a length or a pattern. Pydantic then refuses text that is not valid Unicode as well."""
ShortName = Annotated[Text, Field(pattern="^[a-z][a-z0-9-]{0,19}$")]
AnyText = Annotated[str, BeforeValidator(read_text)]
WholeNumber = Annotated[int, Strict()]


def must(hold: Callable[[str], object], problem: str, fix: str) -> AfterValidator:
    """Return a validator that refuses a text in these words where a condition does not hold.

    Args:
        hold: Says whether the condition holds.
        problem: The fault where it does not.
        fix: The remedy.
    """

    def judged(text: str) -> str:
        if not hold(text):
            raise wrong(problem, fix)
        return text

    return AfterValidator(judged)


def written(pattern: str) -> Callable[[str], object]:
    """Return the match of a whole text with a pattern, for `must`."""
    return re.compile(pattern, re.ASCII).fullmatch


def single_line(text: str, *, longest: int, what: str) -> str:
    """Return a text that is one line and not too long.

    Args:
        text: The text.
        longest: Its most characters.
        what: The reader of a file that may hold a longer one, such as `the script`.
    """
    if len(text) > longest:
        raise wrong(
            f"has {len(text)} characters; SageMaker takes {longest}",
            f"Shorten it, or put it into a file of the source or a channel and give {what} its path",
        )
    if "\0" in text or LINE_ENDS & set(text):
        raise wrong("holds a line break or a NUL character", "Write it in one line, or put it into a file")
    return text


def scalar_text(value: object) -> str:
    """Return a number or a boolean as JSON writes it, since hyperparameters and variables are text to SageMaker."""
    if isinstance(value, str):
        return read_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        # JSON's reader makes it of 12e4567, which may be a commit.
        raise wrong("is larger than any number, or none", "Write it as text, in quotes")
    if isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < _BIG_BITS):
        return json.dumps(value)
    if value is None:
        raise wrong("has no value", "Give it a value, in quotes if the text null or ~ is meant, or remove it")
    if isinstance(value, int):
        raise wrong("is too large a number", "Shorten it to 256 digits")
    raise wrong("is not text, a number or a boolean", "Write it as one text, for example as JSON in quotes")


TEXTS_SCHEMA: Final = WithJsonSchema(
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}, mode="validation"
)


def read_list(value: object) -> object:
    """Return a list. One text is a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise wrong("is not a list", "Write a list, even of one")


def each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a value that is named twice."""
    repeated = sorted(value for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise wrong(f"names {', '.join(repeated)} more than once", "Name each once")
    return values


def read_s3_uri(value: object) -> str:
    """Return the S3 URI of a bucket, a prefix or an object."""
    text = read_text(value)
    if not text.startswith("s3://"):
        raise wrong("is not an S3 URI", "Give it as s3://<bucket>/<key>")
    if len(text) > 1_024:
        raise wrong(f"has {len(text)} characters; SageMaker takes 1,024", "Use a shorter key")
    bucket, _, key = text.removeprefix("s3://").partition("/")
    if not re.fullmatch(_BUCKET, bucket, re.ASCII) or ".." in bucket:
        raise wrong(
            "does not name a bucket: 3 to 63 lower-case letters, digits, dots and hyphens",
            "Give it as s3://<bucket>/<key>",
        )
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in key):
        raise wrong("holds a control character", "Remove it from the key")
    return text


def read_secret(value: object) -> str:
    """Return a reference to a secret."""
    text = read_text(value)
    if read_reference(text) is None:
        raise wrong(
            "is neither the name nor the whole ARN of a secret in AWS Secrets Manager",
            "Give the name, or the ARN that create-secret answers, and :<key>:: behind it for one key of a JSON secret",
        )
    return text


SecretText = Annotated[
    str,
    BeforeValidator(read_secret),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 1024}, mode="validation"),
]
S3_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": "^s3://", "maxLength": 1024}, mode="validation")
S3Uri = Annotated[str, BeforeValidator(read_s3_uri), S3_SCHEMA]


def without_credentials(fix: str) -> AfterValidator:
    """Return a validator that refuses a URL with a user name or password.

    Args:
        fix: The remedy.
    """
    return must(
        lambda text: not re.match(r"https?://[^/@]*@", text),
        "holds a user name or password, which everyone who may describe the job could read",
        fix,
    )


def _is_tag_text(text: str) -> bool:
    return all(character in "_.:/=+-@" or unicodedata.category(character)[0] in "LNZ" for character in text)


TagKey = Annotated[
    AnyText,
    must(
        lambda text: 1 <= len(text) <= 128 and _is_tag_text(text),
        "is not a tag key: 1 to 128 letters, digits, spaces and _ . : / = + - @",
        "Rename the tag",
    ),
    must(
        lambda text: not text.lower().startswith(_RESERVED_TAG_PREFIXES),
        f"starts with {' or '.join(_RESERVED_TAG_PREFIXES)}, which are reserved",
        "Rename the tag",
    ),
]
Owner = Annotated[
    AnyText,
    must(
        lambda text: text.strip() and len(text) <= 128 and _is_tag_text(text),
        "is not an owner: 1 to 128 letters, digits, spaces and _ . : / = + - @",
        "Give a name or an e-mail address",
    ),
]


def read_tag_value(value: object) -> str:
    """Return the value of an AWS tag."""
    text = scalar_text(value)
    if len(text) > 256 or not _is_tag_text(text):
        raise wrong(
            "is not a tag value: at most 256 letters, digits, spaces and _ . : / = + - @", "Change the value"
        )  # fmt: skip
    return text


def _describe_properties(schema: dict[str, Any], model: type[BaseModel]) -> None:
    for name, described in described_fields(model).items():
        if described.description is not None:
            schema["properties"][name]["description"] = described.description


class DocumentModel(BaseModel):
    """A part of a document. It refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_describe_properties)


def described_fields(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the fields of a model by name, those of a `DocumentModel` with the docstrings below them.

    Args:
        model: Any model.
    """
    return _with_docstrings(model) if issubclass(model, DocumentModel) else model.model_fields


@functools.cache
def _with_docstrings(model: type[DocumentModel]) -> Mapping[str, FieldInfo]:
    fields = {name: copy(field) for name, field in model.model_fields.items()}
    for each in reversed(model.__mro__):
        if issubclass(each, DocumentModel):
            for name, docstring in _docstrings_of(each.__module__).get(each.__name__, {}).items():
                fields[name].description = fields[name].description or docstring
    return fields


@functools.cache
def _docstrings_of(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings below the fields of a module's classes, by class and field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    found: dict[str, dict[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            of_class = found.setdefault(statement.name, {})
            for field, below in itertools.pairwise(statement.body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        of_class[name] = inspect.cleandoc(text)
    return found


_SIZE: Final = re.compile(r"(\d{1,9})\s*(g|gb|gib|t|tb|tib)", re.IGNORECASE | re.ASCII)
_KEY: Final = "[key]"
"""Pydantic writes this behind the key of a mapping that is wrong itself."""
_SHOWN: Final = reprlib.Repr()
_SHOWN.maxstring = 80
_SHOWN.maxother = 80
_SHOWN.maxlevel = 2
_SHOWN.maxlist = _SHOWN.maxdict = 4


def shown(value: object) -> str:
    """Return any value as a problem shows it, short and printable."""
    try:
        text = _SHOWN.repr(value)
    except (ValueError, RecursionError):
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= 160 else f"{text[:157]}..."


def json_bytes(document: object) -> int:
    """Return how many bytes a document has as JSON, in which it is recorded."""
    return len(json.dumps(document, default=str))


def too_large(document: Mapping[str, Any], *, most: int, record: str, fix: str) -> Iterator[Problem]:
    """Say that a document is larger than a record takes, and name the largest field.

    Args:
        document: The document.
        most: The most bytes that fit, as JSON.
        record: The record's owner, in words. Example: `a run's`.
        fix: The remedy.
    """
    size = json_bytes(document)
    if size <= most:
        return
    field, value = _largest(document)
    if field == "sweep" and isinstance(value, Mapping):
        inner, value = _largest(value)
        field = f"sweep.{inner}"
    yield Problem(
        field=field,
        found=f"{json_bytes(value):,} bytes as JSON",
        problem=f"makes the document too large: it has {size:,} bytes, and {record} record takes {most:,}",
        fix=fix,
    )


def _largest(document: Mapping[str, Any]) -> tuple[str, Any]:
    return max(document.items(), key=lambda item: json_bytes(item[1]))


def nearest(word: object, known: Sequence[str], *, listed_in: str | None = None) -> str:
    """Return the fix for an unknown word, which names the word that was probably meant, or all known ones.

    Args:
        word: The unknown word, of any type.
        known: The known words.
        listed_in: The page that lists them. Default: the fix does.
    """
    folded = {_folded(choice): choice for choice in known}
    near = difflib.get_close_matches(_folded(str(word)[:100]), folded, n=1, cutoff=0.6)
    if near:
        return f"Did you mean `{folded[near[0]]}`?"
    return f"Known are: {', '.join(known)}." if listed_in is None else f"{listed_in} lists those that there are."


def _folded(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "").replace(" ", "")


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The words about the fields of a document that their model does not have.

    Attributes:
        secret: Fields whose values are described, not shown, at the top of a document and inside of a field.
        other_names: The field that is meant by another name, which is written in small letters alone.
        inside: The text to write for a name that belongs into a field, with `{found}` for the value that was found.
        gone: Fields of earlier versions, and their remedies. Their values may be secret.
        listed_in: The page that lists the fields, for a field that is near none of them. Default: the fix lists them.
    """

    secret: Collection[str] = ()
    other_names: Mapping[str, str] = field(default_factory=dict)
    inside: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    listed_in: str | None = None


NO_WORDING: Final = Wording()


def problems_of(
    error: ValidationError, model: type[BaseModel], *, document: Mapping[Any, Any], wording: Wording = NO_WORDING
) -> list[Problem]:
    """Return all that pydantic refused, as problems in words.

    Args:
        error: The error of pydantic.
        model: The model that it validated against. Its descriptions and examples are the fixes.
        document: The document. A list that was written as a mapping is named by its keys.
        wording: The words about the model's fields.
    """
    return [_problem(detail, model, document=document, wording=wording) for detail in error.errors(include_url=False)]


def unknown_field(name: object, known: Mapping[str, Any], *, field: str, found: str, wording: Wording) -> Problem:
    """Return the problem of an unknown field, with the field that was probably meant.

    Args:
        name: The unknown field.
        known: The known fields.
        field: Its place in the document.
        found: Its value, as it may be shown.
        wording: The words about the model's fields.
    """
    if isinstance(name, str) and name in wording.gone:
        return Problem(field=field, found="a value", problem="is not a field any more", fix=wording.gone[name])
    folded = _folded(str(name)[:100])
    if folded in wording.inside:
        fix = f"Write {wording.inside[folded].format(found=found)}."
        return Problem(field=field, found=found, problem="is not a known field", fix=fix)
    other = wording.other_names.get(folded)
    fix = f"Did you mean `{other}`?" if other in known else nearest(name, tuple(known), listed_in=wording.listed_in)
    return Problem(field=field, found=found, problem="is not a known field", fix=fix)


def _problem(detail: Any, model: type[BaseModel], *, document: Mapping[Any, Any], wording: Wording) -> Problem:
    location, info, known = _resolved(detail["loc"], model)
    last = location[-1] if location else ""
    field, found = _path_of(location, document), _found(location, detail["input"], secret=wording.secret)
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in {"extra_forbidden", "invalid_key"}:
        wording = wording if len(location) == 1 else replace(wording, gone={}, inside={})
        return unknown_field(last, known, field=field, found=found, wording=wording)
    if kind == "missing":
        return Problem(field=field, found="nothing", problem="is required", fix=_example(info, last))
    if "problem" in context:
        return Problem(field=field, found=found, problem=context["problem"], fix=f"{context['fix'].rstrip('.')}.")
    problem, fix = _in_words(detail, info=info, in_gb=str(last).endswith("_gb"))
    return Problem(field=field, found=found, problem=problem or _lower(detail["msg"]), fix=fix or _description(info))


_COMMAND: Final = re.compile(r"(python\S*|torchrun|accelerate|deepspeed|bash|sh|pip|cd|\./\S+)\s")


def _in_words(detail: Any, *, info: FieldInfo | None, in_gb: bool) -> tuple[str, str]:
    """Return a problem and its fix. Both are empty where pydantic's words or the field's description are enough."""
    value, context, limits = detail["input"], detail.get("ctx", {}), _limits(info)
    match detail["type"]:
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"is out of range: {limits} {'are' if ' to ' in limits else 'is'} allowed", f"Choose {limits}."
        case "int_type" | "int_from_float" | "int_parsing" | "int_parsing_size":
            size = _SIZE.fullmatch(value.strip()) if in_gb and isinstance(value, str) else None
            if size is not None:
                number = int(size[1]) * (1_024 if size[2].lower().startswith("t") else 1)
                return "is text with a unit; the size is a number of GB", f"Write {number}."
            return "is not a whole number", f"Give a number{f' from {limits}' if limits else ''}, no unit."
        case "float_type" | "float_parsing" | "finite_number":
            return "is not a number", f"Give a number{f' ({limits})' if limits else ''}, no unit and no currency sign."
        case "model_type" | "model_attributes_type":
            return "is not an object", ""
        case "bool_type" | "bool_parsing":
            return "is neither true nor false", "Write true or false."
        case "literal_error" | "enum":
            return _another_word(value, str(context["expected"]))
        case "string_type":
            return "is not text", "Write it as text, in quotes if it looks like a number."
        case "string_unicode":
            return "is not valid Unicode text", "Remove the broken character."
        case "string_too_long" | "string_pattern_mismatch" if _COMMAND.match(str(value)):
            return "is a command, and this field takes a name", "Write it as `command`."
        case "string_too_long":
            most = context["max_length"]
            return f"has {len(value)} characters; {most} are allowed", f"Shorten it to {most} characters."
        case "string_pattern_mismatch":
            likely = re.sub(r"[^a-zA-Z0-9]+", "-", value[:200]).strip("-")
            hint = f"Write {likely}, for example. " if re.fullmatch(context["pattern"], likely) else ""
            return "is not written as it must be", f"{hint}{_description(info)}"
    return "", ""


def _another_word(value: object, expected: str) -> tuple[str, str]:
    words = re.findall(r"'([^']*)'", expected)
    likely = {_folded(word): word for word in words}.get(_folded(value)) if isinstance(value, str) else None
    if likely is not None:
        return f"is spelled differently from {likely!r}", f"Write {likely}."
    listed = expected.replace("'", "")
    return f"is not one of {listed}", f"Choose {listed}."


def _limits(info: FieldInfo | None) -> str:
    """Return the limits of a number, as `1 to 20`, or an empty text."""
    lowest = highest = ""
    for each in _metadata(info):
        match each:
            case Ge(ge=least):
                lowest = str(least)
            case Gt(gt=least):
                lowest = f"above {least}"
            case Le(le=most):
                highest = str(most)
            case Lt(lt=most):
                highest = f"below {most}"
    if lowest and highest:
        return f"{lowest} to {highest}"
    return highest or (lowest if lowest.startswith("above") else lowest and f"{lowest} or more")


def _metadata(info: FieldInfo | None) -> Iterator[object]:
    """Yield the annotations of a field's types, inside an optional one, too."""
    if info is None:
        return
    optional = (each for inner in get_args(info.annotation) for each in getattr(inner, "__metadata__", ()))
    for each in (*info.metadata, *optional):
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)


def _resolved(
    location: Sequence[Any], model: type[BaseModel]
) -> tuple[list[Any], FieldInfo | None, Mapping[str, FieldInfo]]:
    """Follow a place through the models.

    Returns:
        The place as the user knows it (pydantic adds the model that it chose of several), the
        innermost field of ours that it is in, and the fields that there are where it ends.
    """
    written: list[Any] = []
    models, info = [model], None
    known = described_fields(model)
    for part in location:
        if len(models) > 1 and part in {each.__name__ for each in models}:
            models = [each for each in models if each.__name__ == part]
            continue
        written.append(part)
        known = {name: field for each in models for name, field in described_fields(each).items()}
        if isinstance(part, str) and part in known:
            info = known[part]
            models = list(_models_in(info.annotation))
    return written, info, known


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for arg in get_args(annotation):
        yield from _models_in(arg)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _found(location: list[Any], value: object, *, secret: Collection[str]) -> str:
    """Return a value as a problem shows it. A value that may be a secret is described, not shown."""
    if not location or {location[0], location[-1]}.isdisjoint(secret) or (location[-1] == _KEY and len(location) > 1):
        return shown(value)
    if isinstance(value, str) and len(location) > 1:
        return f"text of {len(value)} characters"
    return f"a value of type {type(value).__name__}"


def outlined(value: object) -> str:
    """Return the number of parts of a value, since the value may be a misspelled environment."""
    if not isinstance(value, Mapping | BaseModel | list | tuple):
        return shown(value)
    if isinstance(value, BaseModel):
        value = dict(value)
    kind = "an object" if isinstance(value, Mapping) else "a list"
    return f"{kind} of {len(value)} {'entry' if len(value) == 1 else 'entries'}"


def _path_of(location: list[Any], document: Mapping[Any, Any]) -> str:
    """Return the place of a problem as a person would write it."""
    parts = [part for part in location if part != _KEY]
    written = printable_name(parts[0]) if parts else "(document)"
    channels = document.get("channels")
    for depth, part in enumerate(parts[1:], start=1):
        if isinstance(part, int) and depth == 1 and parts[0] == "channels" and isinstance(channels, Mapping):
            names = list(channels)
            written += f".{printable_name(names[part])}" if part < len(names) else f"[{part}]"
        elif isinstance(part, int):
            written += f"[{part}]"
        else:
            written += f".{printable_name(part)}"
    return written


def printable_name(part: object) -> str:
    """Return any name as a problem shows it, short and in ASCII."""
    text = str(part).encode("unicode_escape", "backslashreplace").decode("ascii") if part != "" else "''"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _example(info: FieldInfo | None, name: object) -> str:
    example = f", for example {name}: {info.examples[0]!r}" if info is not None and info.examples else ""
    return f"Add it{example}."


def _description(info: FieldInfo | None) -> str:
    """Return the field's description, as the fix that pydantic does not give."""
    if info is None or not info.description:
        return "Write it as the documentation says."
    shown_example = json.dumps if info.examples and isinstance(info.examples[0], Mapping) else repr
    example = f" For example: {shown_example(info.examples[0])}." if info.examples else ""
    return f"{' '.join(info.description.split()).rstrip('.')}.{example}"


_FIRST_FEW: Final = 3
"""The most addresses that a refusal names. A deployment may have fifty."""


def first_few(locations: Sequence[str]) -> str:
    """Return the first addresses of a list, and how many more there are."""
    more = len(locations) - _FIRST_FEW
    return ", ".join(locations[:_FIRST_FEW]) + (f" and {more} more" if more > 0 else "")


INTO_A_FILE: Final = "Put the rest into a file of the source or a channel."


def more_than_fit(
    field: str, given: Sized, *, limit: int, own: int = 0, named: str = "", fix: str
) -> Iterator[Problem]:
    """Yield a problem where more are given than AWS takes of a job, less Spotkeep's own."""
    if len(given) > limit - own:
        named = named or field
        yield Problem(
            field=field,
            found=f"{len(given)} {named}",
            problem=f"holds more {named} than the {limit - own} that AWS leaves beside Spotkeep's {own}"
            if own
            else f"holds more than {limit}",
            fix=fix,
        )


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule between fields.

    Attributes:
        reads: The fields that the rule reads. It is judged when all of them could be read.
        problems: Yields the problems of a request in a deployment.
    """

    reads: frozenset[str]
    problems: Callable[[JobRequest, DeploymentDefaults], Iterator[Problem]]


def rule(*reads: str) -> Callable[[Callable[[JobRequest, DeploymentDefaults], Iterator[Problem]]], Rule]:
    """Make a rule of a function that yields problems.

    Args:
        reads: The fields it is about.
    """
    return lambda problems: Rule(reads=frozenset(reads), problems=problems)


def excluded(
    field: str,
    *,
    where: Callable[[JobRequest], bool],
    reads: Sequence[str],
    problem: str,
    fix: str,
    as_found: Callable[[Any], str] = outlined,
) -> Rule:
    """Return the rule that a field may not be given where others exclude it.

    Args:
        field: The field, for which a default value counts as not given, since a request names all fields.
        where: Returns True if the others exclude it.
        reads: The others.
        problem: The fault. In it `{0.capacity}` stands for the request's value there.
        fix: The remedy.
        as_found: Shows the field's value.
    """

    def problems(request: JobRequest, _deployment: DeploymentDefaults) -> Iterator[Problem]:
        value = getattr(request, field)
        if value != type(request).model_fields[field].default and where(request):
            yield Problem(field=field, found=as_found(value), problem=problem.format(request), fix=fix)

    return Rule(reads=frozenset({field, *reads}), problems=problems)
