"""One call to AWS, signed, limited in time, retried when that is safe, and counted."""

from __future__ import annotations

import json
import random
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable
from urllib.parse import quote, urlencode

from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError
from spotkeep_fleet.signed_fetch import FetchError, object_url, signed_headers

from .connections import Connections
from .credentials import CurrentCredentials, instance_credentials

_TIMEOUT_SECONDS = 20.0
_ATTEMPTS = 6
_FIRST_PAUSE_SECONDS = 0.3
_LONGEST_PAUSE_SECONDS = 8.0
_MOST_BYTES = 16 * 2**20
"""Most bytes of an answer that is no object's content. It is sixteen times the longest answer of these services."""
_MOST_REFUSAL_BYTES = 2**16
"""The longest error document, which may come where a few bytes of an object were asked for."""
_NOT_TAKEN = frozenset(
    {
        "BadDigest",
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionInProgressException",
        "Unavailable",
    }
)
"""Temporary refusals. The call had no effect and is sent again, as botocore does. A test compares the two."""
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_HOSTS = {"ecr": "api.ecr"}
"""First parts of host names that do not begin with the service's signing name."""
_TOO_MANY, _SERVER_FAULT, _REFUSED = 429, 500, 300
_ERROR_BEGINS_WITHIN = 1_000
_REGION_HEADER = "x-amz-bucket-region"
_OF_ANOTHER_REGION = frozenset(
    {"301", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect"}
)
"""S3's answers where a bucket is in another region."""


@dataclass(frozen=True)
class AwsAnswer:
    """The answer to a call, with status, headers in lower case and body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AwsCalls:
    """Calls to the services of one region. Several threads may use it.

    Args:
        region: For example `us-east-1`.
        environment: The environment with endpoints and credentials, if set (`AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`,
            ...).
        transport: The function that sends one request, or None for connections of its own.
        sleep: The function that waits between attempts.
        credentials: The credentials that sign the calls, or None for the instance's own.
        attempts: The most attempts of a call.

    Attributes:
        counted: Number of requests by `service:Action`, each attempt included.
        credentials: The credentials that sign the calls.
    """

    def __init__(
        self,
        *,
        region: str,
        environment: Mapping[str, str],
        transport: Callable[..., tuple[int, dict[str, str], bytes]] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        credentials: CurrentCredentials | None = None,
        attempts: int = _ATTEMPTS,
    ) -> None:
        self.region = region
        self.counted: Counter[str] = Counter()
        self._environment = environment
        self._transport = transport or Connections()
        self._sleep = sleep
        self.credentials = credentials or instance_credentials(environment)
        self._attempts = attempts

    def query(
        self, service: str, action: str, parameters: Mapping[str, str], *, version: str, retry: bool = True
    ) -> ET.Element:
        """Call an action of the Query protocol (EC2). Return the root of its answer, without namespaces.

        Args:
            service: Signing name.
            action: The name of the API's action.
            parameters: Flattened.
            version: The version of the API.
            retry: True to send it again when its effect is unknown.

        Raises:
            AwsCallRefusedError: If it is refused.
            AwsUnavailableError: If there is no answer.
        """
        body = urlencode({"Action": action, "Version": version, **parameters}, quote_via=quote).encode()
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        answer = self._call(
            service,
            action,
            method="POST",
            url=self.endpoint(service) + "/",
            headers=headers,
            body=body,
            retry=retry,
        )
        try:
            return _without_namespaces(answer.body)
        except ET.ParseError as error:
            raise AwsUnavailableError(f"{service}:{action} answered no XML: {error}") from error

    def json(self, service: str, target: str, document: Mapping[str, Any], *, version: str) -> dict[str, Any]:
        """Call an action of the JSON protocol (DynamoDB, CloudWatch Logs, EventBridge, ECR).

        Args:
            service: Signing name.
            target: `Prefix.Action`.
            document: The request.
            version: The version of the protocol: `1.0` or `1.1`.

        Raises:
            AwsCallRefusedError: If it is refused.
            AwsUnavailableError: If there is no answer.
        """
        headers = {"content-type": f"application/x-amz-json-{version}", "x-amz-target": target}
        answer = self._call(
            service,
            target.rpartition(".")[2],
            method="POST",
            url=self.endpoint(service) + "/",
            headers=headers,
            body=json.dumps(document).encode(),
            retry=True,
        )
        return _object(answer, what=target)

    def invoke(self, function: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Invoke a Lambda function, which may be done twice, and give the object that it answers.

        Source: Invoke, Lambda API reference.

        Args:
            function: Its name.
            event: The payload of the invocation.

        Raises:
            AwsCallRefusedError: If the invocation is refused.
            AwsUnavailableError: If there is no answer, or the function failed.
        """
        answer = self._call(
            "lambda",
            "Invoke",
            method="POST",
            url=f"{self.endpoint('lambda')}/2015-03-31/functions/{quote(function, safe='-_')}/invocations",
            headers={"content-type": "application/json"},
            body=json.dumps(event).encode(),
            retry=True,
        )
        if "x-amz-function-error" in answer.headers:
            raise AwsUnavailableError(f"{function} failed: {answer.body[:200].decode('utf-8', 'replace')}")
        return _object(answer, what=function)

    def s3(
        self,
        action: str,
        *,
        method: str,
        bucket: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        most_bytes: int = _MOST_BYTES,
    ) -> AwsAnswer:
        """Call S3.

        Args:
            action: Its name in the API.
            method: The HTTP method.
            bucket: Its name.
            key: The key of the object, or empty for the bucket itself.
            query: Names and values of the address's query.
            headers: The headers of the request.
            body: The body of the request.
            most_bytes: The most bytes of the answer.

        Raises:
            AwsCallRefusedError: If it is refused.
            AwsUnavailableError: If there is no answer.
        """
        url = object_url(bucket, key, region=self.region, environment=self._environment)
        if query:
            pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query.items())
            url += "?" + "&".join(f"{name}={value}" for name, value in pairs)
        return self._call(
            "s3",
            action,
            method=method,
            url=url,
            headers=headers or {},
            body=body,
            retry=True,
            most_bytes=max(most_bytes, _MOST_REFUSAL_BYTES),
            hides_errors=action != "GetObject",
        )

    def endpoint(self, service: str) -> str:
        """Return the address of a service."""
        given = self._environment.get(f"AWS_ENDPOINT_URL_{service.upper()}") or self._environment.get(
            "AWS_ENDPOINT_URL"
        )
        domain = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        return (given or f"https://{_HOSTS.get(service, service)}.{self.region}.{domain}").rstrip("/")

    def _call(
        self,
        service: str,
        action: str,
        *,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        retry: bool,
        most_bytes: int = _MOST_BYTES,
        hides_errors: bool = False,
    ) -> AwsAnswer:
        name = f"{service}:{action}"
        problem = ""
        for attempt in range(self._attempts):
            if attempt:
                # A little of chance, so that many instances that were throttled together do not come back together.
                pause = min(_FIRST_PAUSE_SECONDS * 2**attempt, _LONGEST_PAUSE_SECONDS)
                self._sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret hangs on it
            try:
                signed = signed_headers(
                    method=method,
                    url=url,
                    region=self.region,
                    service=service,
                    headers=headers,
                    body=body,
                    credentials=self.credentials.get(),
                    at=time.time(),
                )
            except FetchError as error:
                problem = str(error)
                continue
            self.counted[name] += 1
            try:
                answer = AwsAnswer(
                    *self._transport(
                        method,
                        url,
                        headers=signed,
                        body=body,
                        timeout_s=_TIMEOUT_SECONDS,
                        most_bytes=most_bytes,
                        repeatable=retry,
                    )
                )
            except OSError as error:
                problem = str(error) or type(error).__name__
                if retry:
                    continue
                break
            hidden = hides_errors and answer.status < _REFUSED and _is_error_document(answer)
            if answer.status < _REFUSED and not hidden:
                return answer
            code, message = _error_of(answer)
            problem = f"{code}: {message}"
            if code in _EXPIRED:
                self.credentials.forget()
            elif code in _NOT_TAKEN or answer.status == _TOO_MANY:
                pass
            elif answer.status >= _SERVER_FAULT or hidden:
                if not retry:
                    break
            else:
                raise AwsCallRefusedError(call=name, code=code, message=message, status=answer.status)
        raise AwsUnavailableError(f"{name} has no answer: {problem}")


