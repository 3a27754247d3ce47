"""What has no end is read up to a bound, and refused as a file that cannot be read."""

from __future__ import annotations

import errno
import io
import os
import threading
from pathlib import Path

import pytest

from spotkeep_cli.bounded_reading import read_answer, read_file


def test_a_file_may_be_as_large_as_the_bound_and_no_larger(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_file(path, most_bytes=4) == b"1234"
    with pytest.raises(OSError, match="more than 3 bytes") as refusal:
        read_file(path, most_bytes=3)
    assert refusal.value.errno == errno.EFBIG


def test_a_device_without_an_end_is_refused() -> None:
    with pytest.raises(OSError, match="without an end"):
        read_file(Path("/dev/zero"), most_bytes=1000)


def test_a_named_pipe_is_what_its_writer_writes_and_empty_without_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert read_file(path, most_bytes=10) == b""
    # As a shell passes the output of a command: the pipe is open for writing, what is in it comes later.
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_file(path, most_bytes=10)))
    reader.start()
    os.write(writing, b"name: x")
    os.close(writing)
    reader.join()
    os.close(reading)
    assert found == [b"name: x"]


def test_a_directory_and_a_missing_file_are_said_as_such(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        read_file(tmp_path, most_bytes=10)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "none", most_bytes=10)


def test_an_answer_is_read_to_its_end_or_refused() -> None:
    assert read_answer(io.BytesIO(b"{}"), most_bytes=2) == b"{}"
    with pytest.raises(OSError, match="more than 1 bytes"):
        read_answer(io.BytesIO(b"{}"), most_bytes=1)
