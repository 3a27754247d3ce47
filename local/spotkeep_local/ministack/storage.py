"""ministack's S3, DynamoDB, EFS, KMS and Parameter Store, with contents, encryption and repeated transactions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ministack.services import dynamodb as _dynamodb  # type: ignore[import-untyped]
from ministack.services import efs as _efs
from ministack.services import kms as _kms
from ministack.services import s3 as _s3
from ministack.services import ssm as _ssm

if TYPE_CHECKING:
    from collections.abc import Mapping


def know_transactions_by_what_was_sent() -> None:
    """Answer a transaction that is sent again, with the same token, as the first time.

    ministack compares it with the first request, in which it has rewritten numbers meanwhile (1.50 is 1.5). It then
    refuses it as another one. A client that lost the answer would never get one.
    """
    write = _dynamodb._transact_write_items

    def write_once(data: dict[str, Any]) -> Any:
        token, sent = data.get("ClientRequestToken"), json.dumps(data, sort_keys=True)
        known = _dynamodb._txn_token_lookup(token)
        if known is not None and known.get("sent") == sent:
            known["signature"] = {name: value for name, value in data.items() if name != "ClientRequestToken"}
        answer = write(data)
        written = _dynamodb._txn_token_lookup(token)
        if known is None and written is not None:
            written["sent"] = sent
        return answer

    _dynamodb._transact_write_items = write_once


def key_arn(key_id: str) -> str | None:
    """Return the ARN of the KMS key with an id, an ARN or an alias. None where there is none."""
    key = _kms._resolve_key(key_id)
    return None if key is None else str(key["Arn"])


def file_system_of(mount_target: str) -> str | None:
    """Return the id of the file system that a mount target of EFS is of. None where there is no such mount target."""
    target = _efs._mount_targets.get(mount_target)
    return None if target is None else str(target["FileSystemId"])


def has_object(bucket: str, key: str) -> bool:
    """Return whether S3 has an object, in its current version."""
    return key in (_s3._buckets.get(bucket) or {}).get("objects", {})


def encryption_headers(bucket: str, key: str | None) -> Mapping[str, str]:
    """Return the encryption of an object as S3 answers it, or a bucket's default.

    Args:
        bucket: Its name.
        key: The key of the object. None for the bucket. An object that is not there would get the bucket's.
    """
    record = (_s3._buckets.get(bucket) or {}).get("objects", {}).get(key) if key is not None else None
    found: Mapping[str, str] = (
        _s3._stored_sse_headers(record) if record is not None else _s3._bucket_default_sse_headers(bucket)
    )
    return found


def bucket_key_enabled(bucket: str) -> bool:
    """Return whether the bucket's default encryption uses an S3 Bucket Key."""
    return "<BucketKeyEnabled>true<" in (_s3._bucket_encryption.get(bucket) or "")


def table(name: str) -> Mapping[str, Any] | None:
    """Return a table of DynamoDB as it is described. None where there is none."""
    found: Mapping[str, Any] | None = _dynamodb._tables.get(name)
    return found


def parameter(name: str) -> Mapping[str, Any] | None:
    """Return a parameter of the Parameter Store. None where there is none."""
    found: Mapping[str, Any] | None = _ssm._parameters.get(name)
    return found