def _object(answer: AwsAnswer, *, what: str) -> dict[str, Any]:
    try:
        found = json.loads(answer.body or b"{}")
    except (ValueError, RecursionError) as error:
        raise AwsUnavailableError(f"{what} answered no JSON: {error}") from error
    if not isinstance(found, dict):
        raise AwsUnavailableError(f"{what} answered no JSON object")
    return found


def _is_error_document(answer: AwsAnswer) -> bool:
    """Return True when S3's answer is an error, with any status ("CompleteMultipartUpload", S3 API reference)."""
    if b"<Error" not in answer.body[:_ERROR_BEGINS_WITHIN]:
        return False
    try:
        return _without_namespaces(answer.body).tag == "Error"
    except ET.ParseError:
        return False


def _error_of(answer: AwsAnswer) -> tuple[str, str]:
    """Read code and message of a refusal, whatever the protocol."""
    text = answer.body.decode("utf-8", "replace")
    if text.lstrip().startswith("{"):
        try:
            document = json.loads(text)
        except ValueError:
            document = {}
        code = str(document.get("__type") or answer.headers.get("x-amzn-errortype") or answer.status)
        return code.rpartition("#")[2].partition(":")[0], str(document.get("message") or document.get("Message") or "")
    try:
        root = _without_namespaces(answer.body)
    except ET.ParseError:
        return str(answer.status), text[:200]
    code_found, message_found = root.find(".//Code"), root.find(".//Message")
    code = (code_found.text or "") if code_found is not None else str(answer.status)
    message = (message_found.text or "") if message_found is not None else ""
    region = answer.headers.get(_REGION_HEADER)
    if region is not None and code in _OF_ANOTHER_REGION:
        message += f" The bucket is in {region}."
    return code, message


def _without_namespaces(body: bytes) -> ET.Element:
    root = ET.fromstring(body)  # noqa: S314 - an answer of AWS, over TLS; Python's expat bounds expansion
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root
