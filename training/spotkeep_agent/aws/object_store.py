"""S3 in the shape of boto3's client, as far as `spotkeep.remote` needs it, and whole objects by their address.

`spotkeep.remote.s3_objects.S3Objects` works with any client of that shape. An instance may have no boto3.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import BytesIO
from typing import Any, Callable
from urllib.parse import unquote_plus

from spotkeep.remote.s3_objects import S3Objects
from spotkeep_agent.errors import AgentError, AwsCallRefusedError, AwsUnavailableError

from .calls import AwsAnswer, AwsCalls, _without_namespaces

_METADATA_PREFIX = "x-amz-meta-"
_ENCODED = {"encoding-type": "url"}
"""A parameter of listings, because XML 1.0 has no control characters, and keys may."""


class S3ClientError(OSError):
    """S3 refused, or could not be reached.

    `response` has the form of boto3's ClientError, without a code if S3 was not reached.
    """

    def __init__(self, error: AgentError) -> None:
        code = error.code if isinstance(error, AwsCallRefusedError) else ""
        if isinstance(error, AwsCallRefusedError) and error.status == 404 and code == "404":
            code = "NoSuchKey"
        self.response = {"Error": {"Code": code, "Message": str(error)}}
        super().__init__(str(error))


class _Exceptions:
    ClientError = S3ClientError


class _Paginator:
    def __init__(self, client: S3Client, operation: str) -> None:
        self._client = client
        self._operation = operation

    def paginate(self, **parameters: str) -> Iterator[dict[str, Any]]:
        return getattr(self._client, f"_pages_of_{self._operation}")(**parameters)  # type: ignore[no-any-return]


class S3Client:
    """The methods of boto3's S3 client that `S3Objects` uses, with its parameters and answers.

    Args:
        calls: To S3.
    """

    exceptions = _Exceptions

    def __init__(self, calls: AwsCalls) -> None:
        self._calls = calls

    def get_paginator(self, operation: str) -> _Paginator:
        """Return a paginator of list_objects_v2, list_multipart_uploads or list_parts."""
        return _Paginator(self, operation)

    def head_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:  # noqa: N803
        """Return the size of an object and its metadata."""
        answer = self._send("HeadObject", "HEAD", Bucket, Key)
        metadata = {
            name[len(_METADATA_PREFIX) :]: value
            for name, value in answer.headers.items()
            if name.startswith(_METADATA_PREFIX)
        }
        found = {"ContentLength": int(answer.headers.get("content-length", 0)), "Metadata": metadata}
        tag = answer.headers.get("etag")
        return {**found, "ETag": tag} if tag else found

    def get_object(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        Range: str,  # noqa: N803
        IfMatch: str | None = None,  # noqa: N803
    ) -> dict[str, Any]:
        """Read a range of an object, `bytes=<first>-<last>`. All of it is in memory at once."""
        first, _, last = Range.partition("=")[2].partition("-")
        most_bytes = int(last) - int(first) + 1
        headers = {"range": Range} | ({} if IfMatch is None else {"if-match": IfMatch})
        answer = self._send("GetObject", "GET", Bucket, Key, headers=headers, most_bytes=most_bytes)
        return {"Body": BytesIO(answer.body)}

    def put_object(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        Body: bytes,  # noqa: N803
        Metadata: Mapping[str, str],  # noqa: N803
        ChecksumCRC32: str,  # noqa: N803
        IfNoneMatch: str | None = None,  # noqa: N803
    ) -> None:
        """Write an object."""
        headers = {_METADATA_PREFIX + name: value for name, value in Metadata.items()}
        headers |= {} if IfNoneMatch is None else {"if-none-match": IfNoneMatch}
        self._send(
            "PutObject", "PUT", Bucket, Key, headers={**headers, "x-amz-checksum-crc32": ChecksumCRC32}, body=Body
        )

    def delete_object(self, *, Bucket: str, Key: str, IfMatch: str | None = None) -> None:  # noqa: N803
        """Delete an object."""
        headers = {} if IfMatch is None else {"if-match": IfMatch}
        self._send("DeleteObject", "DELETE", Bucket, Key, headers=headers)

    def create_multipart_upload(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        Metadata: Mapping[str, str],  # noqa: N803
        ChecksumAlgorithm: str,  # noqa: N803
    ) -> dict[str, Any]:
        """Begin an upload in parts."""
        headers = {_METADATA_PREFIX + name: value for name, value in Metadata.items()}
        headers["x-amz-checksum-algorithm"] = ChecksumAlgorithm
        answer = self._send("CreateMultipartUpload", "POST", Bucket, Key, query={"uploads": ""}, headers=headers)
        return {"UploadId": _document(answer).findtext("UploadId")}

    def upload_part(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        PartNumber: int,  # noqa: N803
        Body: bytes,  # noqa: N803
        ChecksumCRC32: str,  # noqa: N803
    ) -> dict[str, Any]:
        """Send a part."""
        answer = self._send(
            "UploadPart",
            "PUT",
            Bucket,
            Key,
            query={"partNumber": str(PartNumber), "uploadId": UploadId},
            headers={"x-amz-checksum-crc32": ChecksumCRC32},
            body=Body,
        )
        return {"ETag": answer.headers.get("etag", "")}

    def complete_multipart_upload(
        self,
        *,
        Bucket: str,  # noqa: N803
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        MultipartUpload: Mapping[str, Sequence[Mapping[str, Any]]],  # noqa: N803
    ) -> None:
        """Make the object of its parts."""
        root = ET.Element("CompleteMultipartUpload")
        for part in MultipartUpload["Parts"]:
            item = ET.SubElement(root, "Part")
            for name, value in part.items():
                ET.SubElement(item, name).text = str(value)
        self._send(
            "CompleteMultipartUpload",
            "POST",
            Bucket,
            Key,
            query={"uploadId": UploadId},
            body=ET.tostring(root),
        )

    def abort_multipart_upload(self, *, Bucket: str, Key: str, UploadId: str) -> None:  # noqa: N803
        """Throw an upload's parts away."""
        self._send("AbortMultipartUpload", "DELETE", Bucket, Key, query={"uploadId": UploadId})

    def _pages_of_list_objects_v2(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        query = {"list-type": "2", "prefix": Prefix, **_ENCODED}
        while True:
            root = _document(self._send("ListObjectsV2", "GET", Bucket, "", query=query))
            key = _key_reader(root)
            contents = []
            for item in root.findall("Contents"):
                found = {"Key": key(item), "Size": int(item.findtext("Size") or 0)}
                tag = item.findtext("ETag")
                contents.append({**found, "ETag": tag} if tag else found)
            yield {"Contents": contents}
            token = root.findtext("NextContinuationToken")
            if not token:
                return
            query["continuation-token"] = token

    def _pages_of_list_multipart_uploads(self, *, Bucket: str, Prefix: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        query = {"uploads": "", "prefix": Prefix, **_ENCODED}
        while True:
            root = _document(self._send("ListMultipartUploads", "GET", Bucket, "", query=query))
            key = _key_reader(root)
            yield {
                "Uploads": [
                    {
                        "Key": key(item),
                        "UploadId": item.findtext("UploadId"),
                        "Initiated": _time(item.findtext("Initiated") or ""),
                    }
                    for item in root.findall("Upload")
                ]
            }
            if root.findtext("IsTruncated") != "true":
                return
            query["key-marker"] = key(root, "NextKeyMarker")
            query["upload-id-marker"] = root.findtext("NextUploadIdMarker") or ""

    def _pages_of_list_parts(self, *, Bucket: str, Key: str, UploadId: str) -> Iterator[dict[str, Any]]:  # noqa: N803
        query = {"uploadId": UploadId}
        while True:
            root = _document(self._send("ListParts", "GET", Bucket, Key, query=query))
            parts = []
            for item in root.findall("Part"):
                part: dict[str, Any] = {
                    "PartNumber": int(item.findtext("PartNumber") or 0),
                    "ETag": item.findtext("ETag") or "",
                    "Size": int(item.findtext("Size") or 0),
                }
                checksum = item.findtext("ChecksumCRC32")
                parts.append({**part, "ChecksumCRC32": checksum} if checksum else part)
            yield {"Parts": parts}
            if root.findtext("IsTruncated") != "true":
                return
            query["part-number-marker"] = root.findtext("NextPartNumberMarker") or ""

    def _send(
        self,
        action: str,
        method: str,
        bucket: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        **bounds: int,
    ) -> AwsAnswer:
        try:
            return self._calls.s3(
                action, method=method, bucket=bucket, key=key, query=query, headers=headers, body=body, **bounds
            )
        except AgentError as error:
            raise S3ClientError(error) from error


def _document(answer: AwsAnswer) -> ET.Element:
    try:
        return _without_namespaces(answer.body)
    except ET.ParseError as error:
        raise S3ClientError(AwsUnavailableError(f"S3 answered no XML: {error}")) from error


def _key_reader(listing: ET.Element) -> Callable[..., str]:
    """Return the function that decodes a key of a listing, which may be percent-encoded."""
    encoded = listing.findtext("EncodingType") == "url"

    def key(item: ET.Element, name: str = "Key") -> str:
        text = item.findtext(name) or ""
        return unquote_plus(text) if encoded else text

    return key


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def objects_of(calls: AwsCalls, bucket: str) -> S3Objects:
    """Return a bucket's objects, without boto3."""
    return S3Objects(bucket, client=S3Client(calls))
