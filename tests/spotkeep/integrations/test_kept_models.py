"""A copy of the best model lies beside the checkpoints, and is put back where it was lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spotkeep.integrations.kept_models import KeptModel, comes_back


def written(place: Path, content: str) -> Path:
    """Write what a framework writes: a folder with a model, shards in a folder of their own, and more."""
    (place / "shards").mkdir(parents=True, exist_ok=True)
    (place / "shards" / "1").write_text(content)
    (place / "config.json").write_text(content)
    (place / "optimizer.pt").write_text(content)
    return place


def read(place: Path) -> dict[str, str]:
    files = (file for file in place.rglob("*") if file.is_file())
    return {file.relative_to(place).as_posix(): file.read_text() for file in files}


def test_a_folder_comes_back_without_what_is_not_needed(tmp_path):
    place = written(tmp_path / "output" / "checkpoint-4", "best")
    KeptModel(tmp_path, "trainer").keep(place, step=4, without=["optimizer"])
    shutil.rmtree(tmp_path / "output")
    assert KeptModel(tmp_path, "trainer").put_back(place) == 4
    assert read(place) == {"shards/1": "best", "config.json": "best"}


def test_a_file_comes_back(tmp_path):
    file = tmp_path / "output" / "best.ckpt"
    file.parent.mkdir()
    file.write_text("best")
    KeptModel(tmp_path, "trainer").keep(file, step=4)
    shutil.rmtree(tmp_path / "output")
    assert KeptModel(tmp_path, "trainer").put_back(file) == 4
    assert read(tmp_path / "output") == {"best.ckpt": "best"}


def test_what_is_there_stays_as_it_is(tmp_path):
    place = written(tmp_path / "output", "best")
    KeptModel(tmp_path, "trainer").keep(place, step=4)
    written(place, "newer")
    assert KeptModel(tmp_path, "trainer").put_back(place) == 4
    assert set(read(place).values()) == {"newer"}


def test_the_newest_copy_alone_stays_and_of_another_model_nothing_is_put_back(tmp_path):
    kept = KeptModel(tmp_path, "trainer")
    for step in (4, 12):
        kept.keep(written(tmp_path / "output" / f"checkpoint-{step}", str(step)), step=step)
    shutil.rmtree(tmp_path / "output")
    assert kept.put_back(tmp_path / "output" / "checkpoint-4") == 12
    assert not (tmp_path / "output").exists()
    assert set(read(tmp_path / "best-models").values()) >= {"12"}
    assert "4" not in read(tmp_path / "best-models").values()


@pytest.mark.parametrize("lost", ["a file", "the end of a file", "the record", "the end of the record"])
def test_half_a_copy_is_none_and_an_older_whole_one_counts(tmp_path, lost):
    kept = KeptModel(tmp_path, "trainer")
    kept.keep(written(tmp_path / "output", "best"), step=4)
    (newest,) = (tmp_path / "best-models" / "trainer").iterdir()
    older = newest.with_name("0")
    shutil.copytree(newest, older)
    file = newest / ("copy.json" if "record" in lost else "files/output/shards/1")
    if "end" in lost:
        file.write_text(file.read_text()[:-1])
    else:
        file.unlink()
    (older / "files/output/shards/1").write_text("oldy")
    shutil.rmtree(tmp_path / "output")
    assert kept.put_back(tmp_path / "output") == 4
    assert read(tmp_path / "output")["shards/1"] == "oldy"
    shutil.rmtree(older)
    shutil.rmtree(tmp_path / "output")
    assert kept.put_back(tmp_path / "output") is None
    assert not (tmp_path / "output").exists()


def test_two_models_are_kept_apart(tmp_path):
    for name in ("loss", "accuracy"):
        KeptModel(tmp_path, name).keep(written(tmp_path / "output", name), step=4)
    shutil.rmtree(tmp_path / "output")
    KeptModel(tmp_path, "loss").put_back(tmp_path / "output")
    assert set(read(tmp_path / "output").values()) == {"loss"}


def test_what_lies_among_the_checkpoints_comes_back_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path / "platform"))
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    given = {"directory": tmp_path / "here"}
    assert comes_back(tmp_path / "link" / "output", **given)
    assert comes_back(tmp_path / "platform" / "output", **given)
    assert comes_back(tmp_path / "here", **given)
    assert not comes_back(tmp_path / "here of another", **given)
