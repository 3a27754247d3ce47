"""Models compare by what is in their files, not by how the archive was made."""

from __future__ import annotations

import io
import tarfile
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.rehearsal.model_files import hash_model_files, hash_of_hashes, model_files_of


def archive(files: dict[str, bytes], *, mtime: int = 0) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), mtime
            tar.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def test_the_archives_timestamps_and_order_do_not_matter() -> None:
    first = hash_model_files(archive({"./a": b"1", "b/c": b"2"}, mtime=1))
    second = hash_model_files(archive({"b/c": b"2", "a": b"1"}, mtime=2))
    assert first == second
    assert hash_of_hashes(first) == hash_of_hashes(second)


def test_one_flipped_byte_changes_the_hash_of_its_file_alone() -> None:
    first = hash_model_files(archive({"a": b"1", "b": b"2"}))
    second = hash_model_files(archive({"a": b"1", "b": b"3"}))
    assert [name for name in first if first[name] != second[name]] == ["b"]
    assert hash_of_hashes(first) != hash_of_hashes(second)


def test_the_files_are_those_of_the_archive_in_s3() -> None:
    def download(bucket: str, key: str, file: io.BytesIO) -> None:
        assert (bucket, key) == ("models", "run/model.tar.gz")
        file.write(archive({"./weights.npy": b"abc"}).read())

    s3: Any = SimpleNamespace(download_fileobj=download)
    found = model_files_of("s3://models/run/model.tar.gz", s3)
    assert {name: file.size_bytes for name, file in found.items()} == {"weights.npy": 3}


def test_no_model_has_no_files_and_no_hash() -> None:
    s3: Any = None
    assert model_files_of(None, s3) == {}
    assert hash_of_hashes({}) is None


def test_what_is_no_archive_is_refused() -> None:
    with pytest.raises(tarfile.TarError):
        hash_model_files(io.BytesIO(b"not an archive"))
