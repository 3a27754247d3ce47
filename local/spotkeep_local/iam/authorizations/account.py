"""What the authorizations of a call depend on beside its parameters: what is in the account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True)
class EncryptionKey:
    """A customer's KMS key that encrypts something. Keys that AWS manages let in all principals of the account.

    Attributes:
        arn: Its ARN, of the key and not of an alias.
        for_the_bucket: Whether the bucket has an S3 Bucket Key, so that the encryption context names the bucket.
    """

    arn: str
    for_the_bucket: bool = False


@dataclass(frozen=True, kw_only=True)
class LaunchTemplate:
    """A version of a launch template.

    Attributes:
        template_id: For example `lt-0abc`.
        data: As boto3 answers `LaunchTemplateData`.
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


class AccountView(Protocol):
    """Finds what is in an account. Its answers are those of now; what is not there has none."""

    @property
    def region(self) -> str:
        """Return the region that the call was sent to."""
        ...

    @property
    def account_id(self) -> str:
        """Return twelve digits."""
        ...

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource; none where there is no such resource."""
        ...

    def has_object(self, arn: str) -> bool:
        """Return whether S3 has an object."""
        ...

    def key_of(self, arn: str) -> EncryptionKey | None:
        """Return the customer's key that encrypts a resource.

        Args:
            arn: The ARN of a bucket (its default), an object (what it was stored with), a table, queue, topic, volume,
                snapshot, parameter or secret.
        """
        ...

    def key_arn(self, key_id: str) -> str | None:
        """Return the ARN of the key with an id, an ARN or an alias; None where there is none."""
        ...

    def partition_key(self, arn: str) -> str | None:
        """Return the name of the partition key of a table or an index of DynamoDB."""
        ...

    def launch_template(self, *, template_id: str | None, name: str | None, version: str) -> LaunchTemplate | None:
        """Return a version, a number or `$Latest` or `$Default`, of the template with an id or a name."""
        ...

    def role_arn(self, name: str) -> str | None:
        """Return the ARN, with its path, of the role with a name; None where there is none."""
        ...

    def role_of_profile(self, profile: str) -> str | None:
        """Return the ARN of the role in an instance profile, which is given by its ARN or its name."""
        ...

    def function_url(self, url_id: str) -> FunctionUrl | None:
        """Return the URL with an id."""
        ...

    def properties(self, arn: str) -> Mapping[str, str]:
        """Return the values of condition keys that stand for a resource's own properties.

        Args:
            arn: The ARN of a subnet (`ec2:vpc`, `ec2:availabilityzone`), an instance (`ec2:instancetype`,
                `ec2:availabilityzone`), a volume or a snapshot (`ec2:encrypted`, `ec2:volumesize`, `ec2:volumetype`,
                `ec2:availabilityzone`, `ec2:parentvolume`).

        Returns:
            By the keys' names in lower case.
        """
        ...
