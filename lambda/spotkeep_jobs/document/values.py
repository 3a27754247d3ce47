"""How those values of a job document are read that pydantic's own types and limits do not describe.

Each `read_...` takes one value, of any type, and gives it as the request keeps it. What cannot be read is refused in
words (`wrong`), for a person to put right. A text that is kept as it is is a type with its rules (`must`).
"""

from __future__ import annotations

import json
import math
import re
import shlex
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Final

from annotated_types import GroupedMetadata
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, Strict, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from spotkeep_fleet.training_spec import SPEC_CHANNEL, SPEC_VARIABLE
from spotkeep_jobs.document.durations import FORMS, format_duration, parse_duration
from spotkeep_jobs.document.framework_images import ALGORITHM_IMAGES, FRAMEWORK_IMAGES, AwsImage
from spotkeep_jobs.document.limits import (
    MAX_BLOCK,
    MAX_COMMAND_WORDS,
    MAX_DEADLINE_SECONDS,
    MAX_FALLBACKS,
    MAX_REQUIREMENTS,
    MAX_VARIABLE,
    MAX_WAIT_SECONDS,
    MAX_WORD,
    MLFLOW_ARN,
)
from spotkeep_jobs.document.shell_text import (
    does_nothing,
    is_block,
    left_in_the_background,
    lines_of,
    misprint,
    one_line_of,
    option_without_a_program,
    other_interpreter,
    setting_at_the_end,
    why_a_shell,
)
from spotkeep_jobs.document.training_image import newest_named
from spotkeep_jobs.errors import DurationError

HYPHENATED: Final = r"^[a-zA-Z0-9](-*[a-zA-Z0-9])*$"
_INSTANCE_TYPE: Final = r"ml\.[a-z][a-z0-9-]*\.[a-z0-9]+"
_EC2_TYPE: Final = r"[a-z][a-z0-9-]*\.[a-z0-9-]+"
_BUCKET: Final = r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
_ARCHIVES: Final = (".tar.gz", ".tgz", ".zip")
_LINE_ENDS: Final = frozenset("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029")
_BIG_BITS: Final = 4_096
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}")
_MAX_METRICS: Final = 40
_MAX_METRIC_NAME: Final = 100
"""SageMaker takes 255; what a job says of itself is read with names of at most 100."""
_MAX_METRIC_PATTERN: Final = 500
RESERVED_CHANNELS: Final = ("spotkeep", "source", SPEC_CHANNEL)
RESERVED_VARIABLES: Final = (
    "SPOTKEEP_RUN",
    "SPOTKEEP_ATTEMPT",
    "SPOTKEEP_LAUNCH",
    "SPOTKEEP_RUN_INDEX",
    "SPOTKEEP_RUN_COUNT",
    SPEC_VARIABLE,
    "SPOTKEEP_CHECKPOINT_DIR",
    "SPOTKEEP_EVENTS",
    "SPOTKEEP_PAUSE_AT_STEP",
    "SAGEMAKER_BASE_DIR",
    "TRAINING_JOB_NAME",
    "TRAINING_JOB_ARN",
)
_RESERVED_VARIABLE_PREFIXES: Final = ("SM_",)
_RESERVED_TAG_PREFIXES: Final = ("aws:", "spotkeep:")


def wrong(problem: str, fix: str) -> PydanticCustomError:
    """Return an error that carries what `validation` needs for a `Problem`."""
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
"""Text with a length or a pattern, by which pydantic refuses what is not valid Unicode as well."""
ShortName = Annotated[Text, Field(pattern="^[a-z][a-z0-9-]{0,19}$")]
_AnyText = Annotated[str, BeforeValidator(read_text)]
WholeNumber = Annotated[int, Strict()]


def must(hold: Callable[[str], object], problem: str, fix: str) -> AfterValidator:
    """Return what refuses a text in these words where something does not hold of it.

    Args:
        hold: Says whether it holds.
        problem: What is wrong where it does not.
        fix: What to do.
    """

    def judged(text: str) -> str:
        if not hold(text):
            raise wrong(problem, fix)
        return text

    return AfterValidator(judged)


def _written(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.ASCII).fullmatch


@dataclass(frozen=True, kw_only=True)
class DurationOf(GroupedMetadata):
    """Reads a duration as people write it into seconds, within limits.

    Attributes:
        lowest: In seconds.
        highest: In seconds.
    """

    lowest: int
    highest: int

    def __iter__(self) -> Iterator[object]:
        """Give what pydantic makes of it: the reader, and how the JSON schema says it."""
        yield BeforeValidator(lambda value: _seconds(value, lowest=self.lowest, highest=self.highest))
        yield _DURATION_SCHEMA


