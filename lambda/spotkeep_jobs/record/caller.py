"""The caller of the launcher, as AWS names a principal. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

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
