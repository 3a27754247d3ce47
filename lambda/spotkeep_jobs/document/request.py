"""The job document: what a user asks for, in `job.yaml` and in the launcher's payload alike.

The types here hold what one field alone can get wrong; `validation` adds the rules between fields and gathers every
problem. Limits are AWS's own where they are tighter than botocore's client-side ones.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html
    https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StoppingCondition.html
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from spotkeep_jobs.document.durations import FORMS, format_duration, parse_duration
from spotkeep_jobs.errors import DurationError
from spotkeep_jobs.facts.record import DEFAULT_NOTIFY
from spotkeep_jobs.facts.states import NoticeKind

DAY_SECONDS: Final = 86_400
DEFAULT_MAX_RUN_SECONDS: Final = DAY_SECONDS
MAX_RUN_SECONDS: Final = 28 * DAY_SECONDS
MAX_WAIT_SECONDS: Final = 30 * DAY_SECONDS
"""SageMaker ends any training job after 30 days in total, so a longer wait could never be used."""
MAX_KEEP_ALIVE_SECONDS: Final = 3_600
NO_CHECKPOINTS_SPOT_SECONDS: Final = 3_600
MAX_INSTANCES: Final = 20
MAX_INSTANCE_TYPES: Final = 5
MAX_FLEET_TYPES: Final = 40
BACKENDS: Final = ("sagemaker", "ec2")
MAX_RUNGS: Final = 10
MAX_ATTEMPTS: Final = 100
MAX_SCRIPT_RETRIES: Final = 10
DEFAULT_LONGEST_WAIT_SECONDS: Final = 3_600
SHORTEST_WAIT_SECONDS: Final = 300
"""The reconciler looks every five minutes: a shorter wait could not be kept."""
MAX_COST_USD: Final = 1_000_000
MAX_DEADLINE_SECONDS: Final = 365 * DAY_SECONDS
DEFAULT_RESTART_SECONDS: Final = 720
"""Start-up (AWS measures 2 to 3 minutes), the end of the job before, and the loading of a large checkpoint."""
MAX_RESTART_SECONDS: Final = DAY_SECONDS
MAX_VOLUME_GB: Final = 16_384
MAX_EBS_GB: Final = 65_536
DEFAULT_EBS_GB: Final = 100


class EbsLimits(NamedTuple):
    """What EBS takes of a volume type.

    Attributes:
        size_gb: Lowest and highest size, GiB.
        iops: Lowest and highest provisioned IOPS; None where there are none to provision.
        iops_per_gb: The most IOPS for each GiB.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateVolume.html
    """

    size_gb: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gb: int = 0


EBS_LIMITS: Final[Mapping[str, EbsLimits]] = {
    "gp3": EbsLimits((1, 65_536), (3_000, 80_000), 500),
    "gp2": EbsLimits((1, 16_384)),
    "io2": EbsLimits((4, 65_536), (100, 256_000), 1_000),
    "io1": EbsLimits((4, 16_384), (100, 64_000), 50),
    "st1": EbsLimits((125, 16_384)),
    "sc1": EbsLimits((125, 16_384)),
}
GP3_IOPS_PER_THROUGHPUT: Final = 4
"""Each MiB/s of gp3 beyond the first 125 asks for 4 IOPS: "Amazon EBS General Purpose SSD volumes"."""
MAX_HYPERPARAMETERS: Final = 100
MAX_ENVIRONMENT: Final = 100
MAX_CHANNELS: Final = 20
MAX_TAGS: Final = 50
MAX_COMMAND_WORDS: Final = 99
"""SageMaker takes 100 container arguments; the first one is the `--` in front of the command."""
MAX_RUN_ID_LENGTH: Final = 52
MAX_NAME_LENGTH: Final = 43
"""Leaves room for the `-` and 8 hex digits that make a run id of a name."""

_TEAM: Final = re.compile(r"[a-z][a-z0-9-]{0,19}", re.ASCII)

RESERVED_CHANNELS: Final = ("spotkeep", "source")
RESERVED_VARIABLES: Final = (
    "SPOTKEEP_RUN",
    "SPOTKEEP_ATTEMPT",
    "SPOTKEEP_LAUNCH",
    "SPOTKEEP_SOURCE_GIT_URL",
    "SPOTKEEP_SOURCE_GIT_COMMIT",
    "SPOTKEEP_CHECKPOINT_DIR",
    "SPOTKEEP_EVENTS",
    "SAGEMAKER_BASE_DIR",
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
)
RESERVED_VARIABLE_PREFIX: Final = "SM_"
RESERVED_TAG_PREFIXES: Final = ("aws:", "spotkeep:")

_HYPHENATED: Final = r"[a-zA-Z0-9](-*[a-zA-Z0-9])*"
_INSTANCE_TYPE: Final = r"ml\.[a-z][a-z0-9-]*\.[a-z0-9]+"
_EC2_TYPE: Final = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_VOLUME_ID: Final = r"vol-[0-9a-f]{8,17}"
_SNAPSHOT_ID: Final = r"snap-[0-9a-f]{8,17}"
_BUCKET: Final = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_ARCHIVES: Final = (".tar.gz", ".tgz", ".zip")
_LINE_ENDS: Final = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_SIZE: Final = re.compile(r"(\d{1,9})\s*(g|gb|gib|t|tb|tib)", re.IGNORECASE | re.ASCII)
_BIG_BITS: Final = 4_096
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONGEST_COMMAND: Final = MAX_COMMAND_WORDS * 260


def _wrong(problem: str, fix: str) -> PydanticCustomError:
    """An error that carries what `validation` needs for a `Problem`."""
    return PydanticCustomError("spotkeep", "{problem}. {fix}", {"problem": problem, "fix": fix})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _wrong("is not text", "Write it as text, in quotes if it looks like a number")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _wrong("is not valid Unicode text", "Remove the broken character") from None
    return value


def _name(*, what: str, longest: int) -> BeforeValidator:
    def check(value: object) -> str:
        text = _text(value)
        if not text:
            raise _wrong("is empty", f"Give {what} of letters, digits and single hyphens")
        if len(text) > longest:
            raise _wrong(f"has {len(text)} characters; {longest} are allowed", f"Shorten it to {longest} characters")
        if not re.fullmatch(_HYPHENATED, text, re.ASCII):
            likely = re.sub(r"[^a-zA-Z0-9]+", "-", text).strip("-")
            hint = f", for example {likely!r}" if likely else ""
            raise _wrong(
                "may hold letters, digits and hyphens only, and starts and ends with a letter or digit",
                f"Rename it{hint}",
            )
        return text

    return BeforeValidator(check)


def _duration(*, lowest: int, highest: int) -> BeforeValidator:
    return BeforeValidator(lambda value: _seconds(value, lowest=lowest, highest=highest))


def _seconds(value: object, *, lowest: int, highest: int) -> int:
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        raise _wrong(error.problem, error.fix) from None
    if not lowest <= seconds <= highest:
        shown = format_duration(seconds) if seconds <= 10 * MAX_WAIT_SECONDS else "far too long"
        raise _wrong(
            f"is out of range ({shown}): {format_duration(lowest)} to {format_duration(highest)} are allowed",
            f"Choose a duration from {format_duration(lowest)} to {format_duration(highest)}. {FORMS}",
        )
    return seconds


_SOME_TIME: Final = "2026-12-01T08:00:00Z"


def _deadline(value: object) -> int | datetime:
    """Seconds from the launch, or a time in UTC."""
    if isinstance(value, datetime):
        at = value
    elif isinstance(value, str) and _DATE.match(value.strip()):
        try:
            at = datetime.fromisoformat(value.strip())
        except ValueError:
            raise _wrong("is not a time", f"Write it as {_SOME_TIME}, or as a duration from the launch: 60h") from None
        if _DATE.fullmatch(value.strip()):
            raise _wrong("is a day without a time", f"Write {value.strip()}T08:00:00Z, for example")
    else:
        return _seconds(value, lowest=1, highest=MAX_DEADLINE_SECONDS)
    if at.tzinfo is None:
        raise _wrong("is a time without a time zone", f"Write Z for UTC ({_SOME_TIME}), or an offset such as +01:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise _wrong("is a time no calendar holds", f"Write a time such as {_SOME_TIME}") from None


def _whole(*, lowest: int, highest: int, unit: str) -> BeforeValidator:
    def check(value: object) -> int:
        if isinstance(value, str) and unit == "GB" and (match := _SIZE.fullmatch(value.strip())):
            size = int(match.group(1)) * (1_024 if match.group(2).lower().startswith("t") else 1)
            raise _wrong("is text with a unit; the size is a number of GB", f"Write {size}")
        if isinstance(value, bool) or not isinstance(value, int):
            raise _wrong(f"is not a whole number of {unit}", f"Give a number from {lowest} to {highest}, no unit")
        if not lowest <= value <= highest:
            raise _wrong(f"is out of range: {lowest} to {highest} {unit} are allowed", f"Choose {lowest} to {highest}")
        return value

    return BeforeValidator(check)


def _us_dollars(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong("is not a number of US dollars", "Give a number, no currency sign, for example 25 or 12.50")
    if not 0 < value <= MAX_COST_USD:
        raise _wrong(f"is out of range: above 0 to {MAX_COST_USD:,} US dollars are allowed", "Choose an amount in it")
    return float(value)


def _choice(*allowed: str) -> BeforeValidator:
    words = " or ".join([", ".join(allowed[:-1]), allowed[-1]])

    def check(value: object) -> object:
        if value in allowed:
            return value
        if isinstance(value, str):
            folded = {choice.lower().replace("-", ""): choice for choice in allowed}
            likely = folded.get(value.strip().lower().replace("-", "").replace("_", "").replace(" ", ""))
            if likely:
                raise _wrong(f"is spelled differently from {likely!r}", f"Write {likely}")
        raise _wrong(f"is not one of {words}", f"Choose {words}")

    return BeforeValidator(check)


def _single_line(text: str, *, longest: int, what: str) -> str:
    if len(text) > longest:
        raise _wrong(
            f"has {len(text)} characters; SageMaker takes {longest}",
            f"Shorten it, or put it into a file of the source or a channel and give {what} its path",
        )
    if "\0" in text or _LINE_ENDS & set(text):
        raise _wrong("holds a line break or a NUL character", "Write it in one line, or put it into a file")
    return text


def _scalar(value: object) -> str:
    """Numbers and booleans as JSON writes them: hyperparameters and variables are text to SageMaker."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool | float) or (isinstance(value, int) and value.bit_length() < _BIG_BITS):
        return json.dumps(value)
    if value is None:
        raise _wrong("has no value", "Give it a value, or remove it")
    if isinstance(value, int):
        raise _wrong("is too large a number", "Shorten it to 256 digits")
    raise _wrong("is not text, a number or a boolean", "Write it as one text, for example as JSON in quotes")


