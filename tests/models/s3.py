"""S3 in memory: the objects of the checkpoint bucket, spelled as boto3's client."""

from __future__ import annotations

import hashlib
import io
import itertools
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from botocore.exceptions import ClientError

from tests.models.faults import Called, Model, client_error

BUCKET: Final = "checkpoints"
_KEYS_A_PAGE: Final = 1_000
_BYTES: Final = 1_000_000
_SOME_TIME: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Objects(Model):
    """The objects of a bucket; which bucket a call names makes no difference.

    Attributes:
        written: When each object was written, by key. One of which no content is known has a million bytes.
        contents: The bytes of objects, by key.
        sizes: The sizes of objects that are listed alone.
        replaced: Key, size and time of versions that newer ones replaced.
        copies: The requests that copied an object, in their order.
        downloaded: The keys of the objects that were downloaded to files.
    """

    def __init__(self, called: Called | None = None, *, now: Callable[[], datetime] = lambda: _SOME_TIME) -> None:
        super().__init__(called)
        self._now = now
        self.written: dict[str, datetime] = {}
        self.contents: dict[str, bytes] = {}
        self.sizes: dict[str, int] = {}
        self.replaced: list[tuple[str, int, datetime]] = []
        self.copies: list[dict[str, Any]] = []
        self.downloaded: list[str] = []

    def put_object(self, *, Key: str, Body: bytes, **_bucket: str) -> None:  # noqa: N803 - boto3's names, here and below
        self._call("PutObject", lambda: self._put(Key, Body))

    def head_object(self, *, Key: str, **_bucket: str) -> Any:  # noqa: N803
        return self._call("HeadObject", lambda: {"ContentLength": self._size("HeadObject", Key)})

    def get_object(self, *, Key: str, **_bucket: str) -> Any:  # noqa: N803
        return self._call("GetObject", lambda: {"Body": io.BytesIO(self.contents[Key])})

    def copy_object(self, *, Key: str, **request: Any) -> None:  # noqa: N803
        self._call("CopyObject", lambda: self._copy(Key, request))

    def download_file(self, _bucket: str, key: str, path: str, *, Callback: Callable[[int], None]) -> None:  # noqa: N803
        self._call("GetObject", lambda: self._download(key, path, Callback))

    def get_paginator(self, operation: str) -> _Pages:
        return _Pages(self, operation)

    def answer(
        self, method: str, url: str, *, headers: Mapping[str, str], **_sent: Any
    ) -> tuple[int, dict[str, str], bytes]:
        """The same objects as an instance asks for them: over HTTP, its bucket in the path, in one page."""
        parts = urlsplit(url)
        key = unquote(parts.path).partition("/")[2].partition("/")[2]
        if not key:
            query = parse_qs(parts.query)
            assert query["encoding-type"] == ["url"], "XML 1.0 has no control characters, and keys may"
            return 200, {}, self._call("ListObjectsV2", lambda: self._listing(query.get("prefix", [""])[0]).encode())
        if key not in self.contents:
            return 404, {}, b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>"
        if headers.get("if-match", self._etag(key)) != self._etag(key):
            return 412, {}, b"<Error><Code>PreconditionFailed</Code><Message>At least one failed.</Message></Error>"
        first, last = map(int, re.findall(r"[0-9]+", headers["range"]))
        return 206, {}, self._call("GetObject", lambda: self.contents[key][first : last + 1])

    def _listing(self, prefix: str) -> str:
        entries = "".join(
            f"<Contents><Key>{quote(key)}</Key><Size>{self._size('', key)}</Size>"
            f"<ETag>{self._etag(key)}</ETag></Contents>"
            for key in self._keys(prefix)
        )
        return f"<ListBucketResult><EncodingType>url</EncodingType>{entries}</ListBucketResult>"

    def _etag(self, key: str) -> str:
        return f'"{hashlib.md5(self.contents.get(key, b""), usedforsecurity=False).hexdigest()}"'

    def _size(self, operation: str, key: str) -> int:
        if key in self.sizes:
            return self.sizes[key]
        if key not in self.contents and key not in self.written:
            raise client_error(operation, "404", ResponseMetadata={"HTTPStatusCode": 404})
        return len(self.contents[key]) if key in self.contents else _BYTES

    def _put(self, key: str, content: bytes) -> None:
        self.contents[key] = content
        self.written[key] = self._now()

    def _copy(self, key: str, request: dict[str, Any]) -> None:
        self.copies.append({"Key": key, **request})
        self.contents[key] = self.contents.get(request["CopySource"]["Key"], b"")

    def _download(self, key: str, path: str, on_bytes: Callable[[int], None]) -> None:
        self.downloaded.append(key)
        Path(path).write_bytes(self.contents[key])
        on_bytes(len(self.contents[key]))

    def _keys(self, prefix: str) -> list[str]:
        return sorted(key for key in {**self.written, **self.contents, **self.sizes} if key.startswith(prefix))

    def _entry(self, key: str) -> dict[str, Any]:
        return {"Key": key, "Size": self._size("", key), "LastModified": self.written.get(key, _SOME_TIME)}


