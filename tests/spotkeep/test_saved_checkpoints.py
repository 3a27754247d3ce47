"""A script lists, reads, chooses and removes its checkpoints, beside the loop that saves them."""

from __future__ import annotations

import numpy as np
import pytest

from spotkeep import Best, Checkpointer, DamagedCheckpointError, MissingCheckpointError, UsageError
from spotkeep.disk.checkpoint_directory import CheckpointDirectory


@pytest.fixture
def remote(bucket, network, monkeypatch):
    monkeypatch.setattr("spotkeep.remote.remote_checkpoints._FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("spotkeep.remote.background_upload._FIRST_PAUSE_SECONDS", 0.001)
    return f"s3://{bucket.name}/runs/digits"


@pytest.fixture(params=["this machine", "S3"])
def place(request, tmp_path):
    """A directory with the checkpoints of the steps 1 to 6; or one of another machine, which finds them in S3."""
    remote = {"remote": request.getfixturevalue("remote")} if request.param == "S3" else {}
    for step in range(1, 7):  # in a block each, which ends when its checkpoint is in S3
        train(tmp_path / "first", step, **remote)
    return {"directory": tmp_path / ("second" if remote else "first"), **remote}


def train(directory, total, *, state=None, **options):
    weights = np.zeros(4) if state is None else state
    options = {"every_steps": 1, "keep_last": 2, "keep_every": 1, "keep_best": Best("loss", "min"), **options}
    with Checkpointer({"weights": weights}, directory, **options) as checkpointer:
        for step in checkpointer.steps(total):
            weights += step + 1
            checkpointer.log(loss=abs(step + 1 - 3))
            checkpointer.set_metadata(seen=[step])
            checkpointer.wait()
    return weights


def keys(bucket, part):
    return [stored.key for stored in bucket.objects.all() if part in stored.key]


def reader(place, **options):
    weights = np.full(4, -1.0)
    checkpointer = Checkpointer({"weights": weights}, **place, **{"keep_best": Best("loss", "min"), **options})
    return checkpointer, weights


def test_the_steps_are_listed_and_the_newest_and_the_best_are_named(place):
    checkpointer, _ = reader(place)
    assert checkpointer.all_steps() == [1, 2, 3, 4, 5, 6]
    assert checkpointer.latest_step() == 6
    assert checkpointer.best_step() == 3
    assert reader(place, keep_best=Best("loss", "max"))[0].best_step() == 6
    assert reader(place, keep_best=Best("accuracy"))[0].best_step() is None


def test_an_empty_directory_has_no_steps(tmp_path):
    checkpointer, _ = reader({"directory": tmp_path})
    assert (checkpointer.all_steps(), checkpointer.latest_step(), checkpointer.best_step()) == ([], None, None)
    with pytest.raises(MissingCheckpointError, match="there is none of any step"):
        checkpointer.restore("best")


def test_any_step_is_restored_and_the_best_one(place):
    checkpointer, weights = reader(place)
    assert checkpointer.restore(2) == 2
    assert weights.tolist() == [3.0] * 4
    assert checkpointer.restore("best") == 3
    assert weights.tolist() == [6.0] * 4
    assert checkpointer.step == 3


def test_the_best_checkpoint_stays_and_is_restored_when_the_others_are_gone(tmp_path):
    train(tmp_path, 9, keep_every=None)
    checkpointer, weights = reader({"directory": tmp_path})
    assert checkpointer.all_steps() == [3, 8, 9]
    assert checkpointer.restore("best") == 3
    assert weights.tolist() == [6.0] * 4


@pytest.mark.parametrize("step", [-1, "newest", True, 4.5])
@pytest.mark.parametrize("act", ["restore", "save", "delete"])
def test_what_is_no_step_is_refused(tmp_path, act, step):
    with pytest.raises(UsageError, match=f"the step to {act} is {step!r}; pass a number of completed steps"):
        getattr(reader({"directory": tmp_path})[0], act)(step)
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


def test_a_step_may_be_a_number_of_numpy(tmp_path):
    checkpointer, _ = reader({"directory": tmp_path})
    checkpointer.save(np.int64(7))
    assert (checkpointer.all_steps(), checkpointer.restore(np.int64(7))) == ([7], 7)
    checkpointer.delete(np.int64(7))
    assert checkpointer.all_steps() == []


def test_the_best_one_needs_a_metric(place):
    checkpointer, _ = reader(place, keep_best=None)
    for ask in (checkpointer.best_step, lambda: checkpointer.restore("best")):
        with pytest.raises(UsageError, match="pass keep_best"):
            ask()


def test_a_missing_step_is_refused_with_those_that_are_there(place):
    checkpointer, weights = reader(place)
    for ask in (checkpointer.restore, checkpointer.delete, checkpointer.metadata):
        with pytest.raises(MissingCheckpointError, match=r"no checkpoint of step 40 .* are 1, 2, 3, 4, 5, 6"):
            ask(40)
    assert weights.tolist() == [-1.0] * 4


def test_a_damaged_step_that_was_asked_for_is_an_error_and_no_other_one_is_taken(tmp_path):
    train(tmp_path, 3)
    data = next((tmp_path / "step-2").glob("data-*"))
    data.write_bytes(bytes(len(data.read_bytes())))
    checkpointer, weights = reader({"directory": tmp_path})
    with pytest.raises(DamagedCheckpointError, match="step-2"):
        checkpointer.restore(2)
    # A single checkpoint is verified before the state changes.
    assert weights.tolist() == [-1.0] * 4
    assert checkpointer.restore() == 3


def test_a_training_that_went_back_saves_once_the_newer_checkpoints_are_deleted(tmp_path):
    train(tmp_path, 6)
    weights = np.zeros(4)
    with Checkpointer({"weights": weights}, tmp_path, every_steps=1, keep_every=1) as checkpointer:
        assert checkpointer.step == 6
        assert checkpointer.restore(4) == 4
        with pytest.raises(UsageError, match=r"those of the steps 5, 6 are newer.*delete"):
            checkpointer.save(5)
        checkpointer.delete(5)
        checkpointer.delete(6)
        assert list(checkpointer.steps(6)) == [4, 5]
        # It has gone through all steps, and goes back once more.
        assert checkpointer.restore(5) == 5
        checkpointer.delete(6)
        assert list(checkpointer.steps(6)) == [5]
    assert CheckpointDirectory(tmp_path).steps()[:2] == [6, 5]
    assert reader({"directory": tmp_path})[0].restore() == 6


def test_a_deleted_checkpoint_is_gone_here_and_in_s3_and_can_be_saved_again(tmp_path, bucket, remote):
    place = {"directory": tmp_path, "remote": remote}
    weights = np.zeros(4)
    with Checkpointer({"weights": weights}, **place) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step)
        checkpointer.delete(3)
        assert checkpointer.durable_step is None
        assert checkpointer.all_steps() == [1, 2]
        assert not keys(bucket, "step-3/")
        weights += 7
        checkpointer.save(3)
    assert reader(place)[0].restore() == 3
    assert keys(bucket, "step-3/")


