"""The few calls to Amazon S3 that a second tier of checkpoints needs. No other module knows boto3.

boto3 is imported on use, and every AWS training image has it. All sent bytes carry their CRC-32, which S3 compares
before it accepts them. So the SDK need not sign a hash of them too, which would take most of the processor's time. The
SDK retries throttles, faults and cut connections in its standard mode.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from spotkeep.errors import MissingLibraryError, RemoteError, UsageError
from spotkeep.native.crc32 import crc32
from spotkeep.state.arrays import Buffer

_URI = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)
_CONNECT_SECONDS = 5
_READ_SECONDS = 30
_ATTEMPTS = 8
_MOST_LISTED = 10_000
"""The most parts of an upload that S3 has, and the most unfinished uploads that are listed at a time."""
_NOT_FOUND = ("404", "NoSuchKey", "NotFound")
_GONE = ("NoSuchUpload", *_NOT_FOUND)
ALREADY_THERE = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
"""S3's answers to a write that must not replace an object. The second one is another such write under way."""


@dataclass(frozen=True)
class S3Place:
    """A place in S3, with a bucket and a prefix that ends with a slash or is empty."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, uri: str) -> S3Place:
        """Read `s3://bucket/prefix`.

        Raises:
            UsageError: If it is no such address.
        """
        match = _URI.fullmatch(uri)
        prefix = "" if match is None else (match.group(2) or "").strip("/")
        if match is None or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
            raise UsageError(f"{uri!r} is not a place for checkpoints; pass s3://bucket/prefix")
        return cls(bucket=match.group(1), prefix=prefix + "/" if prefix else "")

    def folder(self, name: str) -> S3Place:
        """Give the place of a folder in this one."""
        return S3Place(bucket=self.bucket, prefix=f"{self.prefix}{name}/")

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True)
class S3Object:
    """An object in S3.

    Attributes:
        key: Its key.
        size: Its size in bytes.
        etag: S3's tag of its content, if S3 names one.
        labels: The labels it was written with. A listing does not name them.
    """

    key: str
    size: int
    etag: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """A part of an upload that S3 has.

    Attributes:
        number: From 1.
        etag: S3's tag of it.
        crc32: The CRC-32 of its bytes, Base64. None where S3 names none.
        size: Its length in bytes.
    """

    number: int
    etag: str
    crc32: str | None
    size: int

    def is_that_of(self, raw: Buffer, *, checksum: int) -> bool:
        """Say whether these are its bytes, by the checksum, or by the tag, which is an MD5 without a KMS key.

        Args:
            raw: The bytes.
            checksum: Their CRC-32.
        """
        if self.size != len(raw):
            return False
        if self.crc32 is not None:
            return self.crc32 == _as_sent(checksum)
        return self.etag.strip('"') == hashlib.md5(raw, usedforsecurity=False).hexdigest()


class S3Objects:
    """The objects of one bucket.

    Args:
        bucket: Its name.
        client: A boto3 client, made from the environment by default.

    Raises:
        MissingLibraryError: boto3 is not installed.
    """

    def __init__(self, bucket: str, *, client: Any | None = None) -> None:
        self._bucket = bucket
        self._client = client or _client()

    def listing(self, prefix: str) -> Iterator[S3Object]:
        """List the objects below a prefix."""
        with _telling(f"s3://{self._bucket}/{prefix} cannot be listed"):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
                for found in page.get("Contents", ()):
                    yield S3Object(key=found["Key"], size=found["Size"], etag=found.get("ETag"))

    def head(self, key: str) -> S3Object | None:
        """Give an object with its labels, None when there is no such object."""
        with _telling(f"{self._name(key)} cannot be looked at"):
            try:
                found = self._client.head_object(Bucket=self._bucket, Key=key)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in _NOT_FOUND:
                    return None
                raise
            return S3Object(key, found["ContentLength"], found.get("ETag"), found.get("Metadata", {}))

    def read(self, key: str, *, start: int, size: int, etag: str | None = None) -> bytes:
        """Read a range of an object. It gives fewer bytes only at the object's end.

        Args:
            key: Its key.
            start: The first byte.
            size: The number of bytes.
            etag: The tag of the wanted content. None for any content.

        Raises:
            RemoteError: It cannot be read. It is `missing` when there is no such object, or none of that size.
        """
        asked = {"Range": f"bytes={start}-{start + max(size, 1) - 1}"} | ({"IfMatch": etag} if etag else {})
        with _telling(f"{self._name(key)} cannot be read"), contextlib.ExitStack() as stack:
            found = self._client.get_object(Bucket=self._bucket, Key=key, **asked)
            body = stack.enter_context(contextlib.closing(found["Body"]))
            # A server that ignores the range must not fill the memory.
            raw: bytes = body.read(size)
            return raw

    def write(
        self,
        key: str,
        raw: Buffer,
        *,
        labels: Mapping[str, str],
        replace: bool = True,
        checksum: int | None = None,
    ) -> None:
        """Write a whole object.

        Args:
            key: Its key.
            raw: Its bytes.
            labels: Its labels.
            replace: False to write it only where there is none.
            checksum: The CRC-32 of the bytes, where it is known.

        Raises:
            RemoteError: S3 refuses. Its code is one of `ALREADY_THERE` where there is one that must not be replaced.
        """
        condition = {} if replace else self._if_known("PutObject", IfNoneMatch="*")
        with _telling(f"{self._name(key)} cannot be written"):
            self._client.put_object(
                Bucket=self._bucket,
                Key=key,
                Body=sendable(raw),
                Metadata=dict(labels),
                ChecksumCRC32=_as_sent(crc32(raw) if checksum is None else checksum),
                **condition,
            )

    def delete(self, key: str, *, etag: str | None = None) -> None:
        """Delete an object. A missing one is no error.

        Args:
            key: Its key.
            etag: The tag of the content that is to go. None for any content.
        """
        condition = {} if etag is None else self._if_known("DeleteObject", IfMatch=etag)
        with _telling(f"{self._name(key)} cannot be deleted"):
            self._client.delete_object(Bucket=self._bucket, Key=key, **condition)

    def begin_upload(self, key: str, *, labels: Mapping[str, str]) -> str:
        """Begin an object that is sent in parts. Gives the upload's id."""
        with _telling(f"{self._name(key)} cannot be written"):
            begun = self._client.create_multipart_upload(
                Bucket=self._bucket, Key=key, Metadata=dict(labels), ChecksumAlgorithm="CRC32"
            )
            upload: str = begun["UploadId"]
            return upload

    def unfinished_uploads(self, prefix: str) -> list[tuple[str, str]]:
        """List the unfinished uploads below a prefix by keys and ids, the newest first."""
        with _telling(f"the unfinished uploads of s3://{self._bucket}/{prefix} cannot be listed"):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(Bucket=self._bucket, Prefix=prefix)
            found = list(islice((upload for page in pages for upload in page.get("Uploads", ())), _MOST_LISTED))
            found.sort(key=lambda upload: upload["Initiated"], reverse=True)
            return [(upload["Key"], upload["UploadId"]) for upload in found]

    def parts(self, key: str, upload: str) -> list[Part]:
        """List the parts that S3 has of an upload. An upload that no longer exists has none."""
        with _telling(f"the parts of {self._name(key)} cannot be listed"):
            try:
                pages = self._client.get_paginator("list_parts").paginate(Bucket=self._bucket, Key=key, UploadId=upload)
                found = islice((part for page in pages for part in page.get("Parts", ())), _MOST_LISTED)
                return [
                    Part(part["PartNumber"], part["ETag"], part.get("ChecksumCRC32"), part["Size"]) for part in found
                ]
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] in _GONE:
                    return []
                raise

    def write_part(self, key: str, upload: str, *, number: int, raw: Buffer, checksum: int | None = None) -> Part:
        """Send one part.

        Args:
            key: The key of the object.
            upload: The upload's id.
            number: From 1.
            raw: Its bytes.
            checksum: The CRC-32 of the bytes, where it is known.
        """
        with _telling(f"part {number} of {self._name(key)} cannot be written"):
            text = _as_sent(crc32(raw) if checksum is None else checksum)
            sent = self._client.upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload,
                PartNumber=number,
                Body=sendable(raw),
                ChecksumCRC32=text,
            )
            return Part(number, sent["ETag"], text, len(raw))

    def finish_upload(self, key: str, upload: str, parts: Sequence[Part]) -> None:
        """Make the object of its parts, in any order. S3 compares their checksums once more."""
        ordered = sorted(parts, key=lambda part: part.number)
        with _telling(f"{self._name(key)} cannot be put together"):
            self._client.complete_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload,
                MultipartUpload={
                    "Parts": [
                        {"PartNumber": part.number, "ETag": part.etag}
                        | ({} if part.crc32 is None else {"ChecksumCRC32": part.crc32})
                        for part in ordered
                    ]
                },
            )

    def abort_upload(self, key: str, upload: str) -> None:
        """Throw the parts of an upload away. A missing one is no error."""
        with _telling(f"the upload of {self._name(key)} cannot be aborted"):
            try:
                self._client.abort_multipart_upload(Bucket=self._bucket, Key=key, UploadId=upload)
            except self._client.exceptions.ClientError as error:
                if error.response["Error"]["Code"] not in _GONE:
                    raise

    def _if_known(self, operation: str, **condition: str) -> dict[str, str]:
        """Give a condition of a call, if the SDK is not older than it."""
        meta = getattr(self._client, "meta", None)
        members = () if meta is None else meta.service_model.operation_model(operation).input_shape.members
        return {name: value for name, value in condition.items() if meta is None or name in members}

    def _name(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def _as_sent(checksum: int) -> str:
    """Give a CRC-32 in S3's form, four big-endian bytes in Base64."""
    return base64.b64encode(checksum.to_bytes(4, "big")).decode("ascii")


def sendable(raw: Buffer) -> bytes | bytearray:
    """Give bytes in a form that the SDK sends without a copy of its own."""
    return raw if isinstance(raw, (bytes, bytearray)) else bytes(raw)


def _client() -> Any:
    try:
        boto3 = importlib.import_module("boto3")
        configuration = importlib.import_module("botocore.config")
    except ImportError as error:
        raise MissingLibraryError(
            "checkpoints in S3 need boto3, which is not installed here: pip install boto3"
        ) from error
    # Every chunk is verified by the checkpoint's own checksums. An SDK from before 2025 has no such option.
    own_checks = {"response_checksum_validation": "when_required"}
    return boto3.session.Session().client(
        "s3",
        config=configuration.Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "max_attempts": _ATTEMPTS},
            # With a checksum of the caller's the SDK hashes each body again for its signature, over TLS too.
            s3={"payload_signing_enabled": False},
            **(own_checks if own_checks.keys() <= configuration.Config.OPTION_DEFAULTS.keys() else {}),
        ),
    )


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    """Turn the SDK's many errors into one that names the failed call."""
    try:
        yield
    except (RemoteError, GeneratorExit):
        raise
    except Exception as error:
        if not type(error).__module__.startswith(("botocore", "boto3", "urllib3")) and not isinstance(error, OSError):
            raise
        response = getattr(error, "response", None)
        code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
        raise RemoteError(f"{what}: {error}", missing=code in (*_NOT_FOUND, "InvalidRange"), code=code) from error