def _command(value: object) -> list[str]:
    if isinstance(value, str):
        if len(value) > _LONGEST_COMMAND:
            raise _wrong(f"has {len(value)} characters", "Put the work into a script of the source and call that")
        try:
            words: list[object] = list(shlex.split(_text(value)))
        except ValueError as error:
            raise _wrong(f"cannot be split into words ({error})", "Close the quote, or write a list") from None
    elif isinstance(value, list | tuple):
        words = list(value)
    else:
        raise _wrong("is neither text nor a list", 'Write it as text ("python train.py") or as a list of words')
    if not words or not words[0]:
        raise _wrong("is empty", 'Give the command that trains, for example "python train.py"')
    if len(words) > MAX_COMMAND_WORDS:
        raise _wrong(
            f"has {len(words)} words; SageMaker takes {MAX_COMMAND_WORDS} beside Spotkeep's own",
            "Put options into hyperparameters or into a file of the source",
        )
    return [_single_line(_scalar(word), longest=256, what="the command") for word in words]


def _s3_uri(value: object) -> str:
    text = _text(value)
    if not text.startswith("s3://"):
        raise _wrong("is not an S3 URI", "Give it as s3://<bucket>/<key>")
    if len(text) > 1_024:
        raise _wrong(f"has {len(text)} characters; SageMaker takes 1,024", "Use a shorter key")
    bucket, _, key = text.removeprefix("s3://").partition("/")
    if not re.fullmatch(_BUCKET, bucket, re.ASCII) or ".." in bucket:
        raise _wrong(
            "does not name a bucket: 3 to 63 lower-case letters, digits, dots and hyphens",
            "Give it as s3://<bucket>/<key>",
        )
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in key):
        raise _wrong("holds a control character", "Remove it from the key")
    return text


