"""Loops over epochs and batches: interrupted after any step, the run ends where one that was left alone ends."""

# ruff: noqa: S311 - any random numbers will do

from __future__ import annotations

import itertools
import logging
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep import ResumableTraining, UsageError

EPOCHS = 3


class Killed(BaseException):
    """The process is gone."""


class Shuffled:
    """Batches in a new order each time, by the global random numbers, some of them drawn late."""

    def __init__(self, count=5):
        self.count = count

    def __iter__(self):
        order = random.sample(range(self.count), self.count)
        for index in order:
            yield index + random.random()


def run(directory, *, stop_after=None, notice=False, body=None, **options):
    """One process: gone, or asked to leave, after so many batches of its own; then it gives None."""
    random.seed(1)
    np.random.seed(2)
    learned = {"values": []}
    seen = 0

    def batch_done():
        nonlocal seen
        seen += 1
        if seen == stop_after:
            if not notice:
                raise Killed
            os.kill(os.getpid(), signal.SIGTERM)

    training = ResumableTraining({"learned": learned}, directory=directory, **{"every_steps": 1, **options})
    try:
        (body or one_loop)(training, learned["values"], batch_done)
    except Killed:
        return None
    except SystemExit as leaving:
        expected = 75 if notice else 0
        return pytest.fail(f"left with {leaving.code!r}") if leaving.code != expected else None
    return learned["values"], random.random(), float(np.random.random())


def one_loop(training, values, batch_done):
    loader = training.loader(Shuffled())
    for epoch in training.epochs(range(10, 10 + EPOCHS)):
        scale = random.random()
        for number, batch in enumerate(loader, loader.start):
            values.append((epoch, number, batch * scale + random.random() + float(np.random.random())))
            batch_done()
        values.append(("validated", random.random()))


def two_at_once(training, values, batch_done):
    first, second = training.loader(Shuffled(4)), training.loader(Shuffled(6))
    for epoch in training.epochs(EPOCHS):
        for pair in zip(first, second, strict=False):
            values.append((epoch, pair, random.random()))
            batch_done()


def two_in_turn(training, values, batch_done):
    first, second = training.loader(Shuffled(3)), training.loader([1, 2])
    for epoch in training.epochs(EPOCHS):
        for batch in first:
            values.append((epoch, batch, random.random()))
            batch_done()
        for batch in second:
            values.append((epoch, batch, random.random()))
            batch_done()


def made_in_each_epoch(training, values, batch_done):
    for epoch in training.epochs(EPOCHS):
        for _ in range(2):
            for batch in training.loader(Shuffled(3)):
                values.append((epoch, batch, random.random()))
                batch_done()


def the_same_twice(training, values, batch_done):
    loader = training.loader(Shuffled(3))
    for epoch in training.epochs(EPOCHS):
        for _ in range(2):
            for batch in loader:
                values.append((epoch, batch, random.random()))
                batch_done()


def left_early(training, values, batch_done):
    loader = training.loader(Shuffled(9))
    for _epoch in training.epochs(EPOCHS):
        for number, batch in enumerate(loader, loader.start):
            values.append((batch, random.random()))
            batch_done()
            if number == 2:
                break


def gradients_added_up(training, values, batch_done):
    loader = training.loader(list(range(7)))
    gradient = 0.0  # as a parameter's, which no state_dict has
    for _epoch in training.epochs(EPOCHS):
        for number, batch in enumerate(loader, loader.start):
            gradient += batch * random.random()
            if (number + 1) % 3 == 0 or number + 1 == len(loader):
                values.append(gradient)
                gradient = 0.0
            batch_done()


class Counted:
    """A stream that shuffles by a generator of its own, and by how often it was gone through."""

    def __init__(self):
        self.rng, self.passes = np.random.default_rng(3), 0

    def __iter__(self):
        self.passes += 1
        return (index * self.passes for index in self.rng.permutation(4).tolist())


def counted_by_the_stream(training, values, batch_done):
    loader = training.loader(Counted())
    for _epoch in training.epochs(2):
        for batch in loader:
            values.append(batch)
            batch_done()


