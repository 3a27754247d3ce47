"""I9, equal or refused: a folder belongs to one training, and each start of a script finds the same one."""

# ruff: noqa: S311 - any random numbers will do

from __future__ import annotations

import contextlib
import random
import string
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spotkeep
from spotkeep import Checkpointer, ResumableTraining, UsageError
from spotkeep.training_folder import find_folder, name_problems

from .test_checkpointer import Training, die, interrupt, undisturbed


def train(directory, *, total=6, stops_at=None, stop=die, leave_by=None, **options):
    """One training to its end, or until it is stopped; says what it has done."""
    training = Training()
    with training.checkpointer(directory, **options) as checkpointer:
        for step in checkpointer.steps(total):
            if step == leave_by:
                break
            training.step(step)
            if step == stops_at:
                stop()
    return training


def test_a_second_training_in_the_folder_of_one_that_ended_is_refused_before_its_first_step(tmp_path, new_process):
    train(tmp_path)
    second = Training()
    with pytest.raises(UsageError) as refused, second.checkpointer(tmp_path):
        pytest.fail("it was entered")
    assert second.seen["steps"] == []
    said = str(refused.value)
    assert f"{tmp_path} holds the checkpoints of a training that ended in this process, after step 6" in said
    for way_out in ('name="fold-2"', "directory= of its own", "restart the process or the notebook's kernel"):
        assert way_out in said


def test_so_it_is_when_the_first_one_ended_in_an_earlier_process(tmp_path, new_process):
    train(tmp_path)
    new_process()
    assert train(tmp_path).seen["steps"] == list(range(6)), "restored, with no step left"
    with pytest.raises(UsageError, match="ended in this process, after step 6"):
        train(tmp_path)


def test_the_folder_is_the_same_however_it_is_spelled(tmp_path, new_process, monkeypatch):
    train(tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path / "link"))
    for spelled in (None, tmp_path / "link", str(tmp_path / "b" / ".." / "a")):
        with pytest.raises(UsageError, match="ended in this process"):
            train(spelled)


def test_one_that_left_its_loop_early_has_ended(tmp_path, new_process):
    """Early stopping: the script goes on with what follows the training."""
    train(tmp_path, leave_by=5)
    with pytest.raises(UsageError, match="ended in this process, after step 5"):
        train(tmp_path)


@pytest.mark.parametrize("stop", [die, interrupt])
def test_one_that_was_broken_off_is_taken_up_again_in_the_same_process(tmp_path, new_process, stop):
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(tmp_path, stops_at=4, stop=stop)
    assert train(tmp_path).weights.tobytes() == undisturbed(6).weights.tobytes()


def test_one_that_was_refused_has_not_ended(tmp_path, new_process):
    with pytest.raises(spotkeep.StateError), Checkpointer({"no": object()}, tmp_path):
        pass
    train(tmp_path)


def test_one_that_did_nothing_leaves_its_folder_to_another(tmp_path, new_process):
    with Checkpointer({}, tmp_path) as checkpointer:
        assert checkpointer.step == 0
    train(tmp_path)


def test_two_at_once_in_a_folder_are_refused(tmp_path, new_process):
    first, second = Training(), Training()
    with first.checkpointer(tmp_path) as checkpointer:
        next(checkpointer.steps(6))
        with pytest.raises(UsageError, match=r"is at work .*all of them in one state"):
            second.checkpointer(tmp_path).__enter__()
        with second.checkpointer(tmp_path, name="discriminator"):
            pass


def test_the_same_checkpointer_may_be_entered_again_for_more_steps(tmp_path, new_process):
    training = Training()
    checkpointer = training.checkpointer(tmp_path)
    for total in (3, 6):
        with checkpointer:
            for step in checkpointer.steps(total):
                training.step(step)
    assert training.weights.tobytes() == undisturbed(6).weights.tobytes()


def test_a_second_loop_without_a_step_of_its_own_is_refused(tmp_path):
    with Checkpointer({}, tmp_path) as checkpointer:
        list(checkpointer.steps(3))
        with pytest.raises(UsageError, match="through 3 steps already, and a loop over 3 has none left"):
            next(checkpointer.steps(3))
        with pytest.raises(UsageError, match="through 3 steps already, and a loop over 2 has none left"):
            next(checkpointer.epochs(1, steps_per_epoch=2))
        assert len(list(checkpointer.steps(5))) == 2
    with Checkpointer({}, tmp_path) as checkpointer:  # a later process, which has none left in either
        assert [len(list(checkpointer.steps(total))) for total in (3, 5)] == [0, 0]


def seeds(directory, *, epochs=2, name=lambda seed: None, breaks=False, bar=lambda epochs: epochs):
    """A script that trains once for each seed."""
    learned = []
    for seed in range(2):
        random.seed(seed)
        state = {"values": []}
        training = ResumableTraining({"state": state}, directory=directory, every_steps=1, name=name(seed))
        loader = training.loader([1.0, 2.0])
        for _epoch in bar(training.epochs(epochs)):
            for batch in loader:
                state["values"].append(batch * random.random())
            if breaks:
                break
        learned.append(state["values"])
    return learned