def _prefix(value: object) -> str:
    text = _s3_uri(value)
    bucket, _, key = text.removeprefix("s3://").partition("/")
    parts = key.strip("/").split("/")
    if not all(parts):
        problem = "names a whole bucket" if not key.strip("/") else "holds an empty path segment"
        raise _wrong(problem, "Give it as s3://<bucket>/<folder>/, one slash between folders")
    if {".", ".."} & set(parts):
        raise _wrong("holds a . or .. segment, which S3 does not resolve", "Write the folder's full path")
    normal = f"s3://{bucket}/{'/'.join(parts)}/"
    if len(normal) > 1_024:
        raise _wrong(f"has {len(normal)} characters with its closing slash; SageMaker takes 1,024", "Shorten it")
    return normal


def _source(value: object) -> object:
    if isinstance(value, Mapping | GitSource):
        return value
    if not isinstance(value, str):
        raise _wrong(
            "is neither an archive nor a git repository",
            "Give s3://<bucket>/<key>.tar.gz, or {git: <url>, commit: <40 hex digits>}",
        )
    if not value.startswith("s3://"):
        if re.match(r"(https?|ssh|git)://|git@", value):
            raise _wrong("is a URL without a commit", f"Write {{git: {value[:80]}, commit: <40 hex digits>}}")
        raise _wrong(
            "is not an S3 URI: the launcher cannot see your files",
            "Upload an archive and name it as s3://<bucket>/<key>.tar.gz (`spotkeep launch` does so for a folder)",
        )
    uri = _s3_uri(value)
    if not uri.endswith(_ARCHIVES):
        raise _wrong("is not an archive Spotkeep can unpack", f"Use one that ends in {', '.join(_ARCHIVES)}")
    return uri


def _git_url(value: object) -> str:
    text = _text(value)
    if len(text) > 512:
        raise _wrong(f"has {len(text)} characters; 512 are allowed", "Use a shorter URL")
    if re.match(r"https?://[^/@]*@", text):
        raise _wrong(
            "holds a user name or password, which everyone who may describe the job could read",
            "Remove it; give the job access by its role or its image",
        )
    if not re.fullmatch(r"(https://|ssh://)[^\s/-][^\s]*/[^\s]+|git@[\w.-]+:[^\s]+", text):
        raise _wrong("is not the URL of a git repository", "Give it as https://<host>/<path>.git")
    return text


