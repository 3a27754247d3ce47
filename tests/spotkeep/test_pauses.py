"""A run pauses after the step that it was asked to pause at, and goes on later as if it had not, to the bit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import Checkpointer, SaveError, UsageError
from spotkeep.disk.storage import LocalStorage
from spotkeep.saves import Saves

from .test_checkpointer import PLACES, Epochs, Training, interrupt, undisturbed


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.delenv("SPOTKEEP_PAUSE_AT_STEP", raising=False)


def train(directory, total, *, pause_at=None, at=lambda checkpointer, step: None, **options):
    """One process, asked to pause after a step: gives the training, and the exit code; None when it came to its end."""
    training = Training()
    with pytest.MonkeyPatch.context() as patch:
        if pause_at is not None:
            patch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        try:
            with training.checkpointer(directory, **options) as checkpointer:
                for step in checkpointer.steps(total):
                    training.step(step)
                    at(checkpointer, step)
        except SystemExit as left:
            return training, left.code
    return training, None


def kinds(events, *names):
    return [(event["event"], event.get("step"), event.get("reason")) for event in events if event["event"] in names]


@given(
    total=st.integers(1, 12),
    every=st.integers(1, 6),
    pauses=st.lists(st.integers(1, 14), max_size=3),
)
def test_paused_at_any_steps_it_ends_where_one_that_never_paused_ends(tmp_path_factory, total, every, pauses):
    directory = tmp_path_factory.mktemp("paused")
    done = 0
    for pause_at in [*pauses, None]:
        training, code = train(directory, total, pause_at=pause_at, every_steps=every)
        due = pause_at is not None and max(pause_at, done) < total
        assert code == (0 if due else None)
        done = max(pause_at, done) if due else total
        assert training.seen["steps"] == list(range(done))
    assert training.weights.tobytes() == undisturbed(total).weights.tobytes()


def test_it_saves_says_so_and_leaves_with_0_without_what_follows_the_loop(tmp_path, job_events):
    training, code = train(tmp_path, 10, pause_at=3, every_steps=100)
    assert (code, training.seen["steps"]) == (0, [0, 1, 2])
    assert kinds(job_events(), "saved", "paused", "finish", "notice") == [("saved", 3, "pause"), ("paused", 3, None)]


@pytest.mark.parametrize("pause_at", [10, 11])
def test_a_pause_at_the_last_step_or_after_it_changes_nothing(tmp_path, job_events, pause_at):
    training, code = train(tmp_path, 10, pause_at=pause_at)
    assert (code, len(training.seen["steps"])) == (None, 10)
    assert kinds(job_events(), "paused", "finish") == [("finish", 10, None)]


def test_a_checkpoint_beyond_the_step_pauses_before_another_step_is_done(tmp_path, job_events):
    train(tmp_path, 10, pause_at=6)
    training, code = train(tmp_path, 10, pause_at=2)
    assert (code, training.seen["steps"]) == (0, list(range(6)))
    assert kinds(job_events(), "paused") == [("paused", 6, None), ("paused", 6, None)]


def test_a_training_that_was_done_when_its_process_ended_is_done_whatever_it_is_asked(tmp_path):
    train(tmp_path, 10)
    assert train(tmp_path, 10, pause_at=2)[1] is None


def test_a_notice_at_the_same_time_is_still_a_notice(tmp_path, job_events):
    _, code = train(tmp_path, 10, pause_at=3, at=lambda _, step: step == 2 and interrupt())
    assert code == 75
    assert kinds(job_events(), "paused") == []
    assert train(tmp_path, 10, pause_at=3)[1] == 0, "the next process pauses at once"
    assert kinds(job_events(), "paused") == [("paused", 3, None)]


def test_where_the_disk_is_full_it_goes_on_and_pauses_when_it_can_save(tmp_path, monkeypatch, job_events):
    saves = []
    really_begin = Saves.begin

    def begin(all_saves, step, **options):
        saves.append(step)
        if len(saves) <= 2:
            raise SaveError(f"step {step}: No space left on device")
        really_begin(all_saves, step, **options)

    monkeypatch.setattr(Saves, "begin", begin)
    training, code = train(tmp_path, 10, pause_at=3, every_steps=100)
    assert (code, training.seen["steps"]) == (0, list(range(5)))
    reported = [kind[:2] for kind in kinds(job_events(), "save-failed", "saved", "paused")]
    assert reported == [("save-failed", 3), ("save-failed", 4), ("saved", 5), ("paused", 5)]


def test_all_that_was_measured_is_told_before_the_pause(tmp_path, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "1000")
    train(tmp_path, 10, pause_at=3, at=lambda checkpointer, step: checkpointer.log(loss=step / 10))
    events = job_events()
    measured = [(event["step"], event["metrics"]) for event in events if event["event"] == "metrics"]
    assert measured[-1] == (3, {"loss": 0.2})
    assert [event["event"] for event in events][-1] == "paused"


@pytest.mark.parametrize("text", ["0", "-1", "soon", "1.5", "²"])
def test_what_is_no_whole_number_of_steps_is_refused(tmp_path, monkeypatch, text):
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", text)
    with pytest.raises(UsageError, match="SPOTKEEP_PAUSE_AT_STEP"):
        Checkpointer({}, tmp_path)


@pytest.mark.parametrize("pause_at", [1, 4, 7, 12])
def test_an_epoch_pauses_in_its_middle_or_when_what_follows_its_steps_is_done(tmp_path, monkeypatch, pause_at):
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
    paused = Epochs()
    assert paused.run(tmp_path) is (pause_at == 12)
    epoch, index = divmod(pause_at, 4)
    so_far = PLACES.index((epoch, index)) if pause_at < 12 else len(PLACES)
    assert paused.schedule["log"] == PLACES[:so_far]
    monkeypatch.delenv("SPOTKEEP_PAUSE_AT_STEP")
    resumed = Epochs()
    assert resumed.run(tmp_path)
    assert (resumed.schedule["log"], resumed.schedule["rate"]) == (PLACES, 0.125)


def own_loop(directory, total, leave, *, every=1):
    state = {"done": {"count": 0}}
    with Checkpointer(state, directory) as checkpointer:
        done = checkpointer.step
        while done < total:
            if checkpointer.interrupted:
                leave(checkpointer, done)
            done += 1
            state["done"]["count"] += 1
            if done % every == 0:
                checkpointer.save(done, wait=False)
    return state["done"]["count"]


def save_and_leave(checkpointer, done):
    checkpointer.save(done)
    checkpointer.leave()


def save_and_exit_with_75(checkpointer, done):
    """As scripts did before there was a pause."""
    checkpointer.save(done)
    raise SystemExit(75)


@pytest.mark.parametrize("leave", [save_and_leave, save_and_exit_with_75], ids=lambda leave: leave.__name__)
def test_a_loop_of_ones_own_that_asks_whether_it_is_interrupted_pauses(tmp_path, monkeypatch, job_events, leave):
    for pause_at, every, paused_at in ((3, 1, 3), (4, 5, 5), (2, 1, 5)):
        monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        with pytest.raises(SystemExit) as left:
            own_loop(tmp_path, 10, leave, every=every)
        assert left.value.code == 0
        assert kinds(job_events(), "paused")[-1] == ("paused", paused_at, None)
    monkeypatch.delenv("SPOTKEEP_PAUSE_AT_STEP")
    assert own_loop(tmp_path, 10, leave) == 10


def in_block(directory, act):
    with Checkpointer({}, directory) as checkpointer:
        act(checkpointer)


def test_a_loop_of_ones_own_leaves_with_75_on_a_notice(tmp_path):
    def act(checkpointer):
        interrupt()
        save_and_leave(checkpointer, 1)

    with pytest.raises(SystemExit) as left:
        in_block(tmp_path, act)
    assert left.value.code == 75


def test_what_is_not_saved_does_not_pause(tmp_path, monkeypatch, job_events):
    def leave(checkpointer):
        checkpointer.complete_step()
        checkpointer.leave()

    def exit_with_75(checkpointer):
        checkpointer.complete_step()
        raise SystemExit(75)

    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    with pytest.raises(SaveError, match="the checkpoint of step 1 is not durable"):
        in_block(tmp_path, leave)
    with pytest.raises(SystemExit) as left:
        in_block(tmp_path, exit_with_75)
    assert left.value.code == 75
    assert kinds(job_events(), "paused") == []


def test_outside_the_block_it_cannot_leave_since_nothing_there_says_that_the_run_is_paused(tmp_path, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    with Checkpointer({}, tmp_path) as checkpointer:
        checkpointer.save(1)
    with pytest.raises(UsageError, match="inside `with checkpointer:`"):
        checkpointer.leave()


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_of_the_scripts_own_is_none_of_a_pause(tmp_path, monkeypatch, job_events, code):
    def act(checkpointer):
        checkpointer.save(2)
        raise SystemExit(code)

    monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", "1")
    with pytest.raises(SystemExit) as left:
        in_block(tmp_path, act)
    assert left.value.code == code
    assert kinds(job_events(), "paused") == []


def test_a_notice_while_it_waits_for_the_disk_is_still_a_notice_and_loses_nothing(tmp_path, monkeypatch):
    write = LocalStorage.write_some

    def write_some(storage, descriptor, raw, offset):
        interrupt()
        return write(storage, descriptor, raw, offset)

    monkeypatch.setattr(LocalStorage, "write_some", write_some)
    _, code = train(tmp_path, 10, pause_at=3, every_steps=100)
    assert code == 75
    assert Training().checkpointer(tmp_path).restore() == 3
