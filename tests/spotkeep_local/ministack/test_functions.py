"""An archive is unpacked once; each process that runs what is in it gets links of its own."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from spotkeep_local.ministack.functions import UnpackedArchives


def archive(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in files.items():
            packed.writestr(f"package/{name}.py", content)
    return path


def linked(archives: UnpackedArchives, packed: Path, target: Path) -> Path:
    target.mkdir()
    archives.link(packed, target)
    return target / "package"


def test_the_second_process_finds_what_the_first_has_compiled(tmp_path: Path) -> None:
    archives = UnpackedArchives(tmp_path / "unpacked")
    first = linked(archives, archive(tmp_path / "first.zip", handler="one = 1"), tmp_path / "1")
    assert (first / "handler.py").read_text() == "one = 1"
    (first / "handler.pyc").write_bytes(b"compiled")
    second = linked(archives, archive(tmp_path / "again.zip", handler="one = 1"), tmp_path / "2")
    assert (second / "handler.pyc").read_bytes() == b"compiled"


def test_another_archive_is_unpacked_beside_it(tmp_path: Path) -> None:
    archives = UnpackedArchives(tmp_path / "unpacked")
    linked(archives, archive(tmp_path / "first.zip", handler="one = 1"), tmp_path / "1")
    second = linked(archives, archive(tmp_path / "second.zip", handler="two = 2"), tmp_path / "2")
    assert [path.read_text() for path in second.iterdir()] == ["two = 2"]


def test_what_is_no_archive_is_refused_and_a_whole_one_is_unpacked_later(tmp_path: Path) -> None:
    archives = UnpackedArchives(tmp_path / "unpacked")
    cut = tmp_path / "cut.zip"
    cut.write_bytes(archive(tmp_path / "whole.zip", handler="one = 1").read_bytes()[:-30])
    with pytest.raises(zipfile.BadZipFile):
        linked(archives, cut, tmp_path / "1")
    whole = linked(archives, tmp_path / "whole.zip", tmp_path / "2")
    assert (whole / "handler.py").read_text() == "one = 1"


def test_the_next_server_finds_what_this_one_ran_and_no_longer_what_none_ran(tmp_path: Path) -> None:
    kept, changed = archive(tmp_path / "kept.zip", handler="one = 1"), archive(tmp_path / "old.zip", handler="two = 2")
    first = UnpackedArchives(tmp_path / "unpacked")
    linked(first, kept, tmp_path / "1")
    linked(first, changed, tmp_path / "2")
    first.remove_unused()
    assert len(list((tmp_path / "unpacked").iterdir())) == 2

    second = UnpackedArchives(tmp_path / "unpacked")
    compiled = linked(second, kept, tmp_path / "3") / "handler.pyc"
    compiled.write_bytes(b"compiled")
    second.remove_unused()
    assert [place.name for place in (tmp_path / "unpacked").iterdir()] == [compiled.resolve().parents[1].name]
    UnpackedArchives(tmp_path / "never").remove_unused()


def test_no_entry_leaves_the_directory(tmp_path: Path) -> None:
    packed = archive(tmp_path / "climbing.zip", **{"../../../outside": "left = True"})
    linked(UnpackedArchives(tmp_path / "unpacked" / "here"), packed, tmp_path / "1")
    (found,) = tmp_path.rglob("outside.py")
    assert found.is_relative_to(tmp_path / "unpacked" / "here")
