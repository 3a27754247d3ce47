"""The credentials of a run's instance: a session of the run role, whose tags say which run. And how to ask for them.

An instance's own credentials are the same for every run. With them the agent invokes the function
`instance_credentials`, and proves which instance it is: it signs a request for sts:GetCallerIdentity, and the function
sends it to STS, which answers with the instance's id. Nothing else that the agent sends is believed.

Sources: "Pass session tags in AWS STS" (IAM user guide); "GetCallerIdentity" (STS API reference), which needs no
permission
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

PROOF_BODY = b"Action=GetCallerIdentity&Version=2011-06-15"
PROOF_CONTENT_TYPE = "application/x-www-form-urlencoded; charset=utf-8"
AUDIENCE_HEADER = "x-spotkeep-audience"
"""A signed header of the request that holds the function's name: what was signed for another service proves nothing."""
PROOF_HEADERS = ("authorization", "content-type", "x-amz-date", "x-amz-security-token", AUDIENCE_HEADER)
"""What the function sends on to STS. STS adds no others to what is signed."""
SESSION_SECONDS = 3600
"""STS's limit where a role is assumed with the credentials of another: "Methods to assume a role", IAM user guide."""


@dataclass(frozen=True)
class RunSession:
    """What a session of the run role is bound to: its session tags, by these names.

    Attributes:
        run: The run's id.
        attempt: The number of the attempt that launched the instance.
        instance: The instance's id.
        runs: The prefix of the runs that it may read, `runs` or `teams/<team>/runs`.
        checkpoints: The prefix of the run's checkpoints, `<runs>/<run>/checkpoints`: its own, or that of an earlier
            run that it goes on from.
    """

    run: str
    attempt: str
    instance: str
    runs: str
    checkpoints: str

    def tags(self) -> dict[str, str]:
        """Give the session tags."""
        return asdict(self)


def of_the_session(tag: str) -> str:
    """Give the variable that IAM replaces with a session's tag. Without that tag, nothing matches.

    Source: "IAM policy elements: Variables and tags", IAM user guide.
    """
    return f"${{aws:PrincipalTag/{tag}}}"
