"""A server on loopback that speaks as much of S3 as the clients need, and costs next to nothing.

It throws the bodies of uploads away in the kernel (`MSG_TRUNC`), and sends files with `sendfile`. So it copies no byte,
and hashes none. It accepts every signature. Objects below a folder of files can be read, and other keys are absent
until something has been written there.

It prints its port. For each line on its standard input it prints its requests and seconds of processor since the line
before, as JSON, and forgets the written objects.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import sys
import threading
from collections import Counter
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bench"
_HEAD_BYTES = 2**16
_DISCARDED_BYTES = 2**22
_NEVER = "Sun, 29 Nov 2026 00:00:00 GMT"
_ETAG = '"0123456789abcdef0123456789abcdef"'


class Sink:
    """The objects, and the counts of requests.

    Args:
        files: The folder of the objects that can be read.
    """

    def __init__(self, files: Path) -> None:
        self._files = files
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Forget written objects and counts."""
        self._sizes: dict[str, int] = {}
        self._uploads: dict[str, int] = {}
        self.requests: Counter[str] = Counter()
        self.received_bytes = 0

    def path_of(self, key: str) -> Path | None:
        """Return the file of an object that can be read, None for others."""
        path = self._files / key
        return path if key and path.is_file() else None

    def size(self, key: str) -> int | None:
        """Return the size of an object, None where there is none."""
        path = self.path_of(key)
        return self._sizes.get(key) if path is None else path.stat().st_size

    def listed(self, prefix: str) -> list[tuple[str, int]]:
        """Return the keys and sizes below a prefix."""
        paths = (path for path in sorted(self._files.rglob("*")) if path.is_file())
        found = {str(path.relative_to(self._files)): path.stat().st_size for path in paths} | self._sizes
        return [(key, size) for key, size in found.items() if key.startswith(prefix)]

    def wrote(self, key: str, query: dict[str, list[str]], size: int) -> None:
        """Count a written object or part."""
        with self._lock:
            self.received_bytes += size
            if "uploadId" in query:
                self._uploads[key] = self._uploads.get(key, 0) + size
            else:
                self._sizes[key] = size

    def completed(self, key: str) -> None:
        """Make the object of its parts."""
        with self._lock:
            self._sizes[key] = self._uploads.pop(key, 0)

    def count(self, request: str) -> None:
        """Count a request."""
        with self._lock:
            self.requests[request] += 1


