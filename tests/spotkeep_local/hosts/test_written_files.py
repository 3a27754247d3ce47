"""The beginning and the end of what a host writes, however long it is."""

from __future__ import annotations

from pathlib import Path

from spotkeep_local.hosts.written_files import read_beginning, read_end


def test_the_beginning_of_what_has_no_end() -> None:
    assert read_beginning(Path("/dev/zero"), most_bytes=3) == bytes(3)


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\nlast\n")
    assert read_end(log, most_bytes=5) == b"last\n"
    assert read_end(log, most_bytes=500) == b"first\nlast\n"
