"""References to secrets of AWS Secrets Manager, as job files write them, and the value in AWS's answer.

A reference is the name or the whole ARN of a secret. `:<key>::` behind it takes one key of a secret that holds a JSON
object, as in a task definition of Amazon ECS. A reference holds no value, so records and specs may hold references.

Sources: "Pass Secrets Manager secrets through Amazon ECS environment variables" (Amazon ECS developer guide).
GetSecretValue (AWS Secrets Manager API reference).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable

from .errors import SecretError

GET_VALUE = "secretsmanager.GetSecretValue"
"""The target header of the call that reads a value."""
_NAME = r"[A-Za-z0-9/_+=.@-]{1,512}"
_ARN = re.compile(rf"arn:aws[a-z-]*:secretsmanager:([a-z0-9-]+):[0-9]{{12}}:secret:({_NAME})-[A-Za-z0-9]{{6}}")
_REFERENCE = re.compile(rf"({_ARN.pattern}|{_NAME})(?::([^:\x00-\x1f]{{1,256}})::)?")
_ADVICE = {
    "AccessDeniedException": "Name it in the deployment's setting secrets, and its KMS key, if it has one of its own, "
    "in secret_key_arns, and deploy again. A policy of the secret or of the key may deny it, too",
    "DecryptionFailure": "Name its KMS key in the deployment's setting secret_key_arns, and look whether the key is "
    "enabled",
    "InvalidRequestException": "Where it is scheduled for deletion, aws secretsmanager restore-secret brings it back",
    "ResourceNotFoundException": "Correct the name in the job file, or create the secret or its first value in this "
    "region",
}
"""The remedy of a refusal, by AWS's error code."""
_LONGEST_MESSAGE = 300
_SHORTEST_MASKED = 4
"""Values with fewer characters are not masked. They hide nothing, and stand in too many words."""
_MASK = "***"


@dataclass(frozen=True)
class SecretReference:
    """A reference to a secret.

    Attributes:
        secret: The name or the ARN of the secret, as GetSecretValue takes it.
        key: The key of the JSON object in the secret. None for the whole value.
    """

    secret: str
    key: str | None = None

    @property
    def region(self) -> str | None:
        """The region in its ARN. None for a name."""
        found = _ARN.fullmatch(self.secret)
        return None if found is None else found[1]

    @property
    def name(self) -> str:
        """The name of the secret, without the six characters that AWS adds to it in an ARN."""
        found = _ARN.fullmatch(self.secret)
        return self.secret if found is None else found[2]


def read_reference(text: str) -> SecretReference | None:
    """Read a reference. Return None where a text is none."""
    found = _REFERENCE.fullmatch(text)
    if found is None or (found[1].startswith("arn:") and _ARN.fullmatch(found[1]) is None):
        return None
    return SecretReference(found[1], found[4])


def secret_values(references: Iterable[str], ask: Callable[[str], Mapping[str, Any]]) -> dict[str, str]:
    """Return the values of references, by the reference. Each secret is asked for once.

    Args:
        references: The references.
        ask: Returns the answer of GetSecretValue for a name or an ARN.

    Raises:
        SecretError: A secret holds no such value. The error names the secret and no value.
    """
    answers: dict[str, Mapping[str, Any]] = {}
    values = {}
    for text in references:
        reference = read_reference(text)
        if reference is None:
            raise SecretError("the training spec refers to a secret by something else than its name or its ARN")
        if reference.secret not in answers:
            answers[reference.secret] = ask(reference.secret)
        values[text] = _value_in(answers[reference.secret], reference)
    return values


def refusal(secret: str, *, code: str, message: str) -> SecretError:
    """Return the error of a secret that AWS refuses to give.

    Args:
        secret: Its name or ARN.
        code: AWS's error code.
        message: AWS's message.
    """
    said = f"{code}: {message[:_LONGEST_MESSAGE]}".rstrip(". ")
    advice = _ADVICE.get(code)
    return SecretError(f"the secret {secret} cannot be read: {said}{f'. {advice}' if advice else ''}")


def without_values(text: str, values: Iterable[str]) -> str:
    """Return a text with each secret value in it masked, and each long line of a value.

    Args:
        text: A text that may hold output of a script.
        values: The values of the script's secrets.
    """
    hidden = {part for value in values for part in (value, value.strip(), *_long_lines(value))}
    for part in sorted(hidden, key=len, reverse=True):
        if len(part) >= _SHORTEST_MASKED:
            text = text.replace(part, _MASK)
    return text


def _long_lines(value: str) -> list[str]:
    """Return the lines of a value of several lines, such as a key in PEM."""
    lines = value.splitlines()
    return [line for line in lines if len(line) >= 4 * _SHORTEST_MASKED] if len(lines) > 1 else []


def _value_in(answer: Mapping[str, Any], reference: SecretReference) -> str:
    text: Any = answer.get("SecretString")
    if not isinstance(text, str):
        raise SecretError(f"the secret {reference.secret} holds binary data; store it as text")
    value = text if reference.key is None else _value_of_key(text, reference.secret, reference.key)
    if not value or "\0" in value:
        raise SecretError(
            f"the secret {reference.secret} holds {'a NUL character' if value else 'no character'}, which no "
            "environment variable can hold; store another value"
        )
    return value


def _value_of_key(text: str, secret: str, key: str) -> str:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise SecretError(f"the secret {secret} holds no JSON object, and the job file asks for its key {key}")
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise SecretError(f"the JSON object in the secret {secret} has no text or number with the key {key}")
    return value if isinstance(value, str) else json.dumps(value)