def test_seeds_in_a_loop_are_refused_without_names_and_trained_with_them(tmp_path, new_process):
    with pytest.raises(UsageError, match="ended in this process"):
        seeds(tmp_path / "one")
    first, second = seeds(tmp_path / "named", name="seed-{}".format)
    assert len(first) == len(second) == 4
    assert first != second
    new_process()
    assert seeds(tmp_path / "named", name="seed-{}".format) == [first, second]


def bar_of(library):
    """A progress bar: it gives what it is given."""
    library = {"__name__": library}
    exec("def bar(items):\n  for item in items:\n    yield item", library)  # noqa: S102 - our own text
    return library["bar"]


def without_bar(epochs):
    return epochs


@pytest.mark.parametrize("bar", [without_bar, bar_of("tqdm.std"), bar_of("rich.progress")])
def test_epochs_that_were_left_by_break_have_ended(tmp_path, new_process, bar):
    with pytest.raises(UsageError, match="ended in this process, after step 2"):
        seeds(tmp_path, breaks=True, bar=bar)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_epochs_that_were_left_by_an_error_are_taken_up_with_a_warning(tmp_path, new_process, caplog, error):
    """Whichever it was: where a generator of the script's own stands between, a `break` looks like it."""

    def attempt(stop_at, between=lambda epochs: epochs):
        state = {"values": []}
        training = ResumableTraining({"state": state}, directory=tmp_path, every_steps=1)
        loader = training.loader([1.0, 2.0])
        for epoch in between(training.epochs(4)):
            for batch in loader:
                if (epoch, batch) == stop_at:
                    raise error
                state["values"].append((epoch, batch))
        return state["values"]

    def first(epochs):
        yield from epochs

    with pytest.raises(error):
        attempt((1, 2.0))
    with pytest.raises(error):
        attempt((2, 1.0), between=first)
    with contextlib.suppress(error):
        attempt((3, 1.0), between=bar_of("tqdm"))
    assert attempt(None) == [(epoch, batch) for epoch in range(4) for batch in (1.0, 2.0)]
    assert caplog.text.count("before its end") == 3
    assert 'name="fold-2"' in caplog.text


def test_a_second_loop_over_epochs_that_are_done_is_refused(tmp_path, new_process):
    def begun():
        training = ResumableTraining({}, directory=tmp_path)
        loader = training.loader([1.0])
        return training, lambda epochs: [epoch for epoch in training.epochs(epochs) for _ in loader]

    training, gone_through = begun()
    assert gone_through(2) == [0, 1]
    with pytest.raises(UsageError, match=r"through 2 epochs already, and a loop over 2 has none left.*epochs\(4\)"):
        list(training.epochs(range(2)))
    assert gone_through(4) == [2, 3]
    new_process()
    _, gone_through = begun()
    assert [gone_through(epochs) for epochs in (2, 4)] == [[], []]


@pytest.mark.parametrize("stop", [die, interrupt])
@pytest.mark.parametrize("batch", range(1, 4))
def test_what_follows_a_training_goes_on_with_its_random_numbers_after_an_interruption(
    tmp_path, new_process, stop, batch
):
    def two_phases(directory, *, stops_at=None):
        random.seed(1)
        values, seen = [], 0
        for phase in range(2):
            state = {"values": []}
            training = ResumableTraining({"state": state}, directory=directory, every_steps=1, name=f"phase-{phase}")
            loader = training.loader([1.0, 2.0])
            for _epoch in training.epochs(2):
                for each in loader:
                    state["values"].append(each * random.random())
                    seen += phase
                    if seen == stops_at:
                        stop()
            values.append(state["values"])
        return values, random.random()

    alone = two_phases(tmp_path / "alone")
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        two_phases(tmp_path / "interrupted", stops_at=batch)
    new_process()
    assert two_phases(tmp_path / "interrupted") == alone


def folds(directory, **options):
    return [train(directory, name=f"fold-{fold}", total=4 + fold, **options) for fold in range(3)]


@pytest.mark.parametrize("stop", [die, interrupt])
def test_named_folds_that_are_interrupted_in_the_second_end_equal(tmp_path, new_process, stop):
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        train(tmp_path, name="fold-0", total=4)
        train(tmp_path, name="fold-1", total=5, stops_at=3, stop=stop)
    new_process()
    for fold, training in enumerate(folds(tmp_path)):
        assert training.weights.tobytes() == undisturbed(4 + fold).weights.tobytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fold-0", "fold-1", "fold-2"]


def test_names_are_pruned_each_for_itself_and_beside_one_without_a_name(tmp_path):
    train(tmp_path, every_steps=1, keep_last=2)
    train(tmp_path, every_steps=1, keep_last=2, name="b")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "step-5", "step-6"]
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["step-5", "step-6"]