def _commit(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[0-9a-f]{40}", text):
        raise _wrong(
            "is not a full commit id",
            "Give all 40 hex digits (`git rev-parse HEAD`): a branch moves, a commit does not",
        )
    return text


def _image(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[a-z0-9][\w./:@-]*", text, re.ASCII) or len(text) > 255 or "://" in text:
        raise _wrong(
            "is not the path of a container image (at most 255 characters, no scheme)",
            "Give it as <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag>",
        )
    return text


def _instance_type(value: object, info: ValidationInfo) -> str:
    """A type of the backend that the document names; of either where nobody says (a recorded request)."""
    text = _text(value)
    backend = (info.context or {}).get("backend")
    if backend == "ec2":
        return _ec2_instance_type(text)
    if re.fullmatch(_INSTANCE_TYPE, text, re.ASCII) or (backend is None and re.fullmatch(_EC2_TYPE, text, re.ASCII)):
        return text
    likely = "ml." + text.strip().lower().removeprefix("ml.")
    known = re.fullmatch(_INSTANCE_TYPE, likely, re.ASCII)
    hint = f"Write {likely}" if known else "Write it as ml.<family>.<size>, for example ml.g5.xlarge"
    raise _wrong("is not a SageMaker instance type, which start with ml.", hint)


def _ec2_instance_type(text: str) -> str:
    if re.fullmatch(_EC2_TYPE, text, re.ASCII) and not text.startswith("ml."):
        return text
    likely = text.strip().lower().removeprefix("ml.")
    hint = f"Write {likely}" if re.fullmatch(_EC2_TYPE, likely, re.ASCII) else "Write it as <family>.<size>: g5.xlarge"
    raise _wrong("is not an EC2 instance type, which backend: ec2 takes (without ml.)", hint)


def _channels(value: object) -> object:
    """A mapping of names becomes the list SageMaker has; its values are URIs or channels without a name."""
    if isinstance(value, Mapping):
        for name, spec in value.items():
            if isinstance(spec, Mapping) and "name" in spec:
                raise _wrong(f"names channel {str(name)[:64]!r} twice", "Leave `name` out: the key is the name")
        return [
            {"name": name, **spec} if isinstance(spec, Mapping) else {"name": name, "uri": spec}
            for name, spec in value.items()
        ]
    if isinstance(value, list | tuple):
        return list(value)
    raise _wrong("is neither a mapping nor a list", "Write train: s3://<bucket>/<prefix>, one line a channel")


def _channel_name(value: object) -> str:
    text = _text(value)
    if text in RESERVED_CHANNELS:
        raise _wrong(
            "is a channel Spotkeep itself uses", f"Rename the channel; reserved: {', '.join(RESERVED_CHANNELS)}"
        )
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text, re.ASCII):
        raise _wrong(
            "is not a channel name: 1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit first",
            "Rename the channel, for example train",
        )
    return text


def _hyperparameter_name(value: object) -> str:
    text = _text(value)
    if not text:
        raise _wrong("is an empty name", "Name the hyperparameter")
    return _single_line(text, longest=256, what="the script")


def _hyperparameter(value: object) -> str:
    return _single_line(_scalar(value), longest=256, what="the script")


def _variable_name(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,511}", text, re.ASCII):
        raise _wrong(
            "is not the name of an environment variable: at most 512 letters, digits and underscores, no digit first",
            "Rename the variable",
        )
    if text in RESERVED_VARIABLES or text.startswith(RESERVED_VARIABLE_PREFIX):
        raise _wrong("is a variable that Spotkeep or SageMaker sets", "Rename the variable")
    return text


def _variable(value: object) -> str:
    text = _scalar(value)
    if len(text) > 512:
        raise _wrong(
            f"has {len(text)} characters; SageMaker takes 512", "Put it into a file of the source or a channel"
        )
    if "\0" in text:
        raise _wrong("holds a NUL character", "Remove it")
    return text


def _is_tag_text(text: str) -> bool:
    return all(character in "_.:/=+-@" or unicodedata.category(character)[0] in "LNZ" for character in text)


def _tag_key(value: object) -> str:
    text = _text(value)
    if not 1 <= len(text) <= 128 or not _is_tag_text(text):
        raise _wrong(
            "is not a tag key: 1 to 128 letters, digits, spaces and _ . : / = + - @", "Rename the tag"
        )  # fmt: skip
    if text.lower().startswith(RESERVED_TAG_PREFIXES):
        raise _wrong(f"starts with {' or '.join(RESERVED_TAG_PREFIXES)}, which are reserved", "Rename the tag")
    return text


def _tag_value(value: object) -> str:
    text = _scalar(value)
    if len(text) > 256 or not _is_tag_text(text):
        raise _wrong(
            "is not a tag value: at most 256 letters, digits, spaces and _ . : / = + - @", "Change the value"
        )  # fmt: skip
    return text


def _team(value: object) -> str:
    if not isinstance(value, str) or not _TEAM.fullmatch(value):
        raise _wrong("is not a team", "Write 1 to 20 of a-z, 0-9 and '-', a letter first")
    return value


def _owner(value: object) -> str:
    text = _text(value)
    if not text.strip() or len(text) > 128 or not _is_tag_text(text):
        raise _wrong(
            "is not an owner: 1 to 128 letters, digits, spaces and _ . : / = + - @", "Give a name or an e-mail address"
        )
    return text


def _token(value: object) -> str:
    text = _text(value)
    if not re.fullmatch(r"[A-Za-z0-9_.:/=+-]{1,128}", text, re.ASCII):
        raise _wrong("is not a token: 1 to 128 letters, digits and _ . : / = + -", "Use a UUID, or leave it out")
    return text


def _id(form: str, what: str, example: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        text = _text(value)
        if not re.fullmatch(form, text, re.ASCII):
            raise _wrong(f"is not the id of a {what}", f"Write it as {example}")
        return text

    return check


def _listed(value: object) -> object:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise _wrong("is not a list", "Write a list, even of one")


def _rungs(value: object) -> object:
    listed = _listed(value)
    if isinstance(listed, list) and not listed:
        raise _wrong("is empty", "Give at least one rung, or leave it out")
    if isinstance(listed, list) and len(listed) > MAX_RUNGS:
        raise _wrong(f"has {len(listed)} rungs; {MAX_RUNGS} are allowed", f"Keep the best {MAX_RUNGS}")
    return listed


def _once_each(values: tuple[str, ...]) -> tuple[str, ...]:
    repeated = sorted(value for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise _wrong(f"names {', '.join(repeated)} more than once", "Name each once")
    return values


_DURATION_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0, "description": "seconds"},
            {"type": "string", "pattern": r"^\s*\d+\s*$|^\s*(\d+d)?\s*(\d+h)?\s*(\d+m)?\s*(\d+s)?\s*$"},
        ]
    },
    mode="validation",
)
_DEADLINE_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "description": "seconds from the launch"},
            {"type": "string", "pattern": r"^\s*\d+\s*$|^\s*(\d+d)?\s*(\d+h)?\s*(\d+m)?\s*(\d+s)?\s*$"},
            {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"},
        ]
    },
    mode="validation",
)
_TEXTS_SCHEMA: Final = WithJsonSchema(
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}, mode="validation"
)
_S3_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": "^s3://", "maxLength": 1024}, mode="validation")
_INSTANCE_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": f"^(ml\\.)?{_EC2_TYPE}$"}, mode="validation")