def shuffled_by_the_script(training, values, batch_done):
    batches = [1, 2, 3, 4]
    loader = training.loader(batches)
    for _epoch in training.epochs(2):
        random.shuffle(batches)
        for batch in loader:
            values.append(batch)
            batch_done()


def decided_by_what_the_script_names(training, values, batch_done):
    counts = SimpleNamespace(passes=0)

    class Batches:
        def __iter__(self):
            counts.passes += 1
            return iter([counts.passes, 2, 3])

    loader = training.loader(Batches(), state=[counts])
    for _epoch in training.epochs(2):
        for batch in loader:
            values.append(batch)
            batch_done()


def begun_anew_when_it_ends(training, values, batch_done):
    loader, shorter = training.loader(Shuffled(7)), training.loader(Shuffled(2))
    for _epoch in training.epochs(2):
        batches = iter(shorter)
        for batch in loader:
            try:
                beside = next(batches)
            except StopIteration:
                batches = iter(shorter)
                beside = next(batches)
            values.append((batch, beside))
            batch_done()


def the_longest_of_two_twice(training, values, batch_done):
    first, second = training.loader([1, 2, 3]), training.loader([4, 5])
    for _epoch in training.epochs(2):
        for _ in range(2):
            for pair in itertools.zip_longest(first, second):
                values.append(pair)
                batch_done()


ORDERS = [
    *(counted_by_the_stream, shuffled_by_the_script, decided_by_what_the_script_names),
    *(begun_anew_when_it_ends, the_longest_of_two_twice),
]


@pytest.mark.parametrize("body", ORDERS, ids=lambda body: body.__name__)
def test_an_order_of_any_kind_ends_where_an_undisturbed_run_ends(tmp_path, body):
    expected = run(tmp_path / "undisturbed", body=body)
    for stop_after in range(2, len(expected[0]), 2):
        directory = tmp_path / str(stop_after)
        assert run(directory, body=body, stop_after=stop_after) is None
        assert run(directory, body=body) == expected, f"killed after {stop_after} batches"


