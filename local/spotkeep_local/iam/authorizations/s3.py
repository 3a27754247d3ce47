"""What the operations of S3 ask for.

Reading an object that is not there answers 404 to callers who may list the bucket, and 403 to others. S3 asks for that
as if the key were listed: permission for its prefix is enough.

Sources: "Required permissions for Amazon S3 API operations", "Multipart upload API and permissions" and "Using
server-side encryption with AWS KMS keys (SSE-KMS)" in the S3 user guide; "HeadObject" in the S3 API reference
for 403 and 404, and kopia/kopia#3072 for what was measured of the prefix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    EncryptionKey,
    Parameters,
    Rules,
    UndecidableError,
    always,
    ask,
    key_named,
    needed,
    use_key,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotkeep_local.iam.authorization import Authorization

_OBJECT_HEADERS: Final = {
    "ACL": "s3:x-amz-acl",
    "CopySource": "s3:x-amz-copy-source",
    "GrantFullControl": "s3:x-amz-grant-full-control",
    "GrantRead": "s3:x-amz-grant-read",
    "GrantReadACP": "s3:x-amz-grant-read-acp",
    "GrantWriteACP": "s3:x-amz-grant-write-acp",
    "IfMatch": "s3:if-match",
    "IfNoneMatch": "s3:if-none-match",
    "MetadataDirective": "s3:x-amz-metadata-directive",
    "ObjectLockLegalHoldStatus": "s3:object-lock-legal-hold",
    "ObjectLockMode": "s3:object-lock-mode",
    "ObjectLockRetainUntilDate": "s3:object-lock-retain-until-date",
    "SSECustomerAlgorithm": "s3:x-amz-server-side-encryption-customer-algorithm",
    "SSEKMSKeyId": "s3:x-amz-server-side-encryption-aws-kms-key-id",
    "ServerSideEncryption": "s3:x-amz-server-side-encryption",
    "StorageClass": "s3:x-amz-storage-class",
    "WebsiteRedirectLocation": "s3:x-amz-website-redirect-location",
}
"""Condition keys of s3:PutObject by the parameters whose headers they stand for."""


def _bucket(parameters: Parameters) -> str:
    return f"arn:aws:s3:::{needed(parameters, 'Bucket')}"


def _object(parameters: Parameters) -> str:
    return f"{_bucket(parameters)}/{needed(parameters, 'Key')}"


def _on_bucket(action: str) -> AuthorizationRule:
    return lambda parameters, _account: (ask(f"s3:{action}", _bucket(parameters)),)


def _on_object(action: str) -> AuthorizationRule:
    """Return the rule of an operation whose action has another name where a version is named."""

    def rule(parameters: Parameters, _account: AccountView) -> Iterable[Authorization]:
        return (_on_version(action, _object(parameters), parameters.get("VersionId")),)

    return rule


def _on_version(action: str, resource: str, version: object) -> Authorization:
    if version is None:
        return ask(f"s3:{action}", resource)
    verb, _, rest = action.partition("Object")
    return ask(f"s3:{verb}ObjectVersion{rest}", resource, keys={"s3:versionid": version})


def _listing(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, _account: AccountView) -> Iterable[Authorization]:
        keys = {
            "s3:prefix": parameters.get("Prefix"),
            "s3:delimiter": parameters.get("Delimiter"),
            "s3:max-keys": parameters.get("MaxKeys"),
        }
        return (ask(f"s3:{action}", _bucket(parameters), keys=keys),)

    return rule


def _key_use(
    key: EncryptionKey | None, actions: Iterable[str], resource: str, account: AccountView
) -> tuple[Authorization, ...]:
    bound_to = resource.partition("/")[0] if key is not None and key.for_the_bucket else resource
    return use_key(key, actions, via="s3", account=account, encryption_context={"aws:s3:arn": bound_to})


def _read(parameters: Parameters, account: AccountView) -> Asked:
    yield from _read_object(_object(parameters), parameters.get("VersionId"), account)


def _read_object(resource: str, version: str | None, account: AccountView) -> Asked:
    yield _on_version("GetObject", resource, version)
    if account.has_object(resource):
        yield from _key_use(account.key_of(resource), ("Decrypt",), resource, account)
    else:
        bucket, _, key = resource.partition("/")
        yield ask("s3:ListBucket", bucket, keys={"s3:prefix": key})


def _key_for_writing(parameters: Parameters, account: AccountView) -> EncryptionKey | None:
    """Return the key that an object is stored with: the one that the request names, or the bucket's."""
    if (named := parameters.get("SSEKMSKeyId")) is not None:
        return replace(key_named(named, account), for_the_bucket=bool(parameters.get("BucketKeyEnabled")))
    if parameters.get("ServerSideEncryption") == "AES256" or parameters.get("SSECustomerAlgorithm") is not None:
        return None
    return account.key_of(_bucket(parameters))