class Connection:
    """One connection of a client.

    Args:
        sink: The objects.
        peer: The socket.
    """

    def __init__(self, sink: Sink, peer: socket.socket) -> None:
        self._sink = sink
        self._peer = peer
        self._rest = b""
        self._scratch = bytearray(_DISCARDED_BYTES)

    def serve(self) -> None:
        """Answer requests until the client goes."""
        self._peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError), self._peer:
            while self._one():
                pass

    def _one(self) -> bool:
        while b"\r\n\r\n" not in self._rest:
            more = self._peer.recv(_HEAD_BYTES)
            if not more:
                return False
            self._rest += more
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        parts = urlsplit(target)
        query = parse_qs(parts.query, keep_blank_values=True)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        if headers.get("expect", "").lower() == "100-continue":
            self._peer.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = self._discard(headers)
        size = int(headers.get("x-amz-decoded-content-length", size))
        self._sink.count(_kind(method, key, query))
        self._answer(method, key, query, headers, size)
        return headers.get("connection", "").lower() != "close"

    def _discard(self, headers: dict[str, str]) -> int:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return self._discard_chunks()
        size = int(headers.get("content-length", 0))
        self._skip(size)
        return size

    def _skip(self, size: int) -> None:
        here = min(size, len(self._rest))
        self._rest, left = self._rest[here:], size - here
        while left:
            got = self._peer.recv_into(self._scratch, min(left, _DISCARDED_BYTES), socket.MSG_TRUNC)
            if not got:
                raise ConnectionError
            left -= got

    def _discard_chunks(self) -> int:
        total = 0
        while True:
            while b"\r\n" not in self._rest:
                more = self._peer.recv(_HEAD_BYTES)
                if not more:
                    raise ConnectionError
                self._rest += more
            line, _, self._rest = self._rest.partition(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            self._skip(size + 2)
            total += size
            if not size:
                return total

    def _answer(self, method: str, key: str, query: dict[str, list[str]], headers: dict[str, str], size: int) -> None:
        if method == "GET" and ("uploads" in query or "list-type" in query or not key):
            self._send(200, _listing(self._sink, query))
        elif method in ("GET", "HEAD"):
            self._read(method, key, headers)
        elif method == "PUT":
            self._sink.wrote(key, query, size)
            self._send(200, b"", [f"ETag: {_ETAG}"])
        elif method == "POST" and "uploads" in query:
            self._send(200, _document("InitiateMultipartUploadResult", Bucket=BUCKET, Key=key, UploadId="upload"))
        elif method == "POST":
            self._sink.completed(key)
            self._send(200, _document("CompleteMultipartUploadResult", Bucket=BUCKET, Key=key, ETag=_ETAG))
        else:
            self._send(204, b"")

    def _read(self, method: str, key: str, headers: dict[str, str]) -> None:
        size = self._sink.size(key)
        path = self._sink.path_of(key)
        if size is None or (method == "GET" and path is None):
            self._send(404, b"" if method == "HEAD" else _document("Error", Code="NoSuchKey", Message="no such key"))
            return
        low, high = _range(headers.get("range", ""), size)
        lines = ["Accept-Ranges: bytes", f"ETag: {_ETAG}", f"Last-Modified: {_NEVER}"]
        ranged = "range" in headers
        if ranged:
            lines.append(f"Content-Range: bytes {low}-{high - 1}/{size}")
        self._send(206 if ranged else 200, None, lines, length=high - low)
        if method == "GET" and path is not None:
            with path.open("rb") as file:
                while low < high:
                    low += os.sendfile(self._peer.fileno(), file.fileno(), low, high - low)

    def _send(self, status: int, body: bytes | None, lines: list[str] | None = None, *, length: int = 0) -> None:
        head = [
            f"HTTP/1.1 {status} X",
            f"Content-Length: {length if body is None else len(body)}",
            "Content-Type: application/xml",
            "x-amz-request-id: 0",
            f"Date: {_NEVER}",
            *(lines or []),
        ]
        self._peer.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + (body or b""))


def _kind(method: str, key: str, query: dict[str, list[str]]) -> str:
    if method == "PUT":
        return "UploadPart" if "uploadId" in query else "PutObject"
    if method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
    if method == "GET" and (not key or "uploads" in query):
        return "ListMultipartUploads" if "uploads" in query else "ListObjects"
    return {"GET": "GetObject", "HEAD": "HeadObject", "DELETE": "Delete"}.get(method, method)


def _range(header: str, size: int) -> tuple[int, int]:
    if not header.startswith("bytes="):
        return 0, size
    first, _, last = header.removeprefix("bytes=").partition("-")
    return int(first), min(int(last) + 1 if last else size, size)


def _listing(sink: Sink, query: dict[str, list[str]]) -> bytes:
    prefix = query.get("prefix", [""])[0]
    if "uploads" in query:
        return _document("ListMultipartUploadsResult", Bucket=BUCKET, IsTruncated="false")
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-11-29T00:00:00.000Z</LastModified>"
        f"<ETag>{escape(_ETAG)}</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key, size in sink.listed(prefix)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{contents.count('<Key>')}</KeyCount>"
        f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>"
    ).encode()


def _document(root: str, **items: str) -> bytes:
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in items.items())
    space = "" if root == "Error" else ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{space}>{body}</{root}>'.encode()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Serve until standard input ends."""
    sink = Sink(Path(sys.argv[1]))
    server = socket.create_server(("127.0.0.1", 0), backlog=128)

    def accept() -> None:
        while True:
            peer, _ = server.accept()
            threading.Thread(target=Connection(sink, peer).serve, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    print(server.getsockname()[1], flush=True)
    began = _processor_seconds()
    for _ in sys.stdin:
        now = _processor_seconds()
        figures = {"requests": sink.requests, "bytes": sink.received_bytes, "processor_s": now - began}
        print(json.dumps(figures), flush=True)
        sink.forget()
        began = _processor_seconds()
    return 0


if __name__ == "__main__":
    sys.exit(main())
