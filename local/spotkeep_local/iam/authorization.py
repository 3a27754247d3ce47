"""The types of questions to IAM and of its answers, shared by the readers of requests and the evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to a service, read.

    Attributes:
        service: The service's name in botocore, for example `stepfunctions`.
        operation: Its name in botocore, for example `CreateTrainingJob`.
        parameters: The parameters as a boto3 client takes them, as far as the request's form could be read.
    """

    service: str
    operation: str
    parameters: Mapping[str, object]

    @property
    def name(self) -> str:
        """The service and operation in botocore's names, as in reports, for example `dynamodb.TransactWriteItems`."""
        return f"{self.service}.{self.operation}"


@dataclass(frozen=True, kw_only=True)
class UnknownCall:
    """A request that cannot be read, or that no rule has authorizations for. It is denied.

    Attributes:
        service: Botocore's name of the service, or the one in the signature. Empty where neither could be read.
        operation: The name of the operation. Empty where it could not be read.
        reason: The fault, as a sentence.
    """

    service: str
    operation: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Authorization:
    """One permission that a call needs. A call needs all of its authorizations.

    Attributes:
        action: The action in AWS's spelling, for example `s3:GetObject`.
        resource: The ARN of the resource, or `*` where the action knows no resource types.
        context: The values of the condition keys that AWS puts into the request, by the keys' names in lower case. An
            example is `{"sagemaker:keepaliveperiod": ("600",)}`. A tag key keeps its spelling, as in
            `aws:requesttag/spotkeep:run`. All values are text, such as `true`, `600` or `2026-11-23T10:00:00Z`. A key
            that is not in the request is not here.
        multivalued: The keys of `context` that hold a set, for `ForAllValues` and `ForAnyValue`.
    """

    action: str
    resource: str
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    multivalued: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class EncryptionKey:
    """A customer's KMS key that encrypts something. Keys that AWS manages let in all principals of the account.

    Attributes:
        arn: Its ARN, of the key and not of an alias.
        for_the_bucket: True where the bucket has an S3 Bucket Key, so that the encryption context names the bucket.
    """

    arn: str
    for_the_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class LaunchTemplate:
    """A version of a launch template.

    Attributes:
        template_id: Its id, for example `lt-0abc`.
        data: Its `LaunchTemplateData`, as boto3 answers it.
    """

    template_id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FunctionUrl:
    """The URL of a function.

    Attributes:
        function_arn: The ARN of the function, with the alias that the URL belongs to.
        auth_type: `AWS_IAM` or `NONE`.
    """

    function_arn: str
    auth_type: str