def _put(parameters: Parameters) -> Asked:
    resource = _object(parameters)
    tags = dict(parse_qsl(str(parameters.get("Tagging", "")), keep_blank_values=True))
    keys: dict[str, object] = {key: parameters.get(name) for name, key in _OBJECT_HEADERS.items()}
    keys |= {f"s3:requestobjecttag/{name}": value for name, value in tags.items()}
    sets = {"s3:requestobjecttagkeys": tags.keys()}
    yield ask("s3:PutObject", resource, keys=keys, sets=sets)
    if tags:
        tagging = {f"s3:requestobjecttag/{name}": value for name, value in tags.items()}
        yield ask("s3:PutObjectTagging", resource, keys=tagging, sets=sets)
    if any(name == "ACL" or name.startswith("Grant") for name in parameters):
        acl = {key: parameters.get(name) for name, key in _OBJECT_HEADERS.items() if "acl" in key or "grant" in key}
        yield ask("s3:PutObjectAcl", resource, keys=acl)
    if "ObjectLockMode" in parameters:
        yield ask("s3:PutObjectRetention", resource, keys={"s3:object-lock-mode": parameters["ObjectLockMode"]})
    if "ObjectLockLegalHoldStatus" in parameters:
        held = {"s3:object-lock-legal-hold": parameters["ObjectLockLegalHoldStatus"]}
        yield ask("s3:PutObjectLegalHold", resource, keys=held)


def _write(parameters: Parameters, account: AccountView) -> Asked:
    """Ask for what PutObject and CreateMultipartUpload need."""
    yield from _put(parameters)
    key = _key_for_writing(parameters, account)
    yield from _key_use(key, ("GenerateDataKey",), _object(parameters), account)


def _write_part(parameters: Parameters, account: AccountView) -> Asked:
    resource = _object(parameters)
    yield ask("s3:PutObject", resource)
    if parameters.get("SSECustomerAlgorithm") is None:
        # The upload's own key is asked for where it began; parts are encrypted with what it holds.
        yield from _key_use(account.key_of(_bucket(parameters)), ("Decrypt",), resource, account)


def _complete(parameters: Parameters, _account: AccountView) -> Asked:
    keys = {"s3:if-match": parameters.get("IfMatch"), "s3:if-none-match": parameters.get("IfNoneMatch")}
    yield ask("s3:PutObject", _object(parameters), keys=keys)


def _source(parameters: Parameters) -> tuple[str, str | None]:
    """Return the ARN of what is copied, and its version."""
    path, _, version = str(needed(parameters, "CopySource")).partition("?versionId=")
    bucket, slash, key = unquote(path).removeprefix("/").partition("/")
    if not slash or bucket.startswith("arn:"):
        raise UndecidableError(f"The source {path} is no bucket and key.")
    return f"arn:aws:s3:::{bucket}/{key}", version or None


def _copy(parameters: Parameters, account: AccountView) -> Asked:
    source, version = _source(parameters)
    yield from _read_object(source, version, account)
    if parameters.get("TaggingDirective") != "REPLACE" and account.tags(source):
        yield _on_version("GetObjectTagging", source, version)
        yield ask("s3:PutObjectTagging", _object(parameters))
    yield from _write(parameters, account)


def _copy_part(parameters: Parameters, account: AccountView) -> Asked:
    yield from _read_object(*_source(parameters), account)
    yield from _write_part(parameters, account)


def _delete_several(parameters: Parameters, _account: AccountView) -> Asked:
    for each in needed(needed(parameters, "Delete"), "Objects"):
        resource = f"{_bucket(parameters)}/{needed(each, 'Key')}"
        yield _on_version("DeleteObject", resource, each.get("VersionId"))


_ON_BUCKETS: Final = {
    "GetBucketEncryption": "GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketNotificationConfiguration": "GetBucketNotification",
    "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
    "HeadBucket": "ListBucket",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "PutBucketEncryption": "PutEncryptionConfiguration",
    "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
    "PutBucketNotificationConfiguration": "PutBucketNotification",
    "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    **{
        name: name
        for name in (
            "CreateBucket",
            "DeleteBucket",
            "DeleteBucketPolicy",
            "GetBucketAcl",
            "GetBucketLocation",
            "GetBucketPolicy",
            "GetBucketTagging",
            "GetBucketVersioning",
            "PutBucketPolicy",
            "PutBucketTagging",
            "PutBucketVersioning",
        )
    },
}
"""Operations on a bucket as a whole, and their actions."""

_RULES: Final[Rules] = {
    "AbortMultipartUpload": lambda parameters, _account: (ask("s3:AbortMultipartUpload", _object(parameters)),),
    "CompleteMultipartUpload": _complete,
    "CopyObject": _copy,
    "CreateMultipartUpload": _write,
    "DeleteObjects": _delete_several,
    "GetObject": _read,
    "HeadObject": _read,
    "ListBuckets": always("s3:ListAllMyBuckets"),
    "ListObjectVersions": _listing("ListBucketVersions"),
    "ListObjects": _listing("ListBucket"),
    "ListObjectsV2": _listing("ListBucket"),
    "ListParts": lambda parameters, _account: (ask("s3:ListMultipartUploadParts", _object(parameters)),),
    "PutObject": _write,
    "UploadPart": _write_part,
    "UploadPartCopy": _copy_part,
    **{name: _on_bucket(action) for name, action in _ON_BUCKETS.items()},
    **{
        name: _on_object(name)
        for name in ("DeleteObject", "DeleteObjectTagging", "GetObjectTagging", "PutObjectTagging")
    },
}
OPERATIONS: Final = {"s3": _RULES}