class _Pages:
    """The paginator of `list_objects_v2` or of `list_object_versions`."""

    def __init__(self, objects: Objects, operation: str) -> None:
        self._objects = objects
        self._operation, self._found = {
            "list_objects_v2": ("ListObjectsV2", "Contents"),
            "list_object_versions": ("ListObjectVersions", "Versions"),
        }[operation]

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str | None = None) -> Iterator[Any]:  # noqa: N803
        for first in itertools.count(0, _KEYS_A_PAGE):
            page = self._objects._call(self._operation, lambda first=first: self._page(Prefix, Delimiter, first))  # type: ignore[misc]
            yield page
            if not page["IsTruncated"]:
                return

    def _page(self, prefix: str, delimiter: str | None, first: int) -> dict[str, Any]:
        objects, key = self._objects, self._found
        keys = objects._keys(prefix)
        if delimiter is not None:
            folders = sorted({key[: key.index(delimiter, len(prefix)) + 1] for key in keys})
            key = "CommonPrefixes"
            found: list[dict[str, Any]] = [{"Prefix": folder} for folder in folders]
        else:
            found = [objects._entry(key) for key in keys]
        if key == "Versions":
            found += [
                {"Key": name, "Size": size, "LastModified": at}
                for name, size, at in objects.replaced
                if name.startswith(prefix)
            ]
        following = first + _KEYS_A_PAGE
        return {key: found[first:following], "IsTruncated": following < len(found)}


class RefusedPuts:
    """S3 that answers each PutObject with one error, until it has none."""

    def __init__(self, *error: Any) -> None:
        self.error: tuple[Any, ...] = error
        """Code, message and HTTP status."""

    def put_object(self, **_object: Any) -> None:
        if self.error:
            code, message, status = self.error
            raise client_error("PutObject", code, message, ResponseMetadata={"HTTPStatusCode": status})


