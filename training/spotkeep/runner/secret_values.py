"""The values of a job's secrets, which each start reads anew from AWS Secrets Manager.

On EC2 the agent reads them, because a script there has no credentials. It gives them to the runner in variables, and
the runner takes these out of its environment. On SageMaker the runner signs its own requests with the job's role. It
needs no package, as the image may have none. No value leaves the memory of the runner but in the script's environment.

Sources: GetSecretValue (AWS Secrets Manager API reference). "Container credential provider" (AWS SDKs and Tools
reference guide).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, Callable

from spotkeep.errors import JobSecretError
from spotkeep_fleet.errors import SecretError
from spotkeep_fleet.secret_references import GET_VALUE, read_reference, refusal, secret_values
from spotkeep_fleet.signed_fetch import (
    Credentials,
    FetchError,
    find_credentials,
    read_credentials,
    send,
    signed_headers,
)
from spotkeep_fleet.training_spec import TrainingSpec

_TIMEOUT_SECONDS = 10.0
_CREDENTIALS_TIMEOUT_SECONDS = 5.0
_ATTEMPTS = 8
_LONGEST_PAUSE_SECONDS = 10.0
_CONTAINER_HOST = "http://169.254.170.2"
_TOO_MANY, _SERVER_FAULT, _FOUND = 429, 500, 200
_TEMPORARY = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "InternalServiceError",
        "LimitExceededException",
        "RequestExpired",
        "RequestLimitExceeded",
        "RequestThrottledException",
        "ServiceUnavailable",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""AWS's error codes after which the same request is sent again."""


def take_secret_values(
    spec: TrainingSpec,
    environment: MutableMapping[str, str],
    *,
    is_over: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Return the values of the spec's secrets, by the reference.

    Args:
        spec: The training's spec.
        environment: The runner's environment. The agent's variables are taken out of it.
        is_over: Gives True once a notice has come. Nothing is tried again then.
        sleep: Waits so many seconds.

    Raises:
        JobSecretError: A value cannot be had. The error names the secret and no value.
    """
    variables = spec.value_variables
    given = {
        reference: environment.pop(variable) for reference, variable in variables.items() if variable in environment
    }
    if len(given) == len(variables):
        return given
    try:
        return secret_values(variables, lambda secret: _asked(secret, environment, is_over=is_over, sleep=sleep))
    except SecretError as error:
        raise JobSecretError(str(error), for_good=True) from None


def _asked(
    secret: str, environment: Mapping[str, str], *, is_over: Callable[[], bool], sleep: Callable[[float], None]
) -> dict[str, Any]:
    """Return the answer of GetSecretValue."""
    region = _region_of(secret, environment)
    endpoint = environment.get("AWS_ENDPOINT_URL_SECRETS_MANAGER") or environment.get("AWS_ENDPOINT_URL")
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    url = (endpoint or f"https://secretsmanager.{region}.{domain}").rstrip("/") + "/"
    headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": GET_VALUE}
    body = json.dumps({"SecretId": secret}).encode()
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            if is_over():
                break
            sleep(min(0.5 * 2**attempt, _LONGEST_PAUSE_SECONDS))
        try:
            signed = signed_headers(
                method="POST",
                url=url,
                region=region,
                service="secretsmanager",
                headers=headers,
                body=body,
                credentials=_credentials(environment),
                at=time.time(),
            )
            status, _, content = send("POST", url, headers=signed, body=body, timeout_s=_TIMEOUT_SECONDS)
        except (OSError, FetchError) as error:
            problem = str(error) or type(error).__name__
            continue
        answer = _object_in(content)
        if status == _FOUND and answer is not None:
            return answer
        code = str((answer or {}).get("__type") or status).rpartition("#")[2].partition(":")[0]
        message = str((answer or {}).get("message") or (answer or {}).get("Message") or "")
        problem = f"{code}: {message}"
        if status < _SERVER_FAULT and status != _TOO_MANY and code not in _TEMPORARY:
            raise refusal(secret, code=code, message=message)
    raise JobSecretError(
        f"the secret {secret} cannot be read now: AWS Secrets Manager gives no answer at {url} ({problem}). In a VPC, "
        "the job's subnets need a way to it, by a NAT gateway or an interface endpoint of secretsmanager",
        for_good=False,
    )


def _region_of(secret: str, environment: Mapping[str, str]) -> str:
    """Return the region of a secret. A name is that of a secret in the job's own region."""
    reference = read_reference(secret)
    in_its_arn = None if reference is None else reference.region
    of_the_job = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    sections = environment.get("TRAINING_JOB_ARN", "").split(":")
    return in_its_arn or of_the_job or (sections[3] if len(sections) > 3 else "") or "us-east-1"


def _credentials(environment: Mapping[str, str]) -> Credentials:
    """Return the credentials of the environment, of the container, or of the instance."""
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = f"{_CONTAINER_HOST}{relative}" if relative else environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if environment.get("AWS_ACCESS_KEY_ID") or not url:
        return find_credentials(environment)
    token = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    file = environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    if file:
        token = Path(file).read_text(encoding="utf-8").strip()
    headers = {"Authorization": token} if token else {}
    status, _, body = send("GET", url, headers=headers, body=b"", timeout_s=_CREDENTIALS_TIMEOUT_SECONDS)
    if status != _FOUND:
        raise FetchError(f"the container's credentials cannot be had: status {status}")
    try:
        return read_credentials(json.loads(body))
    except (ValueError, KeyError, TypeError, RecursionError):
        # Not the error itself, which may quote the answer.
        raise FetchError("the container's credentials cannot be read") from None


def _object_in(content: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
