"""The access keys that a local AWS issues, and the principal that each stands for.

A request without an issued key is refused (`admission`). sts:GetCallerIdentity answers with the key's principal, and
the events of function URLs name it. The table lists the holders of keys.

| to | principal | how it is handed over | lives |
|---|---|---|---|
| the person who deploys | IAM user `administrator` | `credentials.json` of the state, mode 0600 | as that |
| the person who trains | IAM user `developer` | the same file | as that |
| the local AWS itself | the account's root | in memory | as long as the process |
| a function | session of its role, named as the function | environment, as in Lambda | as long as the process |
| an instance | session of its profile's role, named as the instance | metadata service | until it is terminated |
| a training job | session of its role, named `SageMaker` | environment | until it ends |
| a caller of sts:AssumeRole | as sts:AssumeRole answers | the answer | as long as was asked for |

`iam.judge` decides about the permissions of these principals. No signature is verified. The access key id counts, which
is random, and the session token where there is one. Both are in the requests, and requests stay on loopback.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import string
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import parse_qs

from spotkeep_local.errors import PersistenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class ServiceCall:
    """A call that one of AWS's services is about to make by itself.

    Attributes:
        service: The service's principal, for example `events.amazonaws.com`. Also the name of its session where it acts
            in a role.
        actions: The actions as in policies.
        resource: The ARN of the resource, or `*` where the actions know no resource types.
        source_arn: The ARN of the rule, schedule, topic, function or experiment that it acts for.
        role_arn: The role in which it acts. None where it acts as itself.
    """

    service: str
    actions: tuple[str, ...]
    resource: str
    source_arn: str
    role_arn: str | None = None


ADMINISTRATOR: Final = "administrator"
"""The IAM user that owns the account. It bootstraps, deploys, and decides about the permissions of others."""
DEVELOPER: Final = "developer"
"""The IAM user for training. It has the permissions that the deployment gives its users, and none before that."""
PEOPLE: Final = (ADMINISTRATOR, DEVELOPER)
_KEY_ALPHABET = string.ascii_uppercase + "234567"
_KEY_LETTERS = 16
_HEADER = re.compile(r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/|AWS (?P<old>[^:\s]+):")


@dataclass(frozen=True, kw_only=True)
class Principal:
    """An acting principal, as sts:GetCallerIdentity answers.

    Attributes:
        arn: The ARN, for example `arn:aws:sts::000000000000:assumed-role/<role>/<session>`.
        user_id: The user id, for example `<role id>:<session>`.
        account_id: Twelve digits.
    """

    arn: str
    user_id: str
    account_id: str


@dataclass(frozen=True, kw_only=True)
class AccessKey:
    """Credentials and the principal they are of.

    Attributes:
        session_token: None for a key that is not temporary.
        expires_at: Epoch seconds. None for a key that its holder loses instead.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    principal: Principal
    session_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None

    def environment(self) -> dict[str, str]:
        """Return the variables that AWS clients read."""
        variables = {"AWS_ACCESS_KEY_ID": self.access_key_id, "AWS_SECRET_ACCESS_KEY": self.secret_access_key}
        return variables if self.session_token is None else {**variables, "AWS_SESSION_TOKEN": self.session_token}

    def allows(self, session_token: str | None) -> bool:
        """Return whether a request that names this key, with this token, comes from its holder."""
        return secrets.compare_digest((self.session_token or "").encode(), (session_token or "").encode())


@dataclass(frozen=True, kw_only=True)
class PersonKeys:
    """The keys of the people at the command line."""

    administrator: AccessKey
    developer: AccessKey


class Sessions(Protocol):
    """The sessions that STS knows.

    Sessions that are issued elsewhere are added, so that STS answers with their principals.
    """

    def find(self, access_key_id: str) -> AccessKey | None:
        """Return the session with this key. None when there is none."""
        ...

    def add(self, key: AccessKey) -> None:
        """Make a key known."""
        ...

    def remove(self, key: AccessKey) -> None:
        """Forget a key."""
        ...