S3Uri = Annotated[str, BeforeValidator(_s3_uri), _S3_SCHEMA]
InstanceType = Annotated[str, BeforeValidator(_instance_type), _INSTANCE_SCHEMA]
NoticeWord = Annotated[NoticeKind, _choice(*(kind.value for kind in NoticeKind))]
InputMode = Annotated[Literal["File", "FastFile", "Pipe"], _choice("File", "FastFile", "Pipe")]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class GitSource(_Document):
    """Source code in a git repository, pinned to one commit."""

    git: Annotated[str, BeforeValidator(_git_url)] = Field(examples=["https://github.com/example/training.git"])
    """The repository's URL, https or ssh, without credentials."""
    commit: Annotated[str, BeforeValidator(_commit)] = Field(examples=["0f4b7c1d2e3a49586776859403a2b1c0d9e8f7a6"])
    """The full commit id: 40 hex digits."""


class ChannelData(_Document):
    """Where a channel's data is and how the job reads it."""

    uri: S3Uri = Field(examples=["s3://my-data/cifar10/"])
    """The S3 prefix (or object) to read."""
    input_mode: InputMode = "File"
    """File copies before the start, FastFile streams on read, Pipe gives a FIFO."""


class Channel(ChannelData):
    """Data for the job: an S3 prefix that appears under `/opt/ml/input/data/<name>`."""

    name: Annotated[str, BeforeValidator(_channel_name)] = Field(examples=["train"])
    """The channel's name, at most 64 characters. `spotkeep` and `source` are taken."""


InstanceTypes = Annotated[tuple[InstanceType, ...], AfterValidator(_once_each), BeforeValidator(_listed)]


LongestWait = Annotated[int, _duration(lowest=SHORTEST_WAIT_SECONDS, highest=MAX_RUN_SECONDS), _DURATION_SCHEMA]