def test_job_events_say_which_training_they_are_of(tmp_path, job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    train(None, total=1)
    train(None, total=1, name="a")
    train("b", total=1)
    train(tmp_path / "c", total=1, name="d")
    said = [(event["event"], event.get("training")) for event in job_events()]
    once = {"resume", "progress", "saved", "finish"}
    assert len(said) == 16
    assert set(said) == {(kind, label) for label in (None, "a", "b", "c/d") for kind in once}


NAMES = st.text(string.ascii_letters + string.digits + "._-/ é", max_size=70)


@given(name=NAMES)
def test_a_name_is_a_plain_folder_or_refused(name):
    problems = name_problems(name)
    plain = name.isascii() and 0 < len(name) <= 64 and name[0].isalnum() and not {"/", " "} & set(name)
    assert plain or problems
    with pytest.raises(UsageError) if problems else contextlib.nullcontext():
        Checkpointer({}, "checkpoints", name=name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", ["begin with a letter or a digit"]),
        (".hidden", ["begin with a letter or a digit"]),
        ("..", ["begin with a letter or a digit"]),
        ("a/b", ["letters of a to z"]),
        ("é" * 65, ["letters of a to z", "65 characters, more than 64"]),
        ("step-7", ["the name of a checkpoint"]),
        ("manifest.json", ["a file of the library's"]),
        ("interruptions.json", ["a file of the library's"]),
        ("tensorboard", ["for TensorBoard"]),
        ("checkpoint-500", ["of their own"]),
        ("model.draft", ["being copied"]),
        (7, ["of the type int"]),
    ],
)
def test_a_name_that_another_thing_has_is_refused_with_all_its_problems(name, found):
    problems = name_problems(name)
    assert len(problems) == len(found)
    assert all(text in problem for text, problem in zip(found, problems, strict=True))
    with pytest.raises(UsageError, match="cannot be the name of a training"):
        Checkpointer({}, "checkpoints", name=name)


@pytest.mark.parametrize("name", ["fold-2", "seed_3", "trial.07", "2", "A" * 64, "step", "steps-2", "checkpoints"])
def test_other_names_are_taken(name):
    assert name_problems(name) == []


# Where the folder is


def test_on_a_platform_a_relative_directory_is_one_in_the_folder_that_is_kept(tmp_path, monkeypatch):
    """The working directory is another one at each start, or on a machine that is gone."""
    environment = {"SPOTKEEP_CHECKPOINT_DIR": str(tmp_path / "kept")}
    found = []
    for start in ("22-01-03", "22-05-40"):
        (tmp_path / start).mkdir()
        monkeypatch.chdir(tmp_path / start)
        found.append(find_folder("fold-2", environment=environment))
    assert found[0] == found[1]
    assert (found[0].path, found[0].label, found[0].warning) == (tmp_path / "kept" / "fold-2", "fold-2", None)


@pytest.mark.parametrize("directory", ["{kept}", "{kept}/", "{kept}/a/..", "."])
def test_the_kept_folder_itself_has_no_label(tmp_path, directory):
    environment = {"SPOTKEEP_CHECKPOINT_DIR": str(tmp_path)}
    found = find_folder(directory.format(kept=tmp_path), environment=environment)
    assert (found.path.resolve(), found.label, found.warning) == (tmp_path, None, None)


@pytest.mark.parametrize("directory", ["/somewhere/else", "../beside"])
def test_a_directory_outside_of_the_kept_one_is_warned_of_by_name(tmp_path, monkeypatch, caplog, directory):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path / "kept"))
    given_directory = directory if directory.startswith("..") else str(tmp_path / "elsewhere")
    train(given_directory, total=1)
    assert f"directory={given_directory!r} lies outside of {tmp_path / 'kept'}" in caplog.text
    assert "the next attempt begins at step 0" in caplog.text


def test_elsewhere_it_is_one_in_the_directory_that_the_script_was_started_from(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(spotkeep.start, "_AT_THE_IMPORT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["a console without a script"])
    monkeypatch.chdir(tmp_path)
    train("run", total=3)
    assert caplog.text == ""
    (tmp_path / "outputs").mkdir()
    monkeypatch.chdir(tmp_path / "outputs")
    assert train("run", total=5).seen["steps"] == list(range(5))
    assert list((tmp_path / "outputs").iterdir()) == []
    assert f"the working directory is {tmp_path / 'outputs'}, and the script was started from {tmp_path}" in caplog.text
    assert find_folder(None).path == tmp_path / "checkpoints"


@pytest.mark.parametrize("directory", ["22-01-03", "nested/22-01-03"])
def test_a_directory_that_is_another_one_at_each_start_is_warned_of(
    tmp_path, new_process, monkeypatch, caplog, directory
):
    monkeypatch.setenv("SPOTKEEP_CHECKPOINT_DIR", str(tmp_path))
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    train(directory, total=3)
    train(directory.replace("22", "23"), total=3)
    assert caplog.text == "", "the two are of one process"
    new_process()
    (tmp_path / directory).with_name("notes.txt").touch()
    with monkeypatch.context() as started:
        started.setattr(sys, "argv", [*sys.argv, "--another"])
        train(directory.replace("22", "24"), total=3)
    assert caplog.text == "", "the two were started in another way"
    train(directory.replace("22", "25"), total=3)
    beside = tmp_path / directory
    assert f"begins at step 0 in {str(beside).replace('22-', '25-')}, and {beside} beside it holds" in caplog.text