class StoredObjects:
    """What one bucket holds, whole objects and uploads in parts. Several clients share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, dict[str, str]]] = {}
        self.uploads: dict[str, tuple[str, dict[str, str], dict[int, bytes]]] = {}

    def names(self) -> set[str]:
        """The keys of the objects."""
        with self.lock:
            return set(self.objects)


class BucketClient(Model):
    """A boto3 client of one machine, as far as copies of checkpoints use it, with conditions and uploads in parts.

    Args:
        stored: What the bucket holds.
        called: Makes each call of this machine.
    """

    class exceptions:  # noqa: N801 - boto3's name
        ClientError = ClientError

    def __init__(self, stored: StoredObjects, called: Called | None = None) -> None:
        super().__init__(called)
        self._stored = stored

    def _make(self, operation: str, act: Callable[[], Any]) -> Any:
        def locked() -> Any:
            with self._stored.lock:
                return act()

        return self._call(operation, locked)

    def head_object(self, *, Key: str, **_bucket: str) -> Any:  # noqa: N803
        return self._make("HeadObject", lambda: self._described("HeadObject", Key))

    def get_object(self, *, Key: str, Range: str, **_bucket: str) -> Any:  # noqa: N803
        def act() -> Any:
            first, last = map(int, re.findall("[0-9]+", Range))
            self._described("GetObject", Key)
            return {"Body": io.BytesIO(self._stored.objects[Key][0][first : last + 1])}

        return self._make("GetObject", act)

    def put_object(
        self,
        *,
        Key: str,  # noqa: N803
        Body: bytes,  # noqa: N803
        Metadata: Mapping[str, str],  # noqa: N803
        IfNoneMatch: str | None = None,  # noqa: N803
        **_more: str,
    ) -> None:
        def act() -> None:
            if IfNoneMatch is not None and Key in self._stored.objects:
                raise client_error("PutObject", "PreconditionFailed")
            self._stored.objects[Key] = (bytes(Body), dict(Metadata))

        self._make("PutObject", act)

    def delete_object(self, *, Key: str, IfMatch: str | None = None, **_bucket: str) -> None:  # noqa: N803
        def act() -> None:
            if IfMatch is not None and Key in self._stored.objects and self._etag(Key) != IfMatch:
                raise client_error("DeleteObject", "PreconditionFailed")
            self._stored.objects.pop(Key, None)

        self._make("DeleteObject", act)

    def create_multipart_upload(self, *, Key: str, Metadata: Mapping[str, str], **_more: str) -> Any:  # noqa: N803
        def act() -> Any:
            upload = f"upload-{next(_numbers)}"
            self._stored.uploads[upload] = (Key, dict(Metadata), {})
            return {"UploadId": upload}

        return self._make("CreateMultipartUpload", act)

    def upload_part(self, *, UploadId: str, PartNumber: int, Body: bytes, **_more: str) -> Any:  # noqa: N803
        def act() -> Any:
            if UploadId not in self._stored.uploads:
                raise client_error("UploadPart", "NoSuchUpload")
            self._stored.uploads[UploadId][2][PartNumber] = bytes(Body)
            return {"ETag": _tag(Body)}

        return self._make("UploadPart", act)

    def complete_multipart_upload(self, *, UploadId: str, MultipartUpload: Any, **_more: str) -> None:  # noqa: N803
        def act() -> None:
            if UploadId not in self._stored.uploads:
                raise client_error("CompleteMultipartUpload", "NoSuchUpload")
            key, labels, parts = self._stored.uploads.pop(UploadId)
            numbers = [part["PartNumber"] for part in MultipartUpload["Parts"]]
            self._stored.objects[key] = (b"".join(parts[number] for number in numbers), labels)

        self._make("CompleteMultipartUpload", act)

    def abort_multipart_upload(self, *, UploadId: str, **_more: str) -> None:  # noqa: N803
        self._make("AbortMultipartUpload", lambda: self._stored.uploads.pop(UploadId, None))

    def get_paginator(self, operation: str) -> Any:
        return _OnePage(getattr(self, f"_{operation}"))

    def _list_objects_v2(self, *, Prefix: str, **_bucket: str) -> Any:  # noqa: N803
        def act() -> Any:
            found = sorted(key for key in self._stored.objects if key.startswith(Prefix))
            return {"Contents": [
                {"Key": key, "Size": len(self._stored.objects[key][0]), "ETag": self._etag(key)} for key in found
            ]}  # fmt: skip

        return self._make("ListObjectsV2", act)

    def _list_multipart_uploads(self, *, Prefix: str, **_bucket: str) -> Any:  # noqa: N803
        def act() -> Any:
            return {"Uploads": [
                {"Key": key, "UploadId": upload, "Initiated": _SOME_TIME}
                for upload, (key, _, _) in self._stored.uploads.items() if key.startswith(Prefix)
            ]}  # fmt: skip

        return self._make("ListMultipartUploads", act)

    def _list_parts(self, *, UploadId: str, **_more: str) -> Any:  # noqa: N803
        def act() -> Any:
            _, _, parts = self._stored.uploads.get(UploadId, ("", {}, {}))
            return {"Parts": [
                {"PartNumber": number, "ETag": _tag(raw), "Size": len(raw)} for number, raw in sorted(parts.items())
            ]}  # fmt: skip

        return self._make("ListParts", act)

    def _described(self, operation: str, key: str) -> dict[str, Any]:
        if key not in self._stored.objects:
            raise client_error(operation, "NoSuchKey")
        raw, labels = self._stored.objects[key]
        return {"ContentLength": len(raw), "Metadata": labels, "ETag": self._etag(key)}

    def _etag(self, key: str) -> str:
        return _tag(self._stored.objects[key][0])


_numbers = itertools.count(1)


def _tag(raw: bytes) -> str:
    return f'"{hashlib.md5(raw, usedforsecurity=False).hexdigest()}"'


class _OnePage:
    def __init__(self, page: Callable[..., Any]) -> None:
        self._page = page

    def paginate(self, **parameters: str) -> Iterator[Any]:
        yield self._page(**parameters)