class RungRequest(_Document):
    """One rung of a capacity ladder: where to look for capacity, and for how long."""

    capacity: Annotated[Literal["spot", "on-demand"], _choice("spot", "on-demand")] = "spot"
    """spot or on-demand."""
    instance_types: InstanceTypes | None = Field(default=None, examples=[["ml.g5.xlarge", "ml.g5.2xlarge"]])
    """Instance types, best first. Spot tries them one after the other; on-demand takes the first it can get."""
    instance_type: InstanceType | None = Field(default=None, examples=["ml.g5.xlarge"])
    """The same for a single type."""
    longest_wait: LongestWait | None = Field(default=None, examples=["30m"])
    """How long to wait for capacity before the next rung. Default: the document's longest_wait."""

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types, however they were given; empty if none were."""
        if self.instance_types:
            return self.instance_types
        return (self.instance_type,) if self.instance_type else ()


class VolumeRequest(_Document):
    """The volume that follows a run on EC2, for its data and checkpoints."""

    size_gb: Annotated[int, _whole(lowest=1, highest=MAX_EBS_GB, unit="GB")] = Field(
        default=DEFAULT_EBS_GB, json_schema_extra={"minimum": 1, "maximum": MAX_EBS_GB}
    )
    """Its size in GiB. At least the snapshot's; a volume of the run that is smaller grows when it moves."""
    type: Annotated[Literal["gp3", "gp2", "io2", "io1", "st1", "sc1"], _choice(*EBS_LIMITS)] = "gp3"
    """gp3, gp2, io2, io1, st1 or sc1."""
    iops: Annotated[int, _whole(lowest=100, highest=256_000, unit="IOPS")] | None = Field(
        default=None, json_schema_extra={"minimum": 100, "maximum": 256_000}
    )
    """Provisioned operations a second, of gp3, io1 and io2. Default: the type's own."""
    throughput: Annotated[int, _whole(lowest=125, highest=2_000, unit="MiB/s")] | None = Field(
        default=None, json_schema_extra={"minimum": 125, "maximum": 2_000}
    )
    """MiB/s, of gp3. Default: 125."""
    initialization_rate: Annotated[int, _whole(lowest=100, highest=300, unit="MiB/s")] | None = Field(
        default=None, json_schema_extra={"minimum": 100, "maximum": 300}
    )
    """How fast a volume is filled from its snapshot, in MiB/s, when the run moves to another zone; billed by the GiB.
    Default: blocks are fetched when they are read."""
    snapshot: Annotated[str, BeforeValidator(_id(_SNAPSHOT_ID, "snapshot", "snap-0123456789abcdef0"))] | None = Field(
        default=None, examples=["snap-0123456789abcdef0"]
    )
    """What the run's first volume is made from. Default: it begins empty."""
    volume: Annotated[str, BeforeValidator(_id(_VOLUME_ID, "volume", "vol-0123456789abcdef0"))] | None = Field(
        default=None, examples=["vol-0123456789abcdef0"]
    )
    """A volume of your own to begin on; it is never deleted. Default: the run makes its own."""
    when_done: Annotated[Literal["keep", "delete"], _choice("keep", "delete")] = "keep"
    """What becomes of the volume when the run has completed: keep it (for as long as the deployment keeps volumes), or
    delete it. Of a run that failed or was stopped it is kept: it can be resumed."""


