"""The Lambda entry point. An instance proves its identity, and gets the credentials of its run for an hour.

The function believes nothing in its event. STS names the instance that signed the proof, and EC2 names the run of the
instance. So another principal that invokes it gets no credentials, with any event.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Final

import boto3
from aws_lambda_powertools import Logger

from instance_credentials.aws import Boto3Aws
from instance_credentials.decisions import CredentialsRefusal, instance_of, read_proof, session_of
from spotkeep_jobs.backends.sagemaker.api import client_config
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.settings import CredentialsSettings
from spotkeep_jobs.tracing import traced

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

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
