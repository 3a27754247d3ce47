"""Pure decisions about the asking instance and its run, from the answers of STS and EC2.

The caller's claims decide nothing.

The name of a session of an instance's role is the instance's id. EC2 gives the session that name. No other service and
no principal may assume the role. EC2 knows the instance's tags. The launcher wrote them with the launch, and no
permission of an instance changes them.

Sources:
    https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html (Principal key values)
    https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html (characters of session tags)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from spotkeep_fleet.run_session import AUDIENCE_HEADER, PROOF_CONTENT_TYPE, PROOF_HEADERS, RunSession
from spotkeep_fleet.tags import ATTEMPT_TAG, CHECKPOINTS_TAG, DEPLOYMENT_TAG, RUN_TAG

ALIVE: Final = frozenset({"pending", "running"})
"""States of an instance that may have credentials. An ending one keeps its credentials, for an hour at most."""

_LONGEST_HEADER: Final = 4_096
"""The longest header in characters. Session tokens have some 1,500. STS sets no limit."""
_SIGNED: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=[A-Z0-9]+/[0-9]{8}/[a-z0-9-]+/sts/aws4_request, ?"
                            r"SignedHeaders=(?P<names>[a-z0-9;-]+), ?Signature=[0-9a-f]{64}")  # fmt: skip
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_NAME: Final = r"[a-zA-Z0-9](?:-*[a-zA-Z0-9])*"
_RUN: Final = re.compile(rf"(?={_NAME}\Z).{{1,52}}", re.ASCII)
_ATTEMPT: Final = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)
_CHECKPOINTS: Final = re.compile(rf"(?P<runs>(?:teams/[a-z][a-z0-9-]*/)?runs)/{_NAME}/checkpoints", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class CredentialsRefusal:
    """The reason for giving an instance no credentials.

    Attributes:
        code: A code of one word for the reason.
        problem: The problem in a sentence, with the value found.
    """

    code: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class InstanceDescription:
    """EC2's description of an instance.

    Attributes:
        instance: Its id.
        state: Its state, for example `running`.
        tags: Its tags.
    """

    instance: str
    state: str
    tags: Mapping[str, str]


def read_proof(event: object, *, audience: str) -> dict[str, str] | CredentialsRefusal:
    """Return the headers of a signed request for sts:GetCallerIdentity, as the function sends them to STS.

    Args:
        event: The event of the invocation. It may be anything at all.
        audience: The name of the function for which the request must be signed.

    Returns:
        The headers. A refusal for an event that is no such request, or that was signed for another service.
    """
    given = event.get("headers") if isinstance(event, Mapping) else None
    if not isinstance(given, Mapping):
        return CredentialsRefusal(code="no-proof", problem="the event holds no object `headers`")
    headers = {name: given[name] for name in PROOF_HEADERS if isinstance(given.get(name), str)}
    if missing := [name for name in PROOF_HEADERS if name not in headers]:
        return CredentialsRefusal(code="no-proof", problem=f"the proof lacks {', '.join(missing)}")
    if any(
        len(value) > _LONGEST_HEADER or not value.isascii() or not value.isprintable() for value in headers.values()
    ):
        return CredentialsRefusal(code="no-proof", problem="a header of the proof is no header's value")
    signature = _SIGNED.fullmatch(headers["authorization"])
    if signature is None:
        return CredentialsRefusal(code="no-proof", problem="the proof is not signed for STS with Signature Version 4")
    if unsigned := sorted({*PROOF_HEADERS, "host"} - {"authorization"} - set(signature["names"].split(";"))):
        return CredentialsRefusal(
            code="no-proof", problem=f"the proof's signature does not cover {', '.join(unsigned)}"
        )
    if headers["content-type"] != PROOF_CONTENT_TYPE:
        return CredentialsRefusal(code="no-proof", problem="the proof is no request for sts:GetCallerIdentity")
    if headers[AUDIENCE_HEADER] != audience:
        return CredentialsRefusal(code="foreign-proof", problem=f"the proof was not signed for {audience}")
    return headers


def instance_of(caller_arn: str, *, role_arn: str) -> str | CredentialsRefusal:
    """Return the instance behind a principal.

    Args:
        caller_arn: The ARN in the answer of sts:GetCallerIdentity,
            `arn:aws:sts::<account>:assumed-role/<role>/<session>`.
        role_arn: The role of the deployment's instances, `arn:aws:iam::<account>:role/<role>`.

    Returns:
        Its id. A refusal for any other principal.
    """
    role, _, session = caller_arn.rpartition("/")
    expected = role_arn.replace(":iam:", ":sts:", 1).replace(":role/", ":assumed-role/", 1)
    if role != expected or not _INSTANCE.fullmatch(session):
        return CredentialsRefusal(code="no-instance", problem=f"{caller_arn} is no instance of this deployment")
    return session


def session_of(facts: InstanceDescription | None, *, deployment: str) -> RunSession | CredentialsRefusal:
    """Return the session to which an instance's credentials are bound.

    Args:
        facts: EC2's description of the instance. None when EC2 knows no such instance.
        deployment: The deployment of this function.
    """
    if facts is None:
        return CredentialsRefusal(code="unknown-instance", problem="EC2 knows no such instance")
    if facts.state not in ALIVE:
        return CredentialsRefusal(code="not-running", problem=f"{facts.instance} is {facts.state}")
    if facts.tags.get(DEPLOYMENT_TAG) != deployment:
        return CredentialsRefusal(
            code="foreign-instance", problem=f"{facts.instance} is not tagged {DEPLOYMENT_TAG}={deployment}"
        )
    run, attempt, checkpoints = (facts.tags.get(tag, "") for tag in (RUN_TAG, ATTEMPT_TAG, CHECKPOINTS_TAG))
    place = _CHECKPOINTS.fullmatch(checkpoints)
    problems = [
        f"{tag} is {value[:80]!r}"
        for tag, value, good in (
            (RUN_TAG, run, _RUN.fullmatch(run)),
            (ATTEMPT_TAG, attempt, _ATTEMPT.fullmatch(attempt)),
            (CHECKPOINTS_TAG, checkpoints, place),
        )
        if not good
    ]
    if problems or place is None:
        return CredentialsRefusal(
            code="no-run", problem=f"the tags of {facts.instance} name no run: {', '.join(problems)}"
        )
    return RunSession(run=run, attempt=attempt, instance=facts.instance, runs=place["runs"], checkpoints=checkpoints)
