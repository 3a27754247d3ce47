"""Texts, numbers and addresses of a job document that pydantic's own types do not describe.

Each `read_...` takes one value, of any type, and gives it as the request keeps it. A reader refuses in words (`wrong`).
A text that stays as it is is a type with its rules (`must`).
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from spotkeep_fleet.secret_references import read_reference

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