def test_metadata_is_read_without_the_state_and_comes_back_with_a_restore(place):
    checkpointer, _ = reader(place)
    assert checkpointer.metadata(2) == {"seen": [1]}
    checkpointer.set_metadata(owner="ada")
    checkpointer.restore(4)
    checkpointer.delete(5)
    checkpointer.delete(6)
    checkpointer.save(9)
    assert checkpointer.metadata(9) == {"seen": [3], "owner": "ada"}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"place": object()}, "cannot be kept: Object of type object"),
        ({"loss": float("nan")}, "cannot be kept: Out of range float"),
        ({"pair": (1, 2)}, "would come back as other values"),
        ({"by_number": {1: "a"}}, "would come back as other values"),
        ({"text": "x" * 70_000}, "more than 65,536"),
    ],
)
def test_metadata_that_json_cannot_hold_is_refused_and_changes_nothing(tmp_path, values, problem):
    checkpointer, _ = reader({"directory": tmp_path})
    checkpointer.set_metadata(kept=1)
    with pytest.raises(UsageError, match=problem):
        checkpointer.set_metadata(**values)
    checkpointer.save(1)
    assert checkpointer.metadata(1) == {"kept": 1}


def test_the_part_of_a_checkpoint_that_fits_is_restored_and_the_rest_is_named(tmp_path, caplog):
    with Checkpointer({"weights": np.arange(4.0), "averages": np.ones(2)}, tmp_path) as checkpointer:
        checkpointer.save(1)
    weights, fresh = np.zeros(4), np.full(3, 5.0)
    checkpointer = Checkpointer({"weights": weights, "fresh": fresh}, tmp_path)
    assert checkpointer.restore(strict=False) == 1
    assert weights.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert fresh.tolist() == [5.0] * 3
    assert checkpointer.left_out == ("state['averages'] of the checkpoint", "state['fresh'] of the script")
    assert "the restore left out what does not fit: state['averages'] of the checkpoint" in caplog.text
