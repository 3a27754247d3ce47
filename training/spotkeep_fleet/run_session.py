"""The credentials of a run's instance, and the request for them.

They are a session of the run role with the run's tags.

An instance's own credentials are the same for every run. With them the agent invokes the function
`instance_credentials`, and proves the identity of its instance. The agent signs a request for sts:GetCallerIdentity.
The function sends that to STS, and STS answers with the instance's id. The function believes nothing else that the
agent sends.

Sources: "Pass session tags in AWS STS" (IAM user guide). "GetCallerIdentity" (STS API reference), which needs no
permission.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

PROOF_BODY = b"Action=GetCallerIdentity&Version=2011-06-15"
PROOF_CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
AUDIENCE_HEADER = "x-spotkeep-audience"
"""A signed header of the request that holds the function's name. A proof for another service proves nothing."""
PROOF_HEADERS = ("authorization", "content-type", "x-amz-date", "x-amz-security-token", AUDIENCE_HEADER)
"""The headers that the function sends on to STS. STS adds no others to the signed ones."""
SESSION_SECONDS = 3600
"""STS's limit in seconds for a role that is assumed with the credentials of another role.

Source: "Methods to assume a role", IAM user guide.
"""


@dataclass(frozen=True)
class RunSession:
    """The session tags that bind a session of the run role, by these names.

    Attributes:
        run: The run's id.
        attempt: The number of the attempt that launched the instance.
        instance: The instance's id.
        runs: The prefix of the runs that it may read, `runs` or `teams/<team>/runs`.
        checkpoints: The prefix of the run's checkpoints, `<runs>/<run>/checkpoints`. It is the run's own, or that of an
            earlier run that it continues.
    """

    run: str
    attempt: str
    instance: str
    runs: str
    checkpoints: str

    def tags(self) -> dict[str, str]:
        """Return the session tags."""
        return asdict(self)


def of_the_session(tag: str) -> str:
    """Return the variable that IAM replaces with a session's tag. Without that tag, nothing matches.

    Source: "IAM policy elements: Variables and tags", IAM user guide.
    """
    return f"${{aws:PrincipalTag/{tag}}}"