def _seconds(value: object, *, lowest: int, highest: int) -> int:
    try:
        seconds = parse_duration(value)
    except DurationError as error:
        raise wrong(error.problem, error.fix) from None
    if not lowest <= seconds <= highest:
        shown = format_duration(seconds) if seconds <= 10 * MAX_WAIT_SECONDS else "far too long"
        raise wrong(
            f"is out of range ({shown}): {format_duration(lowest)} to {format_duration(highest)} are allowed",
            f"Choose a duration from {format_duration(lowest)} to {format_duration(highest)}. {FORMS}",
        )
    return seconds


_SOME_TIME: Final = "2026-12-01T08:00:00Z"


def read_deadline(value: object) -> int | datetime:
    """Return seconds from the launch, or a time in UTC."""
    if isinstance(value, datetime):
        at = value
    elif isinstance(value, str) and _DATE.match(value.strip()):
        try:
            at = datetime.fromisoformat(value.strip())
        except ValueError:
            raise wrong("is not a time", f"Write it as {_SOME_TIME}, or as a duration from the launch: 60h") from None
        if _DATE.fullmatch(value.strip()):
            raise wrong("is a day without a time", f"Write {value.strip()}T08:00:00Z, for example")
    else:
        return _seconds(value, lowest=1, highest=MAX_DEADLINE_SECONDS)
    if at.tzinfo is None:
        raise wrong("is a time without a time zone", f"Write Z for UTC ({_SOME_TIME}), or an offset such as +01:00")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise wrong("is a time no calendar holds", f"Write a time such as {_SOME_TIME}") from None


def _single_line(text: str, *, longest: int, what: str) -> str:
    if len(text) > longest:
        raise wrong(
            f"has {len(text)} characters; SageMaker takes {longest}",
            f"Shorten it, or put it into a file of the source or a channel and give {what} its path",
        )
    if "\0" in text or _LINE_ENDS & set(text):
        raise wrong("holds a line break or a NUL character", "Write it in one line, or put it into a file")
    return text


def _scalar(value: object) -> str:
    """Return numbers and booleans as JSON writes them: hyperparameters and variables are text to SageMaker."""
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


_AS_WORDS_OR_BLOCK: Final = (
    "Write it as a block for bash, which is a text of several lines (in YAML: `command: |` and the lines below it), or "
    "as a list of words: [python, train.py]. Text in single quotes stays as it is"
)


def read_command(value: object) -> list[str] | str:
    """Return the command of the training script: the words of its command line, or a block of lines for bash.

    A list is always words. A text of several lines is a block, and one of a single line is words unless it needs a
    shell (`shell_text`).
    """
    return _command(value, field="command")


def read_setup(value: object) -> list[str] | str:
    """Return the command that sets a machine up."""
    return _command(value, field="setup")


def _command(value: object, *, field: str) -> list[str] | str:
    if isinstance(value, str):
        if len(value) > MAX_BLOCK:
            raise wrong(f"has {len(value)} characters", "Put the work into a script of the source and call that")
        text = read_text(value)
        if is_block(text):
            return _block(text, field=field)
        words: list[object] = list(_words_of(one_line_of(text) or "", field=field))
    elif isinstance(value, list | tuple):
        words = list(value)
    else:
        raise wrong("is neither text nor a list", 'Write it as text ("python train.py") or as a list of words')
    if not words or not words[0]:
        raise wrong("is empty", 'Give the command that trains, for example "python train.py"')
    if len(words) > MAX_COMMAND_WORDS:
        raise wrong(
            f"has {len(words)} words; a command takes {MAX_COMMAND_WORDS}",
            "Put options into hyperparameters or into a file of the source",
        )
    read = [_single_line(_scalar(word), longest=MAX_WORD, what="the command") for word in words]
    if re.match(r"[^/\s]+\s", read[0]):
        raise wrong(
            f"has {read[0][:80]!r} for its program, with a blank in it",
            "A list holds the words of one command: [python, train.py]. Commands on lines of their own are a text (in "
            f"YAML: `{field}: |` and the lines below it)",
        )
    return read


