"""What a script prints is searched for its metrics: within bounds of time, at most so often, with the step."""

from __future__ import annotations

import pytest

from spotkeep.runner import metric_search
from spotkeep.runner.metric_search import MetricSearch
from spotkeep_fleet.training_spec import SearchedMetric


class Search:
    """A search with a clock of its own."""

    def __init__(self, *metrics, seconds_between=10.0):
        self.now = 1000.0
        self.complaints = []
        self.search = MetricSearch(
            dict(metrics),
            seconds_between=seconds_between,
            search=lambda pattern, line: pattern.search(line),
            complain=self.complaints.append,
        )

    def reads(self, *lines, after=0.0):
        self.now += after
        for line in lines:
            self.search.take(line, now=self.now)
        return [fields for _, fields in self.search.due(now=self.now)]


def metric(pattern="loss=([0-9.]+)", step=None, name="loss"):
    return name, SearchedMetric(pattern, step)


def test_the_first_group_is_the_value():
    assert Search(metric()).reads("step 3 loss=0.25 acc=1") == [{"metrics": {"loss": 0.25}}]


def test_a_line_without_it_or_with_no_number_says_nothing():
    search = Search(metric("loss=(.*)"), metric("acc=([0-9]+)?", name="acc"))
    assert search.reads("nothing", "loss=nan", "loss=inf", "loss=1e999", "loss=a", "acc=") == []


def test_the_step_is_the_last_that_the_script_reported():
    search = Search(metric())
    reported = 'spotkeep-event: {"event":"progress","step":40,"metrics":{"loss":7}}'
    assert search.reads(reported, "loss=0.5") == [{"step": 40, "metrics": {"loss": 0.5}}]


@pytest.mark.parametrize(
    "event", ['{"event":"progress","step":-1}', '{"event":"saved","step":true}', "{", "[1]", '{"event":"x","step":3}']
)
def test_a_line_that_is_no_event_with_a_step_names_none(event):
    assert Search(metric()).reads(f"spotkeep-event: {event}", "loss=0.5") == [{"metrics": {"loss": 0.5}}]


def test_or_the_last_that_a_pattern_found_in_this_line_or_before():
    search = Search(metric(step="[Ee]poch ([0-9]+)"), seconds_between=0.0)
    assert search.reads("Epoch 3/10", "... loss=0.5") == [{"step": 3, "metrics": {"loss": 0.5}}]
    assert search.reads("epoch 4 loss=0.4") == [{"step": 4, "metrics": {"loss": 0.4}}]


def test_of_many_values_the_newest_is_given_every_so_often_and_the_first_at_once():
    search = Search(metric())
    assert search.reads("loss=9") == [{"metrics": {"loss": 9.0}}]
    assert search.reads("loss=8", "loss=7", after=1) == []
    assert search.search.waits_seconds(now=search.now) == 9.0
    assert search.reads("loss=6", after=9) == [{"metrics": {"loss": 6.0}}]
    assert search.search.waits_seconds(now=search.now) is None


def test_of_a_short_training_the_last_value_of_each_step_is_given():
    search = Search(metric(step="epoch ([0-9]+)"))
    lines = [f"epoch {epoch} batch {batch} loss={epoch}.{batch}" for epoch in range(1, 61) for batch in (1, 2, 3)]
    given = [*search.reads(*lines), *search.reads(after=10)]
    assert given == [{"step": epoch, "metrics": {"loss": epoch + 0.3}} for epoch in range(1, 61)]


def test_of_a_long_training_ever_fewer_steps_are_given():
    search = Search(metric(step="step ([0-9]+)"))
    given = search.reads(*(f"step {step} loss=1" for step in range(100_000)))
    assert [each["step"] for each in given[:60]] == list(range(60))
    assert len(given) < 60 + 30 * 12


def test_at_the_end_nothing_waits():
    search = Search(metric())
    search.reads("loss=9", "loss=8")
    search.reads("loss=7")
    assert [fields for _, fields in search.search.due(now=search.now, all_of_them=True)] == [{"metrics": {"loss": 7.0}}]


def test_a_pattern_that_takes_too_long_three_times_is_given_up_and_the_others_are_not():
    def search(pattern, line):
        if "+)+" in pattern.pattern:
            raise metric_search.SearchTookTooLongError
        return pattern.search(line)

    complaints = []
    searched = MetricSearch(
        dict([metric("(a+)+$", name="slow"), metric()]),
        seconds_between=0.0,
        search=search,
        complain=complaints.append,
    )
    for _ in range(5):
        searched.take("loss=1", now=0.0)
    assert [fields["metrics"] for _, fields in searched.due(now=1.0)] == [{"loss": 1.0}]
    assert len(complaints) == 1
    assert "slow is not searched for any more" in complaints[0]


@pytest.mark.parametrize("step", [None, "("])
def test_a_pattern_that_this_python_cannot_read_is_said_and_the_others_are_searched_for(step):
    search = Search(metric("(" if step is None else "acc=(.)", step=step, name="acc"), metric())
    assert search.reads("acc=1 loss=0.5") == [{"metrics": {"loss": 0.5}}]
    assert len(search.complaints) == 1
    assert "acc is not searched for: this Python cannot read its pattern" in search.complaints[0]