class CredentialRegistry:
    """All keys of one running local AWS. Safe to call from any thread.

    Args:
        account_id: The account id of the principals.
        people: The keys of the people at the command line.
        sessions: Those that sts:AssumeRole hands out.
        role_id: The unique id of a role, by its name.
    """

    def __init__(
        self,
        *,
        account_id: str,
        people: PersonKeys,
        sessions: Sessions,
        role_id: Callable[[str], str],
    ) -> None:
        self._account_id = account_id
        self._sessions = sessions
        self._role_id = role_id
        self._lock = threading.Lock()
        root = Principal(arn=f"arn:aws:iam::{account_id}:root", user_id=account_id, account_id=account_id)
        self.own = AccessKey(access_key_id=_new_id("AKIA"), secret_access_key=_new_secret(), principal=root)
        """The key with which the local AWS calls its own services."""
        self._keys = {key.access_key_id: key for key in (people.administrator, people.developer, self.own)}
        for key in self._keys.values():
            sessions.add(key)
        self._key_of_holder: dict[str, AccessKey] = {}

    def find(self, access_key_id: str) -> AccessKey | None:
        """Return the key with this id. None when this local AWS did not issue it, or has taken it back."""
        return self._keys.get(access_key_id) or self._sessions.find(access_key_id)

    def of_role(self, role: str, *, session: str, holder: str) -> AccessKey:
        """Return the key of a holder that acts in a role. The same one each time, until it is revoked.

        Args:
            role: The role's ARN or name.
            session: The session's name.
            holder: The ARN of the function, instance or training job that gets the key.
        """
        name = role.rpartition("/")[2]
        arn = f"arn:aws:sts::{self._account_id}:assumed-role/{name}/{session}"
        with self._lock:
            held = self._key_of_holder.get(holder)
        if held is not None and held.principal.arn == arn:
            return held
        # Without the lock: the id is looked up in IAM.
        principal = Principal(arn=arn, user_id=f"{self._role_id(name)}:{session}", account_id=self._account_id)
        made = AccessKey(
            access_key_id=_new_id("ASIA"),
            secret_access_key=_new_secret(),
            session_token=secrets.token_urlsafe(48),
            principal=principal,
        )
        with self._lock:
            now_held = self._key_of_holder.get(holder)
            if now_held is not None and now_held.principal.arn == arn:
                return now_held
            if now_held is not None:
                self._forget(now_held)
            self._key_of_holder[holder] = self._keys[made.access_key_id] = made
            self._sessions.add(made)
        return made

    def revoke(self, holder: str) -> None:
        """Take back the keys of a holder. Nothing happens when it has none."""
        with self._lock:
            if (held := self._key_of_holder.pop(holder, None)) is not None:
                self._forget(held)

    def _forget(self, key: AccessKey) -> None:
        del self._keys[key.access_key_id]
        self._sessions.remove(key)


def access_key_id_of(headers: Mapping[str, str], query: str) -> str | None:
    """Return the access key id that a request names, in its signature's header or, presigned, in its query.

    Args:
        headers: By their names in lower case.
        query: The query as sent, without the question mark.

    Returns:
        None for a request that is not signed.
    """
    if authorization := headers.get("authorization"):
        found = _HEADER.match(authorization)
        return (found["key"] or found["old"]) if found else None
    parameters = parse_qs(query)
    presigned = _first(parameters, "X-Amz-Credential")
    return presigned.partition("/")[0] if presigned else _first(parameters, "AWSAccessKeyId")


def session_token_of(headers: Mapping[str, str], query: str) -> str | None:
    """Return the session token that a request carries, in a header or, presigned, in its query. None without one."""
    if token := headers.get("x-amz-security-token"):
        return token
    parameters = parse_qs(query)
    return _first(parameters, "X-Amz-Security-Token") or _first(parameters, "x-amz-security-token")


def make_person_keys(path: Path, *, account_id: str) -> PersonKeys:
    """Return the keys of the people at the command line, from the file, or new ones that are written there.

    Args:
        path: `credentials.json` of a state directory.
        account_id: The account id of the principals.

    Raises:
        PersistenceError: The file is no valid `credentials.json`, or cannot be written.
    """
    if (kept := read_person_keys(path, account_id=account_id)) is not None:
        return kept
    made = {name: {"access_key_id": _new_id("AKIA"), "secret_access_key": _new_secret()} for name in PEOPLE}
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(made, file)
        temporary.replace(path)
    except OSError as error:
        raise PersistenceError(f"the local AWS cannot keep its access keys in {path}: {error.strerror}") from error
    return _person_keys(made, account_id)


def read_person_keys(path: Path, *, account_id: str) -> PersonKeys | None:
    """Read the keys that `make_person_keys` wrote. None when there is no file.

    Raises:
        PersistenceError: The file has another content.
    """
    try:
        return _person_keys(json.loads(path.read_text()), account_id)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PersistenceError(
            f"{path} holds no access keys ({error!r}); stop the local AWS, delete the file, and start it again"
        ) from error


def _person_keys(document: Mapping[str, Mapping[str, str]], account_id: str) -> PersonKeys:
    return PersonKeys(**{name: _person(name, document[name], account_id) for name in PEOPLE})


def _person(name: str, kept: Mapping[str, str], account_id: str) -> AccessKey:
    access_key_id = str(kept["access_key_id"])
    # The same as long as the key is, and says nothing of it: user ids are recorded and shown.
    digest = base64.b32encode(hashlib.sha256(access_key_id.encode()).digest()).decode()
    principal = Principal(
        arn=f"arn:aws:iam::{account_id}:user/{name}", user_id=f"AIDA{digest[:17]}", account_id=account_id
    )
    return AccessKey(access_key_id=access_key_id, secret_access_key=str(kept["secret_access_key"]), principal=principal)


def _new_id(beginning: str) -> str:
    return beginning + "".join(secrets.choice(_KEY_ALPHABET) for _ in range(_KEY_LETTERS))


def _new_secret() -> str:
    return secrets.token_urlsafe(30)


def _first(parameters: Mapping[str, list[str]], name: str) -> str | None:
    values = parameters.get(name)
    return values[0] if values else None