class JobRequest(_Document):
    """A training job for Spotkeep. Only `name` and `command` are required."""

    name: Annotated[str, _name(what="a name", longest=MAX_NAME_LENGTH)] = Field(
        examples=["resnet50-cifar10"], json_schema_extra={"maxLength": MAX_NAME_LENGTH, "pattern": f"^{_HYPHENATED}$"}
    )
    """What people call the job: letters, digits and hyphens, at most 43."""
    command: Annotated[
        tuple[str, ...],
        BeforeValidator(_command),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    {"type": "array", "minItems": 1, "maxItems": MAX_COMMAND_WORDS,
                     "items": {"type": ["string", "number", "boolean"]}},
                ]
            },
            mode="validation",
        ),
    ] = Field(examples=["python train.py --epochs 30", ["python", "train.py"]])  # fmt: skip
    """The command that trains, run in the unpacked source. Text is split as a shell would; no shell runs it."""
    run: Annotated[str | None, _name(what="a run id", longest=MAX_RUN_ID_LENGTH)] = Field(
        default=None, examples=["resnet50-cifar10-2026-11"]
    )
    """The run's id, at most 52 characters, never used before. Default: the name and 8 hex digits of the token."""
    source: Annotated[
        str | GitSource | None, BeforeValidator(_source, json_schema_input_type=S3Uri | GitSource | None)
    ] = Field(default=None, examples=["s3://my-code/train.tar.gz"])
    """Where the code is. Default: none, the image holds it."""
    backend: Annotated[Literal["sagemaker", "ec2"], _choice("sagemaker", "ec2")] = "sagemaker"
    """sagemaker: a managed training job. ec2: a spot fleet of one instance, with a volume that follows the run."""
    volume: VolumeRequest | None = Field(default=None, examples=[{"size_gb": 500, "type": "gp3"}])
    """backend ec2 only: the volume that follows the run. Default: 100 GiB of gp3, kept when the run is done."""
    max_price: Annotated[float, BeforeValidator(_us_dollars)] | None = Field(
        default=None, examples=[0.5], json_schema_extra={"exclusiveMinimum": 0, "maximum": MAX_COST_USD}
    )
    """backend ec2 only: US dollars an hour that a spot instance may cost. Default: the on-demand price."""
    rebalance: Annotated[Literal["leave", "save", "ignore"], _choice("leave", "save", "ignore")] = "leave"
    """backend ec2 only: what a rebalance recommendation means: leave as on a notice, save and go on, or ignore."""
    image: Annotated[str, BeforeValidator(_image)] | None = Field(
        default=None, examples=["763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8-gpu-py312"]
    )
    """The container image; needs `python3` 3.9 or later, nothing else. Default: the deployment's."""
    instance_types: InstanceTypes | None = Field(default=None, examples=[["ml.g5.xlarge"]])
    """SageMaker instance types, best first. Spot takes one, the others up to five. Default: the deployment's."""
    instance_type: InstanceType | None = Field(default=None, examples=["ml.g5.xlarge"])
    """The same for a single type."""
    instance_count: Annotated[int, _whole(lowest=1, highest=MAX_INSTANCES, unit="instances")] = Field(
        default=1, json_schema_extra={"minimum": 1, "maximum": MAX_INSTANCES}
    )
    """How many instances, 1 to 20."""
    volume_size_gb: Annotated[int, _whole(lowest=1, highest=MAX_VOLUME_GB, unit="GB")] = Field(
        default=30, json_schema_extra={"minimum": 1, "maximum": MAX_VOLUME_GB}
    )
    """Storage of each instance in GB, 1 to 16,384. Types with local disks bring their own."""
    capacity: Annotated[Literal["spot", "on-demand", "auto"], _choice("spot", "on-demand", "auto")] = "spot"
    """spot: cheaper, can be interrupted. on-demand: dearer, never interrupted, may keep a warm pool. auto: spot with
    each instance type, then on demand."""
    ladder: Annotated[tuple[RungRequest, ...], BeforeValidator(_rungs)] | None = Field(
        default=None,
        examples=[
            [
                {"instance_types": ["ml.g5.xlarge"], "longest_wait": "30m"},
                {"capacity": "on-demand", "instance_type": "ml.g5.xlarge"},
            ]
        ],
    )
    """With capacity auto: where to look for capacity, rung by rung, at most 10. Default: made of instance_types."""
    longest_wait: LongestWait | None = Field(default=None, examples=["30m"])
    """With capacity auto: how long a rung waits for capacity, at the start and after an interruption, before the next
    one is tried, 5m to 28d. Default: 1h."""
    spot_only: bool = Field(default=False, strict=True)
    """Whether on-demand capacity is forbidden, whatever else the document or its ladder says."""
    max_attempts: Annotated[int, _whole(lowest=1, highest=MAX_ATTEMPTS, unit="attempts")] = Field(
        default=20, json_schema_extra={"minimum": 1, "maximum": MAX_ATTEMPTS}
    )
    """How many training jobs the run may take in all before it is given up, 1 to 100."""
    script_retries: Annotated[int, _whole(lowest=0, highest=MAX_SCRIPT_RETRIES, unit="retries")] = Field(
        default=0, json_schema_extra={"minimum": 0, "maximum": MAX_SCRIPT_RETRIES}
    )
    """How often a script that ended with an error is started again from its last checkpoint, 0 to 10."""
    max_total_run: Annotated[int, _duration(lowest=1, highest=365 * DAY_SECONDS), _DURATION_SCHEMA] | None = Field(
        default=None, examples=["10d"]
    )
    """How long the run may train over all its jobs: a job that ends at max_run is then followed by the next, on its
    checkpoints. Default: max_run, so there is no next."""
    max_cost: Annotated[float, BeforeValidator(_us_dollars)] | None = Field(
        default=None, examples=[25], json_schema_extra={"exclusiveMinimum": 0, "maximum": MAX_COST_USD}
    )
    """US dollars the run may cost. Each job's max_run is cut to what is left at the on-demand price; a spot job that
    ends there with money left is followed by the next."""
    deadline: Annotated[int | datetime, BeforeValidator(_deadline), _DEADLINE_SCHEMA] | None = Field(
        default=None, examples=["60h", "2026-12-01T08:00:00Z"]
    )
    """When the work must be done: a duration from the launch (or the resume), or a time with its zone. The run is then
    steered: it stays on spot as long as that is safe and pays, and goes on demand in time. Needs on-demand capacity."""
    budget: Annotated[float, BeforeValidator(_us_dollars)] | None = Field(
        default=None, examples=[40], json_schema_extra={"exclusiveMinimum": 0, "maximum": MAX_COST_USD}
    )
    """US dollars the run is meant to cost. It is told when they are nearly spent, and goes on; max_cost ends it."""
    work: Annotated[int, _duration(lowest=1, highest=MAX_DEADLINE_SECONDS), _DURATION_SCHEMA] | None = Field(
        default=None, examples=["48h"]
    )
    """How long the training takes without interruptions, for plans and deadlines. Default: max_total_run or max_run."""
    restart: Annotated[int, _duration(lowest=1, highest=MAX_RESTART_SECONDS), _DURATION_SCHEMA] | None = Field(
        default=None, examples=["20m"]
    )
    """From asking for capacity to working, checkpoint loaded, at most; for plans and deadlines. Default: 12m."""
    max_run: Annotated[int, _duration(lowest=1, highest=MAX_RUN_SECONDS), _DURATION_SCHEMA] = Field(
        default=DEFAULT_MAX_RUN_SECONDS, examples=["4h", "90m", 5400]
    )
    """How long it may train, up to 28d. Default: 24h, or the deployment's limit if that is lower."""
    max_wait: Annotated[int, _duration(lowest=1, highest=MAX_WAIT_SECONDS), _DURATION_SCHEMA] | None = Field(
        default=None, examples=["2d"]
    )
    """Spot only: how long it may take in all, waiting included; above max_run, up to 30d. Default: max_run and 24h."""
    keep_alive: Annotated[int, _duration(lowest=0, highest=MAX_KEEP_ALIVE_SECONDS), _DURATION_SCHEMA] = Field(
        default=0, examples=["30m"]
    )
    """On-demand only: how long the instances stay (and are billed) for the next job, up to 1h."""
    channels: Annotated[
        tuple[Channel, ...],
        BeforeValidator(_channels, json_schema_input_type=tuple[Channel, ...] | dict[str, S3Uri | ChannelData]),
    ] = Field(default=(), examples=[{"train": "s3://my-data/cifar10/"}])
    """Data: a list of channels, or a mapping of names to S3 URIs (or to {uri, input_mode})."""
    hyperparameters: Annotated[
        dict[Annotated[str, BeforeValidator(_hyperparameter_name)], Annotated[str, BeforeValidator(_hyperparameter)]],
        _TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"epochs": 30, "lr": 0.1}])
    """At most 100; names and values at most 256 characters. Not for secrets: whoever sees the job reads them."""
    environment: Annotated[
        dict[Annotated[str, BeforeValidator(_variable_name)], Annotated[str, BeforeValidator(_variable)]],
        _TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"OMP_NUM_THREADS": 4}])
    """Environment variables: at most 100 with Spotkeep's own, values at most 512 characters. Not for secrets."""
    checkpoints: bool = Field(default=True, strict=True)
    """Whether the script saves checkpoints and resumes from them. Without, spot is limited to an hour."""
    checkpoint_prefix: Annotated[str, BeforeValidator(_prefix), _S3_SCHEMA] | None = Field(
        default=None, examples=["s3://my-checkpoints/runs/resnet50-cifar10/checkpoints/"]
    )
    """The S3 prefix of the checkpoints: give an ended run's to go on from it. Default: one of the run's own."""
    notify: Annotated[tuple[NoticeWord, ...], AfterValidator(_once_each), BeforeValidator(_listed)] = Field(
        default=DEFAULT_NOTIFY
    )
    """What to send a notice about."""
    waiting_too_long: LongestWait | None = Field(default=None, examples=["4h"])
    """A wait for capacity that is worth the notice waiting-too-long, 5m to 28d. Default: the deployment's, 2h."""
    checkpoint_stale: LongestWait | None = Field(default=None, examples=["1h"])
    """An age of the newest checkpoint that is worth the notice checkpoint-stale, 5m to 28d. Default: three times the
    interval in which the run saves, at least 15m; 1h where that is not known."""
    owner: Annotated[str, BeforeValidator(_owner)] | None = Field(default=None, examples=["ada@example.com"])
    """Whose run it is, for `spotkeep ps` and the cost tag. Default: nobody's."""
    team: Annotated[str, BeforeValidator(_team)] | None = Field(default=None, examples=["vision"])
    """The team whose role the job works with, where the deployment has a role a team: its warm pools then fit no other
    team's jobs. Default: everybody's role."""
    tags: Annotated[
        dict[Annotated[str, BeforeValidator(_tag_key)], Annotated[str, BeforeValidator(_tag_value)]],
        _TEXTS_SCHEMA,
    ] = Field(default_factory=dict, examples=[{"team": "vision"}])
    """AWS tags of the training job: at most 50 with Spotkeep's own four."""
    token: Annotated[str, BeforeValidator(_token)] | None = Field(
        default=None, examples=["6a1f8a52-2f0c-4a3e-9f65-0f3f6f0f1b7e"]
    )
    """Makes a repeated launch safe: the same token answers the same and launches nothing. Default: a new one a call."""

    @property
    def types(self) -> tuple[str, ...]:
        """The instance types, however they were given; empty if none were."""
        if self.instance_types:
            return self.instance_types
        return (self.instance_type,) if self.instance_type else ()

    @property
    def volume_or_default(self) -> VolumeRequest:
        """The volume of a run on EC2."""
        return self.volume or VolumeRequest()

    @property
    def work_seconds(self) -> int:
        """How long the training takes without interruptions; at most, where nobody said so."""
        return self.work or self.max_total_run or self.max_run

    @property
    def restart_seconds(self) -> int:
        """How long it takes from asking for capacity to working."""
        return self.restart or DEFAULT_RESTART_SECONDS

    @property
    def seconds_on_demand(self) -> int:
        """How long the work takes on demand, from its launch: a start for each job that `max_run` cuts it into."""
        jobs = -(-self.work_seconds // self.max_run)
        return self.work_seconds + jobs * self.restart_seconds

    def deadline_at(self, begun_at: datetime) -> datetime | None:
        """When the work must be done; None when it need not be.

        Args:
            begun_at: When the run was launched, or resumed.
        """
        if isinstance(self.deadline, int):
            return begun_at + timedelta(seconds=self.deadline)
        return self.deadline

    def as_document(self) -> dict[str, Any]:
        """The request as JSON, fields without a value left out. Reading it again gives the same request."""
        return self.model_dump(mode="json", exclude_none=True)
