"""The resources in the account of this local AWS, ministack's and our own, as the authorizations ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.iam.authorization import EncryptionKey, FunctionUrl, LaunchTemplate
from spotkeep_local.ministack import application, functions, identities, messages, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.ec2.cloud import Cloud

_KEY_HEADER = "x-amz-server-side-encryption-aws-kms-key-id"


class LocalAccount:
    """Answers with the resources of the moment. A resource that does not exist has no answer.

    Args:
        account_id: Twelve digits.
        cloud: EC2's instances, volumes, snapshots and fleets.
        job_tags: Returns the tags of a training job by its name, or None.
        experiment_tags: Returns the tags of an experiment or its template by its id, or None.
        batch_tags: Returns the tags of a resource of Batch by its ARN, or None.
    """

    def __init__(
        self,
        *,
        account_id: str,
        cloud: Cloud,
        job_tags: Callable[[str], Mapping[str, str]],
        experiment_tags: Callable[[str], Mapping[str, str]],
        batch_tags: Callable[[str], Mapping[str, str]],
    ) -> None:
        self.account_id = account_id
        self._cloud = cloud
        self._job_tags = job_tags
        self._experiment_tags = experiment_tags
        self._batch_tags = batch_tags

    def begin_request(self, region: str | None) -> None:
        """Relate all later questions to one request.

        Args:
            region: The region that the request is signed for. None means the local AWS's own.
        """
        application.begin_request(region)

    @property
    def region(self) -> str:
        """The region of the present request. Without a request, that of the local AWS."""
        return application.request_region()

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the tags of a resource. None where there is no such resource."""
        service, resource = arn.split(":")[2], arn.split(":", 5)[5]
        kind, _, name = resource.partition("/")
        if service == "sagemaker" and kind == "training-job":
            return self._job_tags(name)
        if service == "fis":
            return self._experiment_tags(name)
        if service == "batch":
            return self._batch_tags(arn)
        if service == "ec2" and (ours := self._resource(kind, name)) is not None:
            tags: Mapping[str, str] = ours.tags
            return tags
        return identities.resource_tags(arn)

    def has_object(self, arn: str) -> bool:
        """Return whether S3 has an object."""
        bucket, _, key = arn.split(":", 5)[5].partition("/")
        return storage.has_object(bucket, key)

    def key_of(self, arn: str) -> EncryptionKey | None:
        """Return the customer's key that encrypts a resource.

        Args:
            arn: The ARN of a bucket, object, table, queue, topic, volume, snapshot or parameter. A bucket has a default
                key, an object the key that it was stored with.
        """
        service, resource = arn.split(":")[2], arn.split(":", 5)[5]
        if service == "s3":
            bucket, _, key = resource.partition("/")
            headers = storage.encryption_headers(bucket, key or None)
            return self._key(headers.get(_KEY_HEADER), bucket_key=storage.bucket_key_enabled(bucket))
        if service == "dynamodb":
            table = storage.table(resource.split("/")[1]) or {}
            return self._key((table.get("SSEDescription") or {}).get("KMSMasterKeyArn"))
        if service == "sqs":
            return self._key(messages.queue_attributes(arn).get("KmsMasterKeyId"))
        if service == "sns":
            return self._key((messages.topic(arn) or {}).get("attributes", {}).get("KmsMasterKeyId"))
        if service == "ssm":
            found = storage.parameter(resource.removeprefix("parameter"))
            found = found or storage.parameter(resource.removeprefix("parameter/")) or {}
            return self._key(found.get("KeyId"))
        if service == "ec2":
            kind, _, name = resource.partition("/")
            ours = self._resource(kind, name)
            return self._key(getattr(ours, "request", {}).get("KmsKeyId"))
        return None

    def key_arn(self, key_id: str) -> str | None:
        """Return the ARN of the key with an id, an ARN or an alias. None where there is none."""
        return storage.key_arn(key_id)

    def file_system_of(self, mount_target: str) -> str | None:
        """Return the id of the file system of EFS that a mount target is of. None where there is none."""
        return storage.file_system_of(mount_target)

    def partition_key(self, arn: str) -> str | None:
        """Return the name of the partition key of a table or an index of DynamoDB."""
        parts = arn.split(":", 5)[5].split("/")
        table = storage.table(parts[1])
        if table is None:
            return None
        schemas = (
            [table]
            if len(parts) == 2
            else [
                index
                for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes")
                for index in table.get(kind) or ()
                if index["IndexName"] == parts[3]
            ]
        )
        return next(
            (
                str(key["AttributeName"])
                for schema in schemas
                for key in schema["KeySchema"]
                if key["KeyType"] == "HASH"
            ),
            None,
        )

    def launch_template(self, *, template_id: str | None, name: str | None, version: str) -> LaunchTemplate | None:
        """Return a version, a number or `$Latest` or `$Default`, of the template with an id or a name."""
        found = self._cloud.surroundings.launch_template(template_id=template_id, name=name, version=version)
        return None if found is None else LaunchTemplate(template_id=found.template_id, data=found.data)

    def role_arn(self, name: str) -> str | None:
        """Return the ARN, with its path, of the role with a name. None where there is none."""
        role = identities.stored_role(name)
        return None if role is None else role.arn

    def role_of_profile(self, profile: str) -> str | None:
        """Return the ARN of the role in an instance profile, which is given by its ARN or its name."""
        roles = identities.instance_profile_roles(profile.rpartition("/")[2])
        role = identities.stored_role(roles[0]) if roles else None
        return None if role is None else role.arn

    def function_url(self, url_id: str) -> FunctionUrl | None:
        """Return the URL with an id."""
        found = functions.function_url(url_id)
        return None if found is None else FunctionUrl(function_arn=found[0], auth_type=found[1])

    def properties(self, arn: str) -> Mapping[str, str]:
        """Return the values of condition keys that stand for a resource's own properties.

        Args:
            arn: The ARN of a subnet, an instance, a volume or a snapshot.

        Returns:
            By the keys' names in lower case.
        """
        kind, _, name = arn.split(":", 5)[5].partition("/")
        if kind == "subnet":
            subnet = self._cloud.surroundings.subnet(name)
            if subnet is None:
                return {}
            return {
                "ec2:availabilityzone": subnet.zone,
                "ec2:vpc": f"arn:aws:ec2:{self.region}:{self.account_id}:vpc/{subnet.vpc_id}",
            }
        ours = self._resource(kind, name)
        if ours is None:
            return {}
        if kind == "instance":
            return {"ec2:instancetype": ours.instance_type, "ec2:availabilityzone": ours.zone}
        if kind == "snapshot":
            parent = f"arn:aws:ec2:{self.region}:{self.account_id}:volume/{ours.volume_id}"
            size = str(ours.volume_size_gib)
            return {"ec2:encrypted": _text(ours.encrypted), "ec2:volumesize": size, "ec2:parentvolume": parent}
        if kind == "volume":
            return {
                "ec2:encrypted": _text(ours.encrypted),
                "ec2:volumesize": str(ours.size_gib),
                "ec2:volumetype": ours.volume_type,
                "ec2:availabilityzone": ours.zone,
            }
        return {}

    def _resource(self, kind: str, name: str) -> Any:
        tables: dict[str, Any] = {
            "instance": self._cloud.instances,
            "volume": self._cloud.volumes,
            "snapshot": self._cloud.snapshots,
            "fleet": self._cloud.fleets,
        }
        table = tables.get(kind)
        return table[name] if table is not None and name in table else None

    def _key(self, key_id: str | None, *, bucket_key: bool = False) -> EncryptionKey | None:
        if not key_id or ":alias/aws/" in key_id or key_id.startswith("alias/aws/"):
            return None
        arn = self.key_arn(key_id)
        return None if arn is None else EncryptionKey(arn=arn, for_the_bucket=bucket_key)


def _text(value: bool) -> str:  # noqa: FBT001 - a condition key's value, not a choice
    return "true" if value else "false"
