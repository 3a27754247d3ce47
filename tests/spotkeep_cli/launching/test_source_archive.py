"""The same files always give the same archive, and only what belongs to the source is in it."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching import source_archive, source_files
from spotkeep_cli.launching.source_archive import pack_source


def tree(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        found = {}
        for member in archive:
            extracted = archive.extractfile(member)
            assert extracted is not None
            found[member.name] = extracted.read()
        return found


def test_the_archive_holds_the_files_and_is_named_by_its_content(tmp_path: Path) -> None:
    files = {"train.py": b"print()", "model/net.py": b"x = 1"}
    archive = pack_source(tree(tmp_path, files))
    assert members(archive.content) == files
    assert archive.key(run="digits-1") == f"sources/digits-1/{archive.sha256}.tar.gz"
    assert archive.key(run="a", team="vision") == f"teams/vision/sources/a/{archive.sha256}.tar.gz"
    assert [str(path) for path in archive.files] == ["model/net.py", "train.py"]


def test_times_and_places_do_not_change_the_archive_and_another_content_does(tmp_path: Path) -> None:
    first = tree(tmp_path / "one", {"train.py": b"x", "data.txt": b"y"})
    second = tree(tmp_path / "two", {"data.txt": b"y", "train.py": b"x"})
    os.utime(second / "train.py", (1, 1))
    assert pack_source(first).content == pack_source(second).content
    assert pack_source(first).content[4:8] == bytes(4), "gzip's own time"
    (second / "data.txt").write_bytes(b"y!")
    assert pack_source(first).sha256 != pack_source(second).sha256


def test_histories_environments_and_caches_stay_behind(tmp_path: Path) -> None:
    names = ["train.py", ".hg/config", ".venv/bin/python", "pkg/__pycache__/x.pyc", ".spotkeep/local/big"]
    archive = pack_source(tree(tmp_path, dict.fromkeys(names, b"x")))
    assert set(members(archive.content)) == {"train.py"}


def test_only_the_executable_bit_is_kept(tmp_path: Path) -> None:
    tree(tmp_path, {"run.sh": b"x", "train.py": b"x"})
    (tmp_path / "run.sh").chmod(0o700)
    (tmp_path / "train.py").chmod(0o640)
    with tarfile.open(fileobj=io.BytesIO(pack_source(tmp_path).content)) as archive:
        assert {member.name: member.mode for member in archive} == {"run.sh": 0o755, "train.py": 0o644}


def test_a_ready_archive_is_taken_as_it_is(tmp_path: Path) -> None:
    ready = tmp_path / "code.tar.gz"
    ready.write_bytes(b"anything")
    archive = pack_source(ready)
    assert archive.content == b"anything"
    assert archive.key(run="r").endswith(".tar.gz")


@pytest.mark.parametrize("name", ["absent", "train.py"])
def test_what_is_no_source_is_refused(tmp_path: Path, name: str) -> None:
    tree(tmp_path, {"train.py": b"x"})
    with pytest.raises(UsageError) as refusal:
        pack_source(tmp_path / name)
    assert refusal.value.message.startswith("source: ")
    assert "source: ." in refusal.value.hint


def test_an_empty_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no files to pack"):
        pack_source(tmp_path)


def test_a_directory_with_a_great_many_files_is_not_walked_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "MAX_SOURCE_FILES", 2)
    tree(tmp_path, {f"{folder}/{name}.py": b"x" for folder in "abc" for name in "xyz"})
    with pytest.raises(UsageError, match="has more files than the 2 that a source may have"):
        pack_source(tmp_path)


def test_too_much_data_is_refused_by_naming_the_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_archive, "MAX_SOURCE_BYTES", 1_000)
    tree(tmp_path, {"train.py": b"x", "weights.bin": b"x" * 2_000})
    with pytest.raises(UsageError) as refusal:
        pack_source(tmp_path)
    assert "the largest: weights.bin" in refusal.value.message
    assert "channel" in refusal.value.hint
    (tmp_path / "code.zip").write_bytes(b"x" * 2_000)
    with pytest.raises(UsageError, match="more than a source may have"):
        pack_source(tmp_path / "code.zip")