def _words_of(line: str, *, field: str) -> list[str]:
    _refuse_misprints(line)
    reason = why_a_shell(line)
    if reason is not None:
        raise wrong(f"{reason}, and no shell reads a text of one line", _AS_WORDS_OR_BLOCK.replace("command", field, 1))
    try:
        return shlex.split(line)
    except ValueError as error:
        raise wrong(f"cannot be split into words ({error})", "Close the quote, or write a list") from None


def _block(text: str, *, field: str) -> str:
    block = lines_of(text) + "\n"
    if does_nothing(block):
        raise wrong("is comments alone", 'Give the command that trains, for example "python train.py"')
    if "\0" in block:
        raise wrong("holds a NUL character", "Remove it")
    program = other_interpreter(block)
    if program is not None:
        raise wrong(
            f"is a block for bash, and its first line asks for {program}",
            "Put it into a script of the source and call that, or remove the line",
        )
    _refuse_misprints(block)
    lost = option_without_a_program(block) or setting_at_the_end(block)
    if lost is not None:
        raise wrong(lost, "End the line above with a backslash, as the last character, if the command goes on")
    if field == "command" and left_in_the_background(block):
        raise wrong(
            "ends while a program of it is in the background (&): bash would end with code 0, and the run with it",
            "Remove the & behind the program that trains, or end the block with `wait $!`. What holds an & as a "
            "character needs quotes",
        )
    return block


def _refuse_misprints(text: str) -> None:
    found = misprint(text)
    if found is not None:
        raise wrong(found, "Type it anew on the keyboard, or remove it. Text in quotes stays as it is")


def read_install(value: object) -> str | list[str]:
    """Return what is installed before the command: auto, none, a path in the source, or a list of requirements."""
    if isinstance(value, str):
        path = PurePosixPath(read_text(value))
        if not value or path.is_absolute() or ".." in path.parts or value.startswith("-") or path == PurePosixPath():
            raise wrong("is no path inside the source", "Give auto, none, requirements/train.txt, or a list")
        return _single_line(value, longest=MAX_WORD, what="the source")
    if not isinstance(value, list | tuple):
        raise wrong(
            "is neither text nor a list", "Give auto, none, the path of a requirements file, or a list: [timm==1.0.9]"
        )
    if not value:
        raise wrong("is an empty list", "Write none to install nothing, or leave it out")
    if len(value) > MAX_REQUIREMENTS:
        raise wrong(
            f"has {len(value)} requirements; {MAX_REQUIREMENTS} fit", "Put them into requirements.txt in the source"
        )
    listed = [_single_line(read_text(each), longest=MAX_WORD, what="the job file") for each in value]
    if any(not each.strip() or each.startswith("-") for each in listed):
        raise wrong(
            "holds an option of pip, or a requirement that is empty",
            "Options go into requirements.txt in the source; list requirements alone: [timm==1.0.9]",
        )
    return listed


def _s3_uri(value: object) -> str:
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


def read_prefix(value: object) -> str:
    """Return an S3 URI of checkpoints; it ends with a slash."""
    text = _s3_uri(value)
    bucket, _, key = text.removeprefix("s3://").partition("/")
    parts = key.strip("/").split("/")
    if not all(parts):
        problem = "names a whole bucket" if not key.strip("/") else "holds an empty path segment"
        raise wrong(problem, "Give it as s3://<bucket>/<folder>/, one slash between folders")
    if {".", ".."} & set(parts):
        raise wrong("holds a . or .. segment, which S3 does not resolve", "Write the folder's full path")
    normal = f"s3://{bucket}/{'/'.join(parts)}/"
    if len(normal) > 1_024:
        raise wrong(f"has {len(normal)} characters with its closing slash; SageMaker takes 1,024", "Shorten it")
    return normal