BODIES = [
    *(one_loop, two_at_once, two_in_turn, made_in_each_epoch, the_same_twice, left_early, gradients_added_up),
]
OPTIONS = {gradients_added_up: {"batches_per_step": 3}}
INTERRUPTIONS = st.tuples(st.sampled_from(["killed", "noticed", "paused"]), st.integers(1, 10))


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_any_interruptions_end_where_an_undisturbed_run_ends(tmp_path_factory, body):
    expected = run(tmp_path_factory.mktemp("undisturbed"), body=body, **OPTIONS.get(body, {}))

    @settings(max_examples=max(5, settings.default.max_examples // 8))
    @given(interruptions=st.lists(INTERRUPTIONS, min_size=1, max_size=4), every_steps=st.integers(1, 4))
    def hold(interruptions, every_steps):
        """Each attempt ends after so many batches of its own, or pauses so many steps after what was saved last."""
        directory = tmp_path_factory.mktemp("run")
        options = {"body": body, "every_steps": every_steps, **OPTIONS.get(body, {})}
        for how, count in interruptions:
            with pytest.MonkeyPatch.context() as environment:
                if how == "paused":
                    environment.setenv("SPOTKEEP_PAUSE_AT_STEP", str(newest(directory) + count))
                    run(directory, **options)
                else:
                    run(directory, stop_after=count, notice=how == "noticed", **options)
        assert run(directory, **options) == expected

    hold()


def newest(directory):
    return max((int(path.name[5:]) for path in directory.glob("step-*")), default=0)


def test_paused_after_each_step_it_ends_where_one_that_never_paused_ends(tmp_path, monkeypatch):
    """Each process is asked to pause one step later; a second one that is asked the same does no step."""
    expected = run(tmp_path / "undisturbed")
    for pause_at in range(1, 5 * EPOCHS):
        monkeypatch.setenv("SPOTKEEP_PAUSE_AT_STEP", str(pause_at))
        for _attempt in range(2):
            assert run(tmp_path / "run", every_steps=4) is None
            assert newest(tmp_path / "run") == pause_at
    monkeypatch.delenv("SPOTKEEP_PAUSE_AT_STEP")
    assert run(tmp_path / "run") == expected


def test_a_notice_after_the_last_batch_does_not_wait_for_what_follows_it(tmp_path):
    followed = []

    def body(training, values, batch_done):
        loader = training.loader([1, 2])
        for epoch in training.epochs(2):
            for _ in loader:
                batch_done()
            followed.append(epoch)

    assert run(tmp_path, stop_after=2, notice=True, body=body) is None
    assert followed == []
    run(tmp_path, body=body)
    assert followed == [0, 1]


def test_plain_values_are_put_back_into_the_scripts_own_dictionary(tmp_path):
    for attempt in (1, 2):
        state = {"best": 0.0}
        training = ResumableTraining(state, directory=tmp_path)
        for epoch in training.epochs(attempt):
            assert state["best"] == epoch / 2
            state["best"] = (epoch + 1) / 2
        assert state == {"best": attempt / 2}


def test_progress_tells_how_far_it_is(tmp_path, job_events):
    training = ResumableTraining({}, directory=tmp_path, batches_per_step=2)
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(2):
        for _ in loader:
            training.log(loss=0.5)
    progress = [(event["step"], event["total_steps"]) for event in job_events() if event["event"] == "progress"]
    assert progress == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_a_run_that_is_done_does_nothing_again(tmp_path, job_events):
    expected = run(tmp_path)
    assert run(tmp_path) == expected
    assert [event["step"] for event in job_events() if event["event"] == "finish"] == [15, 15]


def test_on_restore_gets_the_steps_and_the_completed_epochs(tmp_path):
    seen = []

    def noted(step, epoch):
        seen.append((step, epoch))

    assert run(tmp_path, stop_after=3, notice=True, on_restore=noted) is None
    assert run(tmp_path, stop_after=4, notice=True, on_restore=noted) is None
    assert run(tmp_path, on_restore=noted) == run(tmp_path / "left alone")
    assert seen == [(3, 0), (7, 1)]


def test_the_directory_stands_behind_the_state_as_in_a_checkpointer(tmp_path):
    assert ResumableTraining({"learned": {}}, tmp_path / "here").checkpointer.directory == tmp_path / "here"


def test_what_gives_its_batches_only_once_is_refused(tmp_path):
    with pytest.raises(UsageError, match="gives its batches only once"):
        ResumableTraining({}, directory=tmp_path).loader(iter([1, 2]))


def test_batches_outside_the_epochs_are_refused(tmp_path):
    loader = ResumableTraining({}, directory=tmp_path).loader([1, 2])
    with pytest.raises(UsageError, match="only inside"):
        next(iter(loader))


def test_other_batches_than_those_that_were_trained_on_are_found_before_the_first_step(tmp_path):
    """The order depends on what nothing can see, as on the clock."""
    attempts = itertools.count()

    def body(training, values, batch_done):
        attempt = next(attempts)
        loader = training.loader([[1, 2, 3 + 10 * attempt, 4], [1, 2, 3, 4]][0])
        for _epoch in training.epochs(1):
            for batch in loader:
                values.append(batch)
                batch_done()

    assert run(tmp_path, body=body, stop_after=3, notice=True) is None
    values = []
    with pytest.raises(UsageError, match=r"of the 3 batches .* batch 3 is another one.*state=\[sampler\]"):
        run(tmp_path, body=lambda training, _, batch_done: body(training, values, batch_done))
    assert values == []


def one_iterator(training, values, batch_done):
    batches = None
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(2):
        batches = batches or iter(loader)
        values.append(next(batches))
        batch_done()


def two_passes_at_once(training, values, batch_done):
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(2):
        for pair in zip(loader, loader, strict=False):
            values.append(pair)
            batch_done()


def cycled(training, values, batch_done):
    loader, shorter = training.loader([1, 2, 3]), training.loader([1, 2])
    for _epoch in training.epochs(2):
        for pair in zip(loader, itertools.cycle(shorter), strict=False):
            values.append(pair)
            batch_done()


def inside_another(training, values, batch_done):
    outer, inner = training.loader([1, 2, 3]), training.loader([1, 2])
    for _epoch in training.epochs(2):
        for first in outer:
            for second in inner:
                values.append((first, second))
                batch_done()


def the_first_of_another(training, values, batch_done):
    outer, inner = training.loader([1, 2, 3]), training.loader([1, 2])
    for _epoch in training.epochs(2):
        for first in outer:
            values.append((first, next(iter(inner))))
            batch_done()


class KeepsItsIterator:
    def __init__(self):
        self.endless = (number for number in itertools.count())

    def __iter__(self):
        return itertools.islice(self.endless, 3)


def kept_over_passes(training, values, batch_done):
    for _epoch in training.epochs(2):
        for batch in training.loader(KeepsItsIterator()):
            values.append(batch)
            batch_done()


def fetched_by_a_thread(training, values, batch_done):
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(2):
        with ThreadPoolExecutor(1) as thread:
            batches = iter(loader)
            while (batch := thread.submit(next, batches, None).result()) is not None:
                values.append(batch)
                batch_done()


@pytest.mark.parametrize(
    ("body", "problem", "steps_before"),
    [
        (one_iterator, r"was made in epoch 0 and is asked for a batch in epoch 1", 1),
        (two_passes_at_once, "after a newer one was made", 0),
        (cycled, r"itertools\.cycle", 0),
        (inside_another, "inside the loop over another one", 2),
        (the_first_of_another, "inside the loop over another one", 1),
        (fetched_by_a_thread, r"in another thread .* Pass what fetches ahead to training\.loader", 0),
        (kept_over_passes, "KeepsItsIterator keeps one iterator over all passes", 0),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_loops_that_cannot_be_taken_up_are_refused_by_name_while_the_run_is_left_alone(
    tmp_path, body, problem, steps_before
):
    values = []
    with pytest.raises(UsageError, match=problem):
        run(tmp_path, body=lambda training, _, batch_done: body(training, values, batch_done))
    assert len(values) == steps_before


def counts_by_itself(training, values, batch_done):
    loader = training.loader([1, 2, 3, 4, 5])
    for epoch in training.epochs(EPOCHS):
        for number, batch in enumerate(loader):
            values.append((epoch, batch))
            batch_done()
            if number == 2:
                break


def takes_a_number(training, values, batch_done):
    loader = training.loader([1, 2, 3, 4, 5])
    for epoch in training.epochs(EPOCHS):
        for batch in itertools.islice(loader, 3):
            values.append((epoch, batch))
            batch_done()


def begins_anew_in_a_range(training, values, batch_done):
    loader = training.loader([1, 2])
    for epoch in training.epochs(EPOCHS):
        batches = (batch for _ in itertools.count() for batch in loader)
        for _ in range(3):
            values.append((epoch, next(batches)))
            batch_done()


@pytest.mark.parametrize(
    "body", [counts_by_itself, takes_a_number, begins_anew_in_a_range], ids=lambda one: one.__name__
)
def test_a_loop_that_counts_its_batches_from_0_again_is_named(tmp_path, caplog, body):
    expected = run(tmp_path / "undisturbed", body=body)[0]
    assert run(tmp_path / "run", body=body, stop_after=5, notice=True) is None
    assert not caplog.records
    assert len(run(tmp_path / "run", body=body)[0]) > len(expected)
    (said,) = (record.message for record in caplog.records if "too many" in record.message)
    assert "count from loader.start, as in enumerate(loader, loader.start)" in said


@pytest.mark.parametrize("body", [left_early, two_at_once, one_loop], ids=lambda one: one.__name__)
def test_a_loop_that_counts_from_its_start_or_ends_by_itself_is_not(tmp_path, caplog, body):
    expected = run(tmp_path / "undisturbed", body=body)
    assert run(tmp_path / "run", body=body, stop_after=5, notice=True) is None
    assert run(tmp_path / "run", body=body) == expected
    assert not any("too many" in record.message for record in caplog.records)


def looks_at_a_batch_first(training, values, batch_done):
    loader = training.loader([1, 2, 3])
    for _epoch in training.epochs(2):
        values.append(next(iter(loader)))
        for batch in loader:
            values.append(batch)
            batch_done()


def test_a_batch_of_a_pass_that_was_over_is_refused_with_what_to_do(tmp_path):
    assert run(tmp_path, body=looks_at_a_batch_first, stop_after=2, notice=True) is None
    with pytest.raises(StopIteration, match="for a first look at a batch take the script's own loader"):
        run(tmp_path, body=looks_at_a_batch_first)


def one_then_both(training, values, batch_done, *, first=0):
    loaders = [training.loader([1, 2, 3]), training.loader([4, 5, 6])]
    for _epoch in training.epochs(1):
        passes = [iter(loader) for loader in loaders]
        for number in range(6):
            values.append(next(passes[first if number < 3 else 1 - first]))
            batch_done()


def test_a_step_of_another_loader_than_that_of_the_checkpoint_is_none(tmp_path):
    assert run(tmp_path, body=one_then_both, stop_after=2, notice=True) is None
    values = []
    with pytest.raises(UsageError, match="in a loop over a loader that this script did not come to"):
        run(tmp_path, body=lambda training, _, done: one_then_both(training, values, done, first=1))
    assert values == [4], "it ends when the first one is done"


def test_batches_that_have_to_be_made_again_are_announced_and_what_is_passed_over_is_counted(
    tmp_path, caplog, monkeypatch
):
    caplog.set_level(logging.INFO, logger="spotkeep")
    monkeypatch.setattr("spotkeep.loops.batch_passes._SECONDS_BETWEEN_LINES", -1)
    run(tmp_path, stop_after=3, notice=True)
    run(tmp_path)
    messages = [record.getMessage() for record in caplog.records]
    assert sum("the Shuffled cannot begin in its middle" in message for message in messages) == 2
    assert [message.split(" in ")[0] for message in messages if "passed over" in message and " of " in message] == [
        f"Shuffled: passed over {count} of 3 batches" for count in (1, 2, 3)
    ]


def test_a_script_with_other_loops_than_the_one_that_saved_is_reported(tmp_path):
    assert run(tmp_path, stop_after=3, notice=True) is None
    with pytest.raises(UsageError, match="did not come to"):
        run(tmp_path, body=lambda training, values, done: [None for _ in training.epochs(2)])


def test_batches_that_are_gone_are_reported(tmp_path):
    def shrinking(count):
        def body(training, values, batch_done):
            loader = training.loader(Shuffled(count))
            for _epoch in training.epochs(1):
                for _ in loader:
                    batch_done()

        return body

    assert run(tmp_path, body=shrinking(5), stop_after=4, notice=True) is None
    with pytest.raises(UsageError, match="after 4 batches of this pass, and there are 2 now"):
        run(tmp_path, body=shrinking(2))


@pytest.mark.parametrize(
    ("state", "options", "problem"),
    [({"loop": 1}, {}, "the state has 'loop'"), ({}, {"batches_per_step": 0}, "batches_per_step is 0")],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, state, options, problem):
    with pytest.raises(UsageError, match=problem):
        ResumableTraining(state, directory=tmp_path, **options)


def _place(**changed):
    loader = {"passes": 1, "passes_before": 0, "position": 2}
    place = {"epochs_completed": 0, "epoch_random": {}, "active": 0, "loaders": [loader]}
    return {**place, "open_gradients": {"optimizers": [None]}, **changed}


@pytest.mark.parametrize(
    ("states", "problem"),
    [
        ([_place(), _place(epochs_completed=1)], "in different passes"),
        ([_place(), _place(open_gradients={"optimizers": [[1.0]]})], "added up gradients for a step that was not done"),
    ],
)
def test_places_of_ranks_that_are_no_place_of_other_ranks_are_refused(tmp_path, states, problem):
    training = ResumableTraining({"w": [1]}, directory=tmp_path)
    progress = training.checkpointer._setup.state.per_rank["loop"]
    with pytest.raises(ValueError, match=problem):
        progress.load_rank_states(states, rank=0, world_size=3)
