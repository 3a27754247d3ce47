"""Keeps installed environments for the next machine of a job, in S3, and for the next job of a warm pool's host."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import tarfile
from pathlib import Path
from typing import IO, Callable

from spotkeep.errors import InstallError, RemoteError
from spotkeep.remote.s3_objects import Part, S3Objects, S3Place

from .source_archive import unpack
from .virtual_environment import installed_paths, pack

_PART_BYTES = 64 * 2**20
_MAX_BYTES = 8 * 2**30
_SIGNATURE = "spotkeep-signature"
_MAX_POOL_BYTES = 8 * 2**30
"""The most bytes of all environments together. Their directory is on the volume that the job trains on."""
_READ_BYTES = 2**20
_TAR_BYTES_A_MEMBER = 2048
"""Bytes that a tar archive needs for a member beside its content, for headers and the padding of the last block."""


class EnvironmentCache:
    """The environments of one run, in S3.

    A machine executes their files, and jobs of other runs may write there, because they share a role. So each archive
    is signed with the id of the launch, which no other job knows. A machine unpacks nothing else. The next launch has
    another id, and installs anew.

    Args:
        place: `s3://bucket/prefix/`.
        secret: The launch's id.
        cut_short: Gives True once the machine goes away. Then nothing more is fetched or sent.

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
        """Unpack an environment into an existing, empty directory. Gives True if the cache held the environment.

        Args:
            key: The hash of everything that decides the environment's content.
            directory: The directory to unpack into.

        Raises:
            RemoteError: If it cannot be fetched, or was not signed by this launch.
            SourceError: If it is signed, and cannot be unpacked.
            OSError: If the disk refuses.
        """
        name = self._name(key)
        found = self._objects.head(name)
        if found is None:
            return False
        size, labels = found.size, found.labels
        if size > _MAX_BYTES:
            raise RemoteError(f"{name} has {size:,} bytes, more than {_MAX_BYTES:,}")
        packed = _beside(directory)
        try:
            with packed.open("w+b") as archive:
                for start in range(0, size, _PART_BYTES):
                    self._go_on(name)
                    archive.write(self._objects.read(name, start=start, size=min(_PART_BYTES, size - start)))
                if not hmac.compare_digest(labels.get(_SIGNATURE, "").encode(), self._signature(key, archive).encode()):
                    raise RemoteError(f"{name} is of another launch, such as an earlier attempt, and is not unpacked")
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
    """Give a path for the archive while it is written. It is on the environment's own disk, which is the large one."""
    return directory.with_name(f"{directory.name}.tar.gz")


class WarmPoolCache:
    """The environments on this host of a warm pool, for the next job that it gets.

    SageMaker keeps one directory of a host as a job wrote it. The next job takes an environment from there whole, or
    not at all. The archive is written first, then a mark with its size and digest. Each has another name until it is on
    the disk. A job that dies meanwhile leaves an archive without a mark. No job takes such an archive, and the next job
    that writes removes it. A host has one job at a time, so there is no lock.

    Source: AWS, "Train Using SageMaker AI Managed Warm Pools", Using persistent cache.

    Args:
        directory: A directory for the environments alone. Made when one is written.
        cut_short: Gives True once the machine goes away. Then nothing more is read or written.
        max_bytes: The most bytes of all of them together. Those that were used longest ago are removed first.
    """

    def __init__(self, directory: Path, *, cut_short: Callable[[], bool], max_bytes: int = _MAX_POOL_BYTES) -> None:
        self._directory = directory
        self._cut_short = cut_short
        self._max_bytes = max_bytes

    def fetch(self, key: str, directory: Path) -> bool:
        """Unpack an environment into an existing, empty directory. Gives True if the cache held the environment.

        Args:
            key: The hash of everything that decides the environment's content.
            directory: The directory to unpack into.

        Raises:
            InstallError: If the archive differs from its mark. It is removed then.
            SourceError: If it cannot be unpacked.
            OSError: If the disk refuses.
        """
        mark, path = self._mark(key), self._archive(key)
        if not mark.is_file():
            return False
        try:
            expected = json.loads(mark.read_text(encoding="utf-8"))
            with path.open("rb") as archive:
                whole = expected == self._measured(archive)
                if whole:
                    unpack(archive, name=path.name, target=directory)
        except (ValueError, FileNotFoundError):
            whole = False
        if not whole:
            self._remove(key)
            raise InstallError(f"{path} is not what was written there, and is not unpacked")
        os.utime(mark)
        return True

    def keep(self, key: str, directory: Path) -> int:
        """Write an environment. Gives its size there, in bytes.

        Raises:
            InstallError: If it is too large, or the machine goes away.
            OSError: If the disk refuses. Others that did not have to make room are there still.
        """
        expected = sum(path.lstat().st_size + _TAR_BYTES_A_MEMBER for path in installed_paths(directory))
        if expected > self._max_bytes:
            raise InstallError(f"{directory} has {expected:,} bytes, more than {self._max_bytes:,}")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._make_room(expected, besides=key)
        path = self._archive(key)
        unfinished = path.with_suffix(".unfinished")
        try:
            with unfinished.open("w+b") as archive:
                with tarfile.open(fileobj=archive, mode="w") as tar:
                    pack(directory, tar, go_on=self._go_on)
                measured = self._measured(archive)
                _make_durable(archive)
            unfinished.replace(path)
            with unfinished.open("w+b") as mark:
                mark.write(json.dumps(measured).encode("ascii"))
                _make_durable(mark)
            unfinished.replace(self._mark(key))
        finally:
            unfinished.unlink(missing_ok=True)
        return path.stat().st_size

    def _make_room(self, size: int, *, besides: str) -> None:
        """Remove incomplete archives, those of this key, and as many others as the size limit demands."""
        marks = {path.stem: path for path in self._directory.glob("*.json") if self._archive(path.stem).is_file()}
        marks.pop(besides, None)
        for path in self._directory.iterdir():
            if path.stem not in marks:
                path.unlink()
        sizes = {key: self._archive(key).stat().st_size for key in marks}
        for key in sorted(marks, key=lambda key: marks[key].stat().st_mtime_ns):
            if sum(sizes.values()) + size <= self._max_bytes:
                return
            self._remove(key)
            del sizes[key]

    def _measured(self, archive: IO[bytes]) -> dict[str, object]:
        digest, size = hashlib.sha256(), 0
        archive.seek(0)
        for piece in iter(lambda: archive.read(_READ_BYTES), b""):
            self._go_on()
            digest.update(piece)
            size += len(piece)
        return {"sha256": digest.hexdigest(), "bytes": size}

    def _go_on(self) -> None:
        if self._cut_short():
            raise InstallError(f"what is in {self._directory} is left: the machine goes away")

    def _remove(self, key: str) -> None:
        # The mark first: without it there is no environment.
        self._mark(key).unlink(missing_ok=True)
        self._archive(key).unlink(missing_ok=True)

    def _archive(self, key: str) -> Path:
        return self._directory / f"{key}.tar"

    def _mark(self, key: str) -> Path:
        return self._directory / f"{key}.json"


def _make_durable(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