def read_source(value: object) -> object:
    """Return where the code comes from: a mapping of an archive or a git repository, or the URI of an archive.

    A URI alone holds the hash: `<sha256>.tar.gz`, as `spotkeep launch` uploads it. Nothing else that S3 offers pins an
    archive: its checksum is SHA-256 only where the uploader asked for it, and SageMaker's channels know no versions.
    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_S3DataSource.html
    """
    if isinstance(value, Mapping | BaseModel):
        return value
    if not isinstance(value, str):
        raise wrong(
            "is neither an archive nor a git repository",
            "Give {uri: s3://<bucket>/<key>.tar.gz, sha256: <64 hex digits>}, or {git: <url>, commit: <40 hex digits>}",
        )
    if not value.startswith("s3://"):
        if re.match(r"(https?|ssh|git)://|git@", value):
            raise wrong("is a URL without a commit", f"Write {{git: {value[:80]}, commit: <40 hex digits>}}")
        raise wrong(
            "is not an S3 URI: the launcher cannot see your files",
            "Upload an archive and name it as s3://<bucket>/<sha256>.tar.gz (`spotkeep launch` does so for a folder)",
        )
    uri = read_archive_uri(value)
    named = re.search(r"/([0-9a-f]{64})\.[a-z.]+$", uri)
    if named is None:
        raise wrong(
            "does not say which archive is meant: what lies there may be replaced after the launch",
            f"Write {{uri: {uri[:200]}, sha256: <64 hex digits>}}; `aws s3 cp {uri[:200]} - | sha256sum` gives them",
        )
    return {"uri": uri, "sha256": named[1]}


def read_archive_uri(value: object) -> str:
    """Return the S3 URI of an archive."""
    uri = _s3_uri(value)
    if not uri.endswith(_ARCHIVES):
        raise wrong("is not an archive Spotkeep can unpack", f"Use one that ends in {', '.join(_ARCHIVES)}")
    return uri


def _without_credentials(fix: str) -> AfterValidator:
    return must(
        lambda text: not re.match(r"https?://[^/@]*@", text),
        "holds a user name or password, which everyone who may describe the job could read",
        fix,
    )


GitUrl = Annotated[
    Text,
    Field(max_length=512),
    _without_credentials("Remove it; give the job access by its role or its image"),
    must(
        re.compile(r"(https://|ssh://)[^\s/-][^\s]*/[^\s]+|git@[\w.-]+:[^\s]+").fullmatch,
        "is not the URL of a git repository",
        "Give it as https://<host>/<path>.git",
    ),
]


def read_mlflow(value: object) -> object:
    """Turn an address alone into a tracking server by its address."""
    return {"tracking_uri": value} if isinstance(value, str) else value


TrackingUri = Annotated[
    Text,
    Field(max_length=MAX_VARIABLE),
    _without_credentials("Remove it; the script reads it from AWS Secrets Manager"),
    must(
        _written(rf"https?://[\w.-]+(:\d+)?(/[^\s]*)?|{MLFLOW_ARN}"),
        "is neither the URL of a tracking server nor the ARN of one of SageMaker's",
        "Give https://<host>, or arn:aws:sagemaker:<region>:<account>:mlflow-tracking-server/<name>",
    ),
]
Image = Annotated[
    _AnyText,
    must(
        _written(r"(?!.*://)[a-z0-9][\w./:@-]{0,254}"),
        "is not the path of a container image (at most 255 characters, no scheme)",
        "Give it as <account>.dkr.ecr.<region>.amazonaws.com/<repository>:<tag>",
    ),
]


def _image_reader(images: Mapping[str, AwsImage], *, what: str) -> Callable[[object], str]:
    """Return what reads a name and version that there is an image of: the newest that the text means."""

    def read(value: object) -> str:
        named = newest_named(read_text(value), images)
        if named is None:
            raise wrong(
                f"is not {what}",
                f"Write one of {', '.join(images)}; the version may be shorter, or missing for the newest. "
                "Another image is given as image",
            )
        return named

    return read


def _image_schema(images: Mapping[str, AwsImage]) -> WithJsonSchema:
    families = dict.fromkeys(re.sub(r"-\d.*", "", name) for name in images)
    pattern = f"^({'|'.join(families)})(-[0-9][0-9.-]*)?$"
    return WithJsonSchema({"type": "string", "pattern": pattern}, mode="validation")


read_framework = _image_reader(FRAMEWORK_IMAGES, what="a framework that AWS has an image of in Spotkeep's table")
Framework = Annotated[str, BeforeValidator(read_framework), _image_schema(FRAMEWORK_IMAGES)]
Algorithm = Annotated[
    str,
    BeforeValidator(
        _image_reader(ALGORITHM_IMAGES, what="a built-in algorithm of SageMaker that Spotkeep's table has an image of")
    ),
    _image_schema(ALGORITHM_IMAGES),
]


