"""The Lambda entry point. An instance proves its identity, and gets the credentials of its run for an hour.

The function believes nothing in its event. STS names the instance that signed the proof, and EC2 names the run of the
instance. So another principal that invokes it gets no credentials, with any event.

No other module calls STS and EC2.
"""

from __future__ import annotations

import functools
import http.client
import os
import re
import ssl
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import boto3
from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from instance_credentials.decisions import CredentialsRefusal, InstanceDescription, instance_of, read_proof, session_of
from spotkeep_fleet.run_session import PROOF_BODY, SESSION_SECONDS, RunSession
from spotkeep_jobs.backends.sagemaker.api import client_config
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.settings import CredentialsSettings
from spotkeep_jobs.temporary_errors import call_error
from spotkeep_jobs.tracing import traced

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_sts import STSClient

_TIMEOUT_SECONDS: Final = 5
_MOST_BYTES: Final = 2**16
_OK: Final = 200
_TOO_MANY: Final = 429
_SERVER_ERROR: Final = 500
_GONE: Final = re.compile(r"InvalidInstanceID\.(NotFound|Malformed)")


class Boto3Aws:
    """The interface to EC2 and STS. Every call raises the kinds of AwsCallError, which are refused and busy.

    Args:
        ec2: EC2's client.
        sts: STS's client. Proofs go to its endpoint, too.
        run_role_arn: The role to assume.
    """

    def __init__(self, *, ec2: EC2Client, sts: STSClient, run_role_arn: str) -> None:
        self._ec2 = ec2
        self._sts = sts
        self._run_role_arn = run_role_arn

    def caller(self, headers: Mapping[str, str], /) -> str | None:
        """Send a signed request for sts:GetCallerIdentity. Return the ARN of its signer. None if STS refuses it."""
        status, body = _post(self._sts.meta.endpoint_url, headers)
        if status == _TOO_MANY or status >= _SERVER_ERROR:
            raise AwsBusyError(operation="GetCallerIdentity", code=str(status), reason="STS did not answer")
        if status != _OK:
            return None
        try:
            # An answer of AWS's, over TLS; Python's expat bounds expansion.
            arn = ET.fromstring(body).findtext(".//{*}Arn")  # noqa: S314
        except ET.ParseError as error:
            raise AwsBusyError(operation="GetCallerIdentity", code="NoXml", reason=str(error)) from error
        return arn or None

    def instance(self, instance: str, /) -> InstanceDescription | None:
        """Describe an instance. None when EC2 does not know it (yet, or any more)."""
        try:
            answer = self._ec2.describe_instances(InstanceIds=[instance])
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and _GONE.fullmatch(error.response["Error"]["Code"]):
                return None
            raise call_error("DescribeInstances", error) from error
        for reservation in answer["Reservations"]:
            for found in reservation["Instances"]:
                if found["InstanceId"] == instance:
                    tags = {tag["Key"]: tag["Value"] for tag in found.get("Tags", [])}
                    return InstanceDescription(instance=instance, state=found["State"]["Name"], tags=tags)
        return None

    def assume(self, session: RunSession, /) -> dict[str, str]:
        """Return a session of the run role, as the metadata service writes an instance's credentials."""
        try:
            answer = self._sts.assume_role(
                RoleArn=self._run_role_arn,
                # CloudTrail then names the instance with each call.
                RoleSessionName=session.instance,
                DurationSeconds=SESSION_SECONDS,
                Tags=[{"Key": name, "Value": value} for name, value in session.tags().items()],
            )
        except (ClientError, BotoCoreError) as error:
            raise call_error("AssumeRole", error) from error
        given = answer["Credentials"]
        return {
            "AccessKeyId": given["AccessKeyId"],
            "SecretAccessKey": given["SecretAccessKey"],
            "Token": given["SessionToken"],
            "Expiration": given["Expiration"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


def _post(endpoint: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Send the proof to STS. Address, path and body are the function's own. Only judged headers go along."""
    parts = urlsplit(endpoint)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            parts.netloc, timeout=_TIMEOUT_SECONDS, context=ssl.create_default_context()
        )
    else:
        connection = http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("POST", "/", PROOF_BODY, dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read(_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise AwsBusyError(operation="GetCallerIdentity", code=type(error).__name__, reason=str(error)) from error
    finally:
        connection.close()


_SERVICE: Final = os.environ.get("POWERTOOLS_SERVICE_NAME", "instance_credentials")

logger = Logger(service=_SERVICE)


@functools.cache
def _production_aws() -> Boto3Aws:
    config = client_config()
    return Boto3Aws(
        ec2=boto3.client("ec2", config=config),
        sts=boto3.client("sts", config=config),
        run_role_arn=CredentialsSettings.from_environment().run_role_arn,
    )


@traced
@logger.inject_lambda_context(clear_state=True)
def handler(event: object, context: LambdaContext) -> dict[str, Any]:
    """Answer an instance.

    Args:
        event: Its `headers` are those of a signed request for sts:GetCallerIdentity, `PROOF_HEADERS`.
        context: Lambda's context.

    Returns:
        `{"ok": true, "credentials": {...}}`, as the metadata service writes an instance's credentials. Or `{"ok":
        false, "error": ..., "problem": ...}`, with the error `busy` where a retry may help.

    Raises:
        AwsRefusedError: A permission of this function is missing.
    """
    try:
        return _answer(event, aws=_production_aws(), function=context.function_name)
    except AwsBusyError as error:
        logger.warning("AWS is busy", problem=str(error))
        return {"ok": False, "error": "busy", "problem": str(error)}


def _answer(event: object, *, aws: Boto3Aws, function: str) -> dict[str, Any]:
    settings = CredentialsSettings.from_environment()
    proof = read_proof(event, audience=function)
    if isinstance(proof, CredentialsRefusal):
        return _refused(proof)
    caller = aws.caller(proof)
    if caller is None:
        return _refused(
            CredentialsRefusal(code="no-proof", problem="STS does not know who signed the proof, or it is too old")
        )
    instance = instance_of(caller, role_arn=settings.instance_role_arn)
    if isinstance(instance, CredentialsRefusal):
        return _refused(instance)
    session = session_of(aws.instance(instance), deployment=settings.deployment)
    if isinstance(session, CredentialsRefusal):
        return _refused(session)
    credentials = aws.assume(session)
    logger.info("gave credentials", session=session.tags())
    return {"ok": True, "credentials": credentials}


def _refused(refusal: CredentialsRefusal) -> dict[str, Any]:
    logger.warning("refused", error=refusal.code, problem=refusal.problem)
    return {"ok": False, "error": refusal.code, "problem": refusal.problem}
