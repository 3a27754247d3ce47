"""Keeps an installed environment in S3, for the machine on which the job comes back.

What is in it will be executed, and jobs of other runs may write there: they share a role. So each archive is signed
with the id of the launch, which no other job knows, and whatever else lies there is not unpacked. The next launch has
another id, and installs anew.
"""

from __future__ import annotations

import hashlib
import hmac
import tarfile
from pathlib import Path
from typing import IO, Callable

from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import Part, S3Objects, S3Place

from .source_archive import unpack
from .virtual_environment import pack

_PART_BYTES = 64 * 2**20
_MAX_BYTES = 8 * 2**30
_SIGNATURE = "spotkeep-signature"


class EnvironmentCache:
    """The environments of one run.

    Args:
        place: `s3://bucket/prefix/`.
        secret: The launch's id.
        cut_short: Says whether the machine goes away: then nothing more is fetched or sent.

    Raises:
        MissingLibraryError: If boto3 is not installed.
        UsageError: If it is no such place.
    """

    def __init__(self, place: str, *, secret: str, cut_short: Callable[[], bool]) -> None:
        self._place = S3Place.parse(place)
        self._objects = S3Objects(self._place.bucket)
        self._secret = secret.encode()
        self._cut_short = cut_short

    def fetch(self, key: str, directory: Path) -> bool:
        """Unpack an environment into a directory that is there, and empty. Gives whether there was one.

        Args:
            key: What decides what is in it.
            directory: Where.

        Raises:
            RemoteError: If it cannot be had, or was not signed by this launch.
            SourceError: If it is signed, and cannot be unpacked.
            OSError: If the disk refuses.
        """
        name = self._name(key)
        found = self._objects.labels(name)
        if found is None:
            return False
        size, labels = found
        if size > _MAX_BYTES:
            raise RemoteError(f"{name} has {size:,} bytes, more than {_MAX_BYTES:,}")
        packed = _beside(directory)
        try:
            with packed.open("w+b") as archive:
                for start in range(0, size, _PART_BYTES):
                    self._go_on(name)
                    archive.write(self._objects.read(name, start=start, size=min(_PART_BYTES, size - start)))
                if not hmac.compare_digest(labels.get(_SIGNATURE, "").encode(), self._signature(key, archive).encode()):
                    raise RemoteError(f"{name} was not written by this launch, and is not unpacked")
                unpack(archive, name=packed.name, target=directory)
        finally:
            packed.unlink(missing_ok=True)
        return True

    def keep(self, key: str, directory: Path) -> int:
        """Write an environment. Gives its size there, in bytes.

        Raises:
            RemoteError: If it cannot be written, or is too large.
            OSError: If the disk refuses.
        """
        name = self._name(key)
        packed = _beside(directory)
        try:
            with packed.open("w+b") as archive:
                with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
                    pack(directory, tar, go_on=lambda: self._go_on(name))
                size = archive.tell()
                if size > _MAX_BYTES:
                    raise RemoteError(f"{name} would have {size:,} bytes, more than {_MAX_BYTES:,}")
                self._send(name, archive, labels={_SIGNATURE: self._signature(key, archive)})
        finally:
            packed.unlink(missing_ok=True)
        return size

    def _send(self, name: str, archive: IO[bytes], *, labels: dict[str, str]) -> None:
        archive.seek(0)
        upload = self._objects.begin_upload(name, labels=labels)
        try:
            parts: list[Part] = []
            for raw in iter(lambda: archive.read(_PART_BYTES), b""):
                self._go_on(name)
                parts.append(self._objects.write_part(name, upload, number=len(parts) + 1, raw=raw))
            self._objects.finish_upload(name, upload, parts)
        except RemoteError:
            self._objects.abort_upload(name, upload)
            raise

    def _go_on(self, name: str) -> None:
        if self._cut_short():
            raise RemoteError(f"{name} is left: the machine goes away")

    def _signature(self, key: str, archive: IO[bytes]) -> str:
        digest = hmac.new(self._secret, key.encode(), hashlib.sha256)
        archive.seek(0)
        for piece in iter(lambda: archive.read(2**20), b""):
            digest.update(piece)
        return digest.hexdigest()

    def _name(self, key: str) -> str:
        return f"{self._place.prefix}{key}.tar.gz"


def _beside(directory: Path) -> Path:
    """Give where the archive lies meanwhile: on the same disk, which is the large one."""
    return directory.with_name(f"{directory.name}.tar.gz")