def _instance_type(value: object, info: ValidationInfo) -> str:
    """Return a type of the backend that the document names; of either where none is named (a recorded request)."""
    text = read_text(value)
    backend = (info.context or {}).get("backend")
    if backend == "ec2":
        return _ec2_instance_type(text)
    if re.fullmatch(_INSTANCE_TYPE, text, re.ASCII) or (backend is None and re.fullmatch(_EC2_TYPE, text, re.ASCII)):
        return text
    likely = "ml." + text.strip().lower().removeprefix("ml.")
    known = re.fullmatch(_INSTANCE_TYPE, likely, re.ASCII)
    hint = f"Write {likely}" if known else "Write it as ml.<family>.<size>, for example ml.g5.xlarge"
    raise wrong("is not a SageMaker instance type, which start with ml.", hint)


def _ec2_instance_type(text: str) -> str:
    if re.fullmatch(_EC2_TYPE, text, re.ASCII) and not text.startswith("ml."):
        return text
    likely = text.strip().lower().removeprefix("ml.")
    hint = f"Write {likely}" if re.fullmatch(_EC2_TYPE, likely, re.ASCII) else "Write it as <family>.<size>: g5.xlarge"
    raise wrong("is not an EC2 instance type, which backend: ec2 takes (without ml.)", hint)


def read_channels(value: object) -> object:
    """Turn a mapping of names into the list that SageMaker has; its values are URIs or channels without a name."""
    if isinstance(value, Mapping):
        for name, spec in value.items():
            if isinstance(spec, Mapping) and "name" in spec:
                raise wrong(f"names channel {str(name)[:64]!r} twice", "Leave `name` out: the key is the name")
        return [
            {"name": name, **spec} if isinstance(spec, Mapping) else {"name": name, "uri": spec}
            for name, spec in value.items()
        ]
    if isinstance(value, list | tuple):
        return list(value)
    raise wrong("is neither a mapping nor a list", "Write train: s3://<bucket>/<prefix>, one line a channel")


ChannelName = Annotated[
    _AnyText,
    must(
        lambda text: text not in RESERVED_CHANNELS,
        "is a channel Spotkeep itself uses",
        f"Rename the channel; reserved: {', '.join(RESERVED_CHANNELS)}",
    ),
    must(
        _written(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
        "is not a channel name: 1 to 64 letters, digits, dots, hyphens and underscores, a letter or digit first",
        "Rename the channel, for example train",
    ),
]


def read_hyperparameter_name(value: object) -> str:
    """Return the name of a hyperparameter."""
    text = read_text(value)
    if not text:
        raise wrong("is an empty name", "Name the hyperparameter")
    return _single_line(text, longest=256, what="the script")


def read_hyperparameter(value: object) -> str:
    """Return the value of a hyperparameter: any scalar, as the text that the script gets."""
    text = json.dumps(value) if isinstance(value, float) else _scalar(value)
    return _single_line(text, longest=256, what="the script")


VariableName = Annotated[
    _AnyText,
    must(
        _written(r"[a-zA-Z_][a-zA-Z0-9_]{0,511}"),
        "is not the name of an environment variable: at most 512 letters, digits and underscores, no digit first",
        "Rename the variable",
    ),
    must(
        lambda text: text not in RESERVED_VARIABLES and not text.startswith(_RESERVED_VARIABLE_PREFIXES),
        "is a variable that Spotkeep or SageMaker sets",
        "Rename the variable",
    ),
]


def read_variable(value: object) -> str:
    """Return the value of an environment variable."""
    text = _scalar(value)
    if len(text) > MAX_VARIABLE:
        raise wrong(
            f"has {len(text)} characters; SageMaker takes {MAX_VARIABLE}",
            "Put it into a file of the source or a channel",
        )
    if "\0" in text:
        raise wrong("holds a NUL character", "Remove it")
    return text


def read_metrics(value: object) -> object:
    """Turn names alone, and patterns alone, into metrics by name."""
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list | tuple):
        if not all(isinstance(name, str) for name in value):
            raise wrong("is a list of more than names", "Write a mapping: validation_loss: {goal: minimize}")
        value = dict.fromkeys(value)
    if not isinstance(value, Mapping):
        raise wrong(
            "is neither a mapping nor a list of names", "Write validation_loss: {goal: minimize}, one line each"
        )
    if len(value) > _MAX_METRICS:
        raise wrong(f"holds {len(value)} metrics; SageMaker takes {_MAX_METRICS}", f"Keep the best {_MAX_METRICS}")
    return {
        name: {} if metric is None else {"pattern": metric} if isinstance(metric, str) else metric
        for name, metric in value.items()
    }


