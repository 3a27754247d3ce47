"""The permissions that the operations of S3 need.

Reading an object that does not exist answers 404 to callers with permission to list the bucket, and 403 to others. S3
judges that permission as if the key were listed. Permission for its prefix is enough.

Sources: "Required permissions for Amazon S3 API operations", "Multipart upload API and permissions" and "Using
server-side encryption with AWS KMS keys (SSE-KMS)" in the S3 user guide. "HeadObject" in the S3 API reference for 403
and 404, and kopia/kopia#3072 for measurements of the prefix.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    always,
    ask,
    needed,
)

if TYPE_CHECKING:
    from spotkeep_local.iam.authorization import Authorization, EncryptionKey

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
"""Condition keys of s3:PutObject by the operation that sends the headers they stand for."""


def _bucket(call: Asking) -> str:
    return f"arn:aws:s3:::{call.needed('Bucket')}"


def _object(call: Asking) -> str:
    return f"{_bucket(call)}/{call.needed('Key')}"


def _on_bucket(action: str) -> AuthorizationRule:
    return lambda call: (ask(f"s3:{action}", _bucket(call)),)


def _on_object(action: str) -> AuthorizationRule:
    """Return the rule of an operation that needs another action when the request names a version."""
    return lambda call: (_on_version(action, _object(call), call.get("VersionId")),)


def _on_version(action: str, resource: str, version: object) -> Authorization:
    if version is None:
        return ask(f"s3:{action}", resource)
    verb, _, rest = action.partition("Object")
    return ask(f"s3:{verb}ObjectVersion{rest}", resource, keys={"s3:versionid": version})


def _listing(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        keys = {
            "s3:prefix": call.get("Prefix"),
            "s3:delimiter": call.get("Delimiter"),
            "s3:max-keys": call.get("MaxKeys"),
        }
        yield ask(f"s3:{action}", _bucket(call), keys=keys)

    return rule


def _key_use(call: Asking, key: EncryptionKey | None, action: str, resource: str) -> Asked:
    bound_to = resource.partition("/")[0] if key is not None and key.for_the_bucket else resource
    yield from call.use_key(key, (action,), via="s3", encryption_context={"aws:s3:arn": bound_to})


def _read(call: Asking) -> Asked:
    yield from _read_object(call, _object(call), call.get("VersionId"))


def _read_object(call: Asking, resource: str, version: str | None) -> Asked:
    yield _on_version("GetObject", resource, version)
    if call.account.has_object(resource):
        yield from _key_use(call, call.account.key_of(resource), "Decrypt", resource)
    else:
        bucket, _, key = resource.partition("/")
        yield ask("s3:ListBucket", bucket, keys={"s3:prefix": key})


def _key_for_writing(call: Asking) -> EncryptionKey | None:
    """Return the key that an object is stored with, which the request names or the bucket has by default."""
    if (named := call.get("SSEKMSKeyId")) is not None:
        return replace(call.key_named(named), for_the_bucket=bool(call.get("BucketKeyEnabled")))
    if call.get("ServerSideEncryption") == "AES256" or call.get("SSECustomerAlgorithm") is not None:
        return None
    return call.account.key_of(_bucket(call))


def _put(call: Asking) -> Asked:
    resource = _object(call)
    tags = dict(parse_qsl(str(call.get("Tagging", "")), keep_blank_values=True))
    keys: dict[str, object] = {key: call.get(name) for name, key in _OBJECT_HEADERS.items()}
    keys |= {f"s3:requestobjecttag/{name}": value for name, value in tags.items()}
    sets = {"s3:requestobjecttagkeys": tags.keys()}
    yield ask("s3:PutObject", resource, keys=keys, sets=sets)
    if tags:
        tagging = {f"s3:requestobjecttag/{name}": value for name, value in tags.items()}
        yield ask("s3:PutObjectTagging", resource, keys=tagging, sets=sets)
    if any(name == "ACL" or name.startswith("Grant") for name in call.parameters):
        acl = {key: call.get(name) for name, key in _OBJECT_HEADERS.items() if "acl" in key or "grant" in key}
        yield ask("s3:PutObjectAcl", resource, keys=acl)
    if "ObjectLockMode" in call.parameters:
        yield ask("s3:PutObjectRetention", resource, keys={"s3:object-lock-mode": call.parameters["ObjectLockMode"]})
    if "ObjectLockLegalHoldStatus" in call.parameters:
        held = {"s3:object-lock-legal-hold": call.parameters["ObjectLockLegalHoldStatus"]}
        yield ask("s3:PutObjectLegalHold", resource, keys=held)


def _write(call: Asking) -> Asked:
    """Ask for the permissions that PutObject and CreateMultipartUpload need."""
    yield from _put(call)
    yield from _key_use(call, _key_for_writing(call), "GenerateDataKey", _object(call))


def _write_part(call: Asking) -> Asked:
    resource = _object(call)
    yield ask("s3:PutObject", resource)
    if call.get("SSECustomerAlgorithm") is None:
        # The upload's own key is asked for where it began; parts are encrypted with what it holds.
        yield from _key_use(call, call.account.key_of(_bucket(call)), "Decrypt", resource)


def _complete(call: Asking) -> Asked:
    keys = {"s3:if-match": call.get("IfMatch"), "s3:if-none-match": call.get("IfNoneMatch")}
    yield ask("s3:PutObject", _object(call), keys=keys)


def _source(call: Asking) -> tuple[str, str | None]:
    """Return the ARN of the copied object, and its version."""
    path, _, version = str(call.needed("CopySource")).partition("?versionId=")
    bucket, slash, key = unquote(path).removeprefix("/").partition("/")
    if not slash or bucket.startswith("arn:"):
        raise UndecidableError(f"The source {path} is no bucket and key.")
    return f"arn:aws:s3:::{bucket}/{key}", version or None


def _copy(call: Asking) -> Asked:
    source, version = _source(call)
    yield from _read_object(call, source, version)
    if call.get("TaggingDirective") != "REPLACE" and call.tags(source):
        yield _on_version("GetObjectTagging", source, version)
        yield ask("s3:PutObjectTagging", _object(call))
    yield from _write(call)


def _copy_part(call: Asking) -> Asked:
    yield from _read_object(call, *_source(call))
    yield from _write_part(call)


def _delete_several(call: Asking) -> Asked:
    for each in needed(call.needed("Delete"), "Objects"):
        resource = f"{_bucket(call)}/{needed(each, 'Key')}"
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
    "AbortMultipartUpload": lambda call: (ask("s3:AbortMultipartUpload", _object(call)),),
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
    "ListParts": lambda call: (ask("s3:ListMultipartUploadParts", _object(call)),),
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
