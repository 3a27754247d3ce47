"""What the trainings of a job say of themselves, for the runner, which has an exit code to judge."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep import Checkpointer
from spotkeep.notices.notice import NOTICE_FILE_VARIABLE
from spotkeep.notices.trainings import all_are_done, forget_trainings, note_training, trainings_file


@pytest.fixture
def notice_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "notice.json"
    monkeypatch.setenv(NOTICE_FILE_VARIABLE, str(path))
    return path


def test_a_job_without_a_training_is_not_done(notice_file: Path) -> None:
    assert not all_are_done(notice_file)


def test_a_training_is_done_after_its_last_step(notice_file: Path, tmp_path: Path) -> None:
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert not all_are_done(notice_file)
        assert [all_are_done(notice_file) for _ in checkpointer.steps(2)] == [False, False]
        assert all_are_done(notice_file), "what follows the loop, as the writing of a model, is no training"
    assert all_are_done(notice_file)
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert not list(checkpointer.steps(2))
    assert all_are_done(notice_file), "one that was done before is done again"


def test_one_that_goes_on_or_another_one_takes_that_back(notice_file: Path, tmp_path: Path) -> None:
    with Checkpointer({}, tmp_path / "one") as checkpointer:
        list(checkpointer.steps(1))
        for _ in checkpointer.steps(2):
            assert not all_are_done(notice_file)
        checkpointer.complete_step()
        checkpointer.save_if_due(last=True)
        assert all_are_done(notice_file)
    with Checkpointer({}, tmp_path / "two"):
        assert not all_are_done(notice_file)
    assert not all_are_done(notice_file), "a block that is left without the last step says nothing"


def test_one_that_ends_inside_of_another_one_does_not_end_that(notice_file: Path, tmp_path: Path) -> None:
    said = []
    with Checkpointer({}, tmp_path / "outer") as outer:
        for step in outer.steps(3):
            said.append(all_are_done(notice_file))
            if step == 1:
                with Checkpointer({}, tmp_path / "inner") as inner:
                    list(inner.steps(2))
    assert said == [False, False, False]
    assert all_are_done(notice_file)


def test_a_pause_is_done_with_what_it_was_to_do(
    notice_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    with pytest.raises(SystemExit) as left, Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        list(checkpointer.steps(2))
    assert left.value.code == 0
    assert all_are_done(notice_file)


def test_what_an_earlier_job_has_said_is_forgotten(notice_file: Path) -> None:
    note_training(notice_file, done=True)
    forget_trainings(notice_file)
    forget_trainings(notice_file)
    assert not all_are_done(notice_file)


def test_all_processes_must_be_done(notice_file: Path) -> None:
    note_training(notice_file, done=True)
    code = "from spotkeep.notices.trainings import note_training; import pathlib, sys; note_training(pathlib.Path("
    command = [sys.executable, "-S", "-c", f"{code}sys.argv[1]), done=False)", str(notice_file)]
    subprocess.run(command, check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    assert not all_are_done(notice_file)


def test_where_nothing_can_be_said_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NOTICE_FILE_VARIABLE, str(tmp_path / "missing" / "notice.json"))
    with Checkpointer({}, tmp_path / "checkpoints") as checkpointer:
        assert list(checkpointer.steps(2)) == [0, 1]
    assert "the runner does not hear whether the training is done" in caplog.text
    assert not trainings_file(tmp_path / "missing" / "notice.json").exists()
