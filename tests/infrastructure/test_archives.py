"""Archives are a function of what is in them; the training bundle is one that runs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_constructs.archives import keep, python_sources, sha256, zip_bytes, zip_directory
from spotkeep_constructs.errors import PropertyError
from spotkeep_constructs.training_bundle import bundle_bytes

from .conftest import ROOT

NAMES = st.text(alphabet="abcdefghij_", min_size=1, max_size=8)


@given(files=st.dictionaries(NAMES, st.binary(max_size=64), max_size=6), order=st.randoms())
def test_the_same_files_give_the_same_bytes_in_any_order(files: dict[str, bytes], order: object) -> None:
    shuffled = list(files.items())
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    packed = zip_bytes(files)
    assert zip_bytes(dict(shuffled)) == packed
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == files


@given(parts=st.lists(st.text(max_size=5), min_size=2, max_size=4))
def test_a_hash_keeps_its_parts_apart(parts: list[str]) -> None:
    joined = [parts[0] + parts[1], "", *parts[2:]]
    assert (sha256(*parts) == sha256(*joined)) == (parts == joined)


def test_file_times_byte_code_and_hidden_files_do_not_change_an_archive(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "inner" / "data.json").write_text("{}")
    before = zip_bytes(python_sources(package))
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"0")
    (package / ".hidden").write_text("x")
    os.utime(package / "__init__.py", (1, 1))
    assert zip_bytes(python_sources(package)) == before
    assert sorted(python_sources(package)) == ["package/__init__.py", "package/inner/data.json"]


def test_a_directory_is_packed_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.txt").write_text("a")
    destination = tmp_path / "out" / "layer.zip"
    zip_directory(tmp_path / "files", destination)
    with zipfile.ZipFile(destination) as archive:
        assert archive.namelist() == ["a.txt"]
        assert archive.getinfo("a.txt").external_attr >> 16 & 0o777 == 0o644
    (tmp_path / "files" / "b.txt").symlink_to(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        zip_directory(tmp_path / "files", tmp_path / "out" / "second.zip")
    assert sorted(path.name for path in destination.parent.iterdir()) == ["layer.zip"]


def test_byte_code_is_packed_where_it_is_asked_for(tmp_path: Path) -> None:
    cache = tmp_path / "files" / "package" / "__pycache__"
    cache.mkdir(parents=True)
    (cache / "x.cpython-311.pyc").write_bytes(b"0")
    packed: dict[bool, list[str]] = {}
    for byte_code in (False, True):
        destination = tmp_path / f"{byte_code}.zip"
        zip_directory(tmp_path / "files", destination, byte_code=byte_code)
        with zipfile.ZipFile(destination) as archive:
            packed[byte_code] = archive.namelist()
    assert packed == {False: [], True: ["package/__pycache__/x.cpython-311.pyc"]}


def test_a_kept_file_is_written_once(tmp_path: Path) -> None:
    path = keep(tmp_path / "hash", "code.zip", b"one")
    written = path.stat().st_mtime_ns
    assert keep(tmp_path / "hash", "code.zip", b"one") == path
    assert path.stat().st_mtime_ns == written
    assert path.read_bytes() == b"one"


def test_the_training_bundle_is_deterministic_and_holds_library_agent_and_what_is_compiled_alone() -> None:
    content = bundle_bytes(ROOT / "training")
    assert bundle_bytes(ROOT / "training") == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {
        "__main__.py",
        "spotkeep",
        "spotkeep_agent",
        "spotkeep_fleet",
    }
    assert sorted(name for name in names if name.endswith(".so")) == [
        f"spotkeep/native/copy_and_add-linux-{architecture}.so" for architecture in ("aarch64", "x86_64")
    ]


def test_the_training_bundle_runs_by_itself(tmp_path: Path) -> None:
    bundle = tmp_path / "spotkeep.pyz"
    bundle.write_bytes(bundle_bytes(ROOT / "training"))
    ended = subprocess.run(
        [sys.executable, "-I", str(bundle), "--version"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    assert "spotkeep" in ended.stdout.lower()


def test_a_bundle_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match=r"holds no Python package spotkeep .*spotkeep/__init__\.py"):
        bundle_bytes(tmp_path)
