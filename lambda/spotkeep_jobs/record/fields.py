"""The types of the fields of records, with their largest sizes, and changed copies of a record. Pure.

DynamoDB takes items of 400 KB. It refuses every later write to a larger item. Each text, list, mapping and document of
a record has one of these bounds.

The launcher refuses a larger request at its edge and names the field. Two modules `attempt_view` add up the
values that grow while a run lives. Texts from AWS, a script or a user are cut when they are written. A test builds
each record at all of its bounds, and measures it.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Self, TypeAlias

from pydantic import PlainSerializer

from spotkeep_fleet.printable_text import printable

if TYPE_CHECKING:
    # mypy checks the fields of a changed copy by name and by type. It takes a model of pydantic for a dataclass here.
    from dataclasses import replace as with_changes
else:

    def with_changes(model: Any, /, **changes: Any) -> Any:
        """Return a copy of a frozen model with other values in some fields. The values are not validated.

        `model_copy` takes a dictionary with strings as names, so no check sees a wrong name or a wrong type.
        """
        return model.model_copy(update=changes)


__all__ = ["with_changes"]


_NAME: Final = r"[\w+=,.@-]{1,64}"
_PRINCIPAL: Final = re.compile(
    rf"arn:aws[a-z-]*:(?:sts::\d{{12}}:(?:assumed-role/{_NAME}|federated-user)/(?P<session>{_NAME})"
    rf"|iam::\d{{12}}:(?:user/(?:[!-.0-~]+/)*(?P<user>{_NAME})|(?P<root>root)))",
    re.ASCII,
)
"""Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html"""
_LONGEST_ARN: Final = 700
"""A user's path has at most 512 characters, a name 64."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A principal that called the launcher.

    Attributes:
        arn: A session of a role (`arn:aws:sts::111122223333:assumed-role/Vision/ada`), a user, or the account's root.
        name: The session's or the user's name. A principal that may assume a role chooses the session's name, unless
            the role's trust policy binds `sts:RoleSessionName`. AWS IAM Identity Center sets it to the person's user
            name.
        verified: True when AWS itself stated the principal. Otherwise a principal that may invoke the function directly
            can have written it.
    """

    arn: str
    name: str
    verified: bool

    @classmethod
    def of(cls, arn: object, *, verified: bool) -> Self | None:
        """Read a principal's ARN.

        Args:
            arn: The ARN as an event states it, which may be any text.
            verified: True when AWS alone can have written it.

        Returns:
            None for a text that is no principal's ARN.
        """
        found = _PRINCIPAL.fullmatch(arn) if isinstance(arn, str) and len(arn) <= _LONGEST_ARN else None
        if found is None:
            return None
        return cls(arn=found[0], name=found["session"] or found["user"] or found["root"], verified=verified)


@dataclass(frozen=True)
class AtMost:
    """A bound of a field.

    Attributes:
        count: The characters of a text, the entries of a list or a mapping, the bytes of a document as JSON.
        ascii: Whether a text has ASCII characters alone.
        cut: Whether a text is cut when it is written: to so many bytes.
    """

    count: int
    ascii: bool = False
    cut: bool = False


MAX_DOCUMENT_BYTES: Final = 150_000
"""A job document as JSON, as its run records it."""
MAX_DOCUMENTS_BYTES: Final = 1_000_000
"""Bytes of all documents of a launch of several runs. They are recorded in one transaction of 4 MB at most."""
MAX_JOB_REQUEST_BYTES: Final = 200_000
"""Bytes of the request that a job document becomes.

It has the document's texts and the part that is the same in every request.
"""
MAX_SWEEP_BYTES: Final = 300_000
"""A sweep's document as JSON, with the trials that it lists."""
MAX_PARAMETERS_BYTES: Final = 16_000
"""Bytes of the parameters of one trial as JSON. One transaction records 90 trials."""
MAX_PLAN_BYTES: Final = 65_536
"""Bytes of the policy that steers a run, as JSON. Some eight kilobytes are usual."""

LONGEST_WORDS: Final = 1024
"""Bytes: as many as the characters of a training job's FailureReason."""


def shortened(text: str, count: int) -> str:
    """Return a text of at most so many bytes, without characters that DynamoDB, JSON or a terminal would change."""
    return printable(text).encode("utf-8", "replace")[:count].decode("utf-8", "ignore")


def _cut(count: int) -> PlainSerializer:
    return PlainSerializer(lambda text: shortened(text, count), return_type=str, when_used="json")


Id: TypeAlias = Annotated[str, AtMost(64, ascii=True)]
"""The name of a run, a sweep, a job, an instance, a zone or an instance type. AWS or Spotkeep chooses it."""
Label: TypeAlias = Annotated[str, AtMost(256)]
"""A name that a user chooses, such as that of a run, an owner or a team."""
Address: TypeAlias = Annotated[str, AtMost(2048, ascii=True)]
"""An ARN, a URL, an address in S3."""
Line: TypeAlias = Annotated[str, AtMost(160, cut=True), _cut(160)]
"""A line of ours about an instance, a code of AWS's."""
Sentence: TypeAlias = Annotated[str, AtMost(320, cut=True), _cut(320)]
"""One finding of a list, in a sentence."""
Command: TypeAlias = Annotated[str, AtMost(512, ascii=True)]
"""A command that a person may run, or the thing that it is about.

It is never cut, for a shorter one would do something else.
"""
Words: TypeAlias = Annotated[str, AtMost(LONGEST_WORDS, cut=True), _cut(LONGEST_WORDS)]
"""A reason in the words of AWS, of a script or of Spotkeep."""
Letter: TypeAlias = Annotated[str, AtMost(16_384, cut=True), _cut(16_384)]
"""The text of a notification."""
PriceNames: TypeAlias = Annotated[tuple[Line, ...], AtMost(20)]
"""The names of missing prices."""
Document: TypeAlias = Annotated[dict[str, Any], AtMost(MAX_DOCUMENT_BYTES)]
