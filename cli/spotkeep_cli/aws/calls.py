"""Calls AWS for the command line.

It has the clients, the names of a deployment's resources, and AWS's errors in a user's words.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    SSOError,
)
from botocore.exceptions import (
    ConnectionError as AwsConnectionError,
)
from pydantic import BaseModel, ConfigDict, Field

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import NoConnectionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


ClientFactory = Callable[..., Any]
"""`boto3.Session.client`, or the local AWS's."""
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthorizationError"}
_STALE = {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException",
    "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired"}  # fmt: skip


class Connection(BaseModel):
    """The content of the SSM parameter `/<deployment>/connection`. Fields this version does not know are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: int
    deployment: str
    region: str
    launcher_function: str
    controller_function: str
    launcher_url: str = Field(default="", pattern=r"^(https://\S+|http://127\.0\.0\.1:\d+/\S+)?$")
    """The URL of the launcher. Empty in a region without function URLs.

    The command line invokes the launcher directly there.
    """
    run_table: str
    checkpoint_bucket: str
    isolated_teams: str = ""
    """The teams with separate storage for their runs, separated by spaces."""
    notification_topic_arn: str
    dead_notification_queue_url: str
    """The URL of the queue with the notifications that could not be sent."""
    fleet_log_group: str = ""
    """The log group of the instances of runs on EC2. Empty in a deployment without fleets."""
    drill_template_id: str = ""
    """The experiment that takes an instance away. Empty in a deployment without drills."""
    queue_instances: str = Field(default="", pattern=r"^(\S+=\d+( \S+=\d+)*)?$")
    """The most instances of each type that all queues together may have at work.

    An example is `ml.g5.2xlarge=20 ml.m5.large=4`.
    """

    def instances_of_queues(self) -> dict[str, int]:
        """Return the most instances of each type that all queues together may have at work."""
        pairs = (entry.split("=") for entry in self.queue_instances.split())
        return {instance_type: int(instances) for instance_type, instances in pairs}


@contextmanager
def translated_aws_errors(
    doing: str, *, options: ConnectionOptions, payload: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Turn botocore's errors into one line and a hint.

    Args:
        doing: The current action, for the message, such as `reading the run table`.
        options: The user's options for the deployment.
        payload: The launch document, whose token makes a repeat safe.

    Raises:
        NoConnectionError: AWS refused, or could not be reached.
    """
    try:
        yield
    except (NoCredentialsError, PartialCredentialsError, SSOError) as error:
        raise NoConnectionError(
            f"{doing}: no usable AWS credentials ({error})",
            hint="sign in (`aws sso login`, `aws configure`) or name a profile: spotkeep --profile NAME ...",
        ) from error
    except ClientError as error:
        raise NoConnectionError(f"{doing}: {_words(error)}", hint=_hint_for(error, options=options)) from error
    except (AwsConnectionError, HTTPClientError) as error:
        raise NoConnectionError(
            f"{doing}: no connection ({error})", hint=_reconnect_hint(options=options, payload=payload)
        ) from error
    except BotoCoreError as error:
        raise NoConnectionError(f"{doing}: {error}", hint="check the AWS configuration: aws configure list") from error


def _words(error: ClientError) -> str:
    details = error.response.get("Error", {})
    return f"{details.get('Code', 'error')}: {details.get('Message', str(error))}"


def _hint_for(error: ClientError, *, options: ConnectionOptions) -> str:
    code = error.response.get("Error", {}).get("Code", "")
    if code in _DENIED:
        return f"ask for the managed policy of users of the deployment {options.deployment!r}"
    if code in _STALE:
        return "the credentials are out of date; sign in again (aws sso login)"
    if code in {"ResourceNotFoundException", "NoSuchBucket"}:
        return "the deployment is not complete; deploy it again: cdk deploy --all"
    if code == "RequestTooLargeException":
        return "AWS takes requests of 6 MB; a document is far smaller, so something in it is not meant to be there"
    if "Throttl" in code or code == "TooManyRequestsException":
        return "AWS is busy with this account's calls; try again in a moment"
    return "try again; if it stays, check the AWS service's status in this region"


def _reconnect_hint(*, options: ConnectionOptions, payload: Mapping[str, Any] | None) -> str:
    if payload is not None and payload.get("action") is None:
        return repeat_hint(payload)
    if options.local:
        return "is the local AWS still up? spotkeep local status"
    return "check the network and the region"


def repeat_hint(payload: Mapping[str, Any]) -> str:
    """Return a hint to repeat the request without launching twice."""
    if not payload.get("token"):
        return "try again: asking twice does no harm"
    return (
        "it may or may not have been launched; the same token again is safe and launches nothing twice: "
        f"--set token={payload['token']}"
    )