def read_metric_name(value: object) -> str:
    """Return the name of a metric: what CloudWatch and a terminal can show."""
    text = read_text(value)
    if not 1 <= len(text) <= _MAX_METRIC_NAME or not text.isprintable() or text != text.strip():
        raise wrong(
            f"is not the name of a metric: 1 to {_MAX_METRIC_NAME} printable characters, no space first or last",
            "Rename the metric, for example validation_loss",
        )
    return text


_NUMBER_GROUP: Final = "Put brackets around the number: loss=([0-9.eE+-]+)"


def read_metric_pattern(value: object) -> str:
    """Return a regular expression that finds a number in a line, in the forms that all regular expressions share.

    Left out is what depends on flags, on what is around, or compares with an earlier group: without flags, compiling
    takes no time to speak of. How long a search takes is bounded where it runs, in the job.
    """
    text = read_text(value)
    if not 1 <= len(text) <= _MAX_METRIC_PATTERN or _LINE_ENDS & set(text) or "\0" in text:
        raise wrong(
            f"is not a pattern of one line and 1 to {_MAX_METRIC_PATTERN} characters, which SageMaker takes",
            "Shorten it to what stands right before the number",
        )
    if re.search(r"\(\?(?!:)", re.sub(r"\\.", "", text)):
        raise wrong("has a group with an option: (?i), (?=...), (?P<name>...)", f"Use plain groups. {_NUMBER_GROUP}")
    if any(escaped[1] in "123456789" for escaped in re.finditer(r"\\(.)", text)):
        raise wrong("refers back to a group, as in \\1", f"Write out what stands there. {_NUMBER_GROUP}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            groups = re.compile(text).groups
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise wrong(f"is not a regular expression of Python ({str(error)[:100]})", _NUMBER_GROUP) from None
    if not groups:
        raise wrong("has no group, so it does not say where the number is", _NUMBER_GROUP)
    return text


def _is_tag_text(text: str) -> bool:
    return all(character in "_.:/=+-@" or unicodedata.category(character)[0] in "LNZ" for character in text)


TagKey = Annotated[
    _AnyText,
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
    _AnyText,
    must(
        lambda text: text.strip() and len(text) <= 128 and _is_tag_text(text),
        "is not an owner: 1 to 128 letters, digits, spaces and _ . : / = + - @",
        "Give a name or an e-mail address",
    ),
]


def read_tag_value(value: object) -> str:
    """Return the value of an AWS tag."""
    text = _scalar(value)
    if len(text) > 256 or not _is_tag_text(text):
        raise wrong(
            "is not a tag value: at most 256 letters, digits, spaces and _ . : / = + - @", "Change the value"
        )  # fmt: skip
    return text


def read_list(value: object) -> object:
    """Return a list; one text is a list of one."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise wrong("is not a list", "Write a list, even of one")


def read_fallbacks(value: object) -> object:
    """Return the fallbacks of a ladder, not empty and not too many."""
    listed = read_list(value)
    if isinstance(listed, list) and not listed:
        raise wrong("is empty", "Give at least one fallback, or leave it out")
    if isinstance(listed, list) and len(listed) > MAX_FALLBACKS:
        raise wrong(f"has {len(listed)} fallbacks; {MAX_FALLBACKS} are allowed", f"Keep the best {MAX_FALLBACKS}")
    return listed


def each_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what is named twice."""
    repeated = sorted(value for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise wrong(f"names {', '.join(repeated)} more than once", "Name each once")
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


DEADLINE_SCHEMA: Final = WithJsonSchema(
    {
        "anyOf": [
            {"type": "integer", "minimum": 1, "description": "seconds from the launch"},
            {"type": "string", "pattern": r"^\s*\d+\s*$|^\s*(\d+d)?\s*(\d+h)?\s*(\d+m)?\s*(\d+s)?\s*$"},
            {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"},
        ]
    },
    mode="validation",
)


TEXTS_SCHEMA: Final = WithJsonSchema(
    {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}, mode="validation"
)


S3_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": "^s3://", "maxLength": 1024}, mode="validation")
_INSTANCE_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": f"^(ml\\.)?{_EC2_TYPE}$"}, mode="validation")
S3Uri = Annotated[str, BeforeValidator(_s3_uri), S3_SCHEMA]
InstanceType = Annotated[str, BeforeValidator(_instance_type), _INSTANCE_SCHEMA]
UsDollars = Annotated[float, Strict(), Field(gt=0, le=1_000_000, allow_inf_nan=False)]
