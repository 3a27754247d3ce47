"""A sweep as pictures: each trial with its number, axes as the space has them, and words for readers who see none."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from spotkeep_cli.rendering.pictures import Picture
from spotkeep_cli.sweeps import sweep_plots
from spotkeep_cli.sweeps.sweep_plots import (
    BEST,
    DrawnSweep,
    at_comparisons,
    learning_curves,
    over_money,
    over_time,
    scale_of,
    side_by_side,
    sweep_pictures,
)
from spotkeep_cli.sweeps.sweep_report import SweepStory
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.space import read_parameter
from tests.spotkeep_cli.sweeps.example_sweeps import cost, example


def drawn(story: SweepStory) -> DrawnSweep:
    found = story.drawn
    assert found is not None
    return found


def drawn_by(draw: Callable[[DrawnSweep], Picture | None], count: int = 12, **options: Any) -> Picture:
    made = draw(drawn(example(count, **options)))
    assert made is not None
    return made


def texts(picture: Picture) -> list[str]:
    return [text for each in picture.element().iter("text") if (text := "".join(each.itertext()))]


def names(sweep: DrawnSweep) -> list[str]:
    return [picture.name for picture in sweep_pictures(sweep)]


def test_a_search_by_asha_has_all_pictures() -> None:
    assert names(drawn(example(40))) == ["objective", "cost", "curves", "rungs", "parameters"]


def test_one_trial_has_its_curve_alone() -> None:
    assert names(drawn(example(1, search="random"))) == ["curves"]


def test_another_search_has_no_comparisons() -> None:
    assert names(drawn(example(12, search="random"))) == ["objective", "cost", "curves", "parameters"]


@pytest.mark.parametrize("count", [1, 2, 40, pytest.param(200, marks=pytest.mark.long)])
@pytest.mark.parametrize("options", [{}, {"constant": True}, {"goal": "maximize"}, {"scale": 1e-9}])
def test_each_picture_of_any_sweep_is_drawn_with_words(count: int, options: dict[str, Any]) -> None:
    for picture in sweep_pictures(drawn(example(count, **options))):
        (svg,) = picture.element().iter("svg")
        (words,) = svg.iter("desc")
        assert words.text is not None
        assert len(words.text) > 60
        assert "nan" not in words.text.lower()


def test_a_value_that_is_no_number_is_not_drawn() -> None:
    sweep = drawn(example(6, search="random"))
    trials = [trial.model_copy(update={"best": math.nan}) if trial.number == 2 else trial for trial in sweep.trials]
    curves = dict(sweep.curves) | {2: [(20, math.nan)], 3: [(20, 0.5), (40, math.inf), (60, 0.25)]}
    sweep = dataclasses.replace(sweep, trials=trials, curves=curves)
    assert [trial.number for trial in sweep.measured if trial.number == 2] == []
    over, curves_drawn = over_time(sweep), learning_curves(sweep)
    assert over is not None
    assert curves_drawn is not None
    assert "trial-2" not in over.names
    labels = " ".join(texts(curves_drawn))
    assert "trial 3" in labels
    assert "trial 2" not in labels


def test_without_an_ended_trial_the_curves_alone_are_drawn() -> None:
    assert names(drawn(example(8, ended=False, search="random"))) == ["curves", "parameters"]


def test_the_trials_that_improved_the_best_value_have_their_numbers() -> None:
    sweep = drawn(example(200))
    best = sweep.so_far(sweep.ended)
    improved = [trial.number for place, trial in enumerate(sweep.ended) if not place or best[place] != best[place - 1]]
    picture = over_time(sweep)
    assert picture is not None
    numbers = {annotation.get_text() for annotation in picture.figure.axes[0].texts}
    assert str(improved[-1]) in numbers
    assert numbers <= set(map(str, improved))
    assert f"of trial {improved[-1]}, after " in picture.description


def test_no_number_of_a_few_trials_is_missing() -> None:
    picture = drawn_by(over_time, 5, search="random")
    assert {annotation.get_text() for annotation in picture.figure.axes[0].texts} == {"1", "2", "3", "4", "5"}


@pytest.mark.parametrize(("goal", "falls"), [("minimize", True), ("maximize", False)])
def test_the_best_so_far_goes_the_way_of_the_goal(goal: str, falls: bool) -> None:
    picture = drawn_by(over_time, 60, goal=goal)
    (line,) = [each for each in picture.figure.axes[0].lines if each.get_gid() == "best"]
    values = [float(value) for value in line.get_ydata()]
    assert values == sorted(values, reverse=falls)
    assert values[0] != values[-1]
    assert f"({'lower' if falls else 'higher'} is better)" in picture.figure.axes[0].get_ylabel()


def test_of_very_many_trials_the_best_have_names_and_each_has_a_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_plots, "_MOST_DRAWN", 10)
    sweep = drawn(example(60))
    objective, _, _, rungs, parameters = sweep_pictures(sweep)
    points = sum(len(line.get_xdata()) for line in objective.figure.axes[0].lines if line.get_gid() != "best")
    assert points == len(sweep.ended)
    best = {f"trial-{trial.number}" for trial in sweep.measured[:10]}
    assert best <= set(objective.names)
    assert len(objective.names) < 25
    for picture in (rungs, parameters):
        assert best <= set(picture.names)
        assert f"(the 10 best of {len(sweep.measured)})" in picture.title
    measured = sum(bool(trial.values) for trial in sweep.trials)
    assert rungs.figure.axes[0].get_xticklabels()[0].get_text() == f"100\n{measured} trials"


def test_the_time_has_a_unit_that_fits() -> None:
    assert "(min)" in drawn_by(over_time, 12).figure.axes[0].get_xlabel()
    assert "(h)" in drawn_by(over_time, 200).figure.axes[0].get_xlabel()


@pytest.mark.parametrize("unknown", [None, cost(None)])
def test_a_cost_that_is_not_known_is_not_drawn_as_nothing(unknown: Any) -> None:
    sweep = drawn(example(6, search="random"))
    assert over_money(sweep) is not None
    trials = [trial.model_copy(update={"cost": unknown}) if trial.number == 2 else trial for trial in sweep.trials]
    assert over_money(dataclasses.replace(sweep, trials=trials)) is None


def test_few_learning_curves_have_their_names_and_of_many_the_best() -> None:
    few = texts(drawn_by(learning_curves, 6, search="random"))
    assert sum(text.startswith("trial ") for text in few) == 6
    sweep = drawn(example(200))
    many = learning_curves(sweep)
    assert many is not None
    named = {text.removesuffix(" (best)") for text in texts(many) if text.startswith("trial ")}
    ranked = [trial for trial in sweep.measured if trial.number in sweep.curves]
    assert named == {f"trial {trial.number}" for trial in ranked[:5]}
    # Nothing is hidden: each curve is there, and a pointer finds its trial.
    assert len(many.names) == len(sweep.curves)
    assert many.title == f"Learning curves: the 5 best of {len(sweep.curves)} in colour"


def test_labels_of_curves_do_not_cover_each_other() -> None:
    picture = drawn_by(learning_curves, 7, constant=True, search="random")
    picture.element()
    heights = sorted(annotation.get_position()[1] for annotation in picture.figure.axes[0].texts)
    assert all(after - before > 0.05 for before, after in pairwise(heights))


def test_steps_of_asha_stand_on_a_logarithmic_axis() -> None:
    assert drawn_by(learning_curves, 40).figure.axes[0].get_xscale() == "log"
    assert drawn_by(learning_curves, 12, search="random").figure.axes[0].get_xscale() == "linear"


def test_each_comparison_says_how_many_trials_came_so_far() -> None:
    sweep = drawn(example(60))
    picture = at_comparisons(sweep)
    assert picture is not None
    labels = [label.get_text() for label in picture.figure.axes[0].get_xticklabels()]
    assert [label.split("\n")[0] for label in labels] == ["100", "300", "900", "2,700", "8,100"]
    measured = [trial for trial in sweep.trials if trial.values]
    assert labels[0].split("\n")[1] == f"{len(measured)} trials"


def test_the_best_trial_alone_has_the_colour_of_the_best() -> None:
    sweep = drawn(example(30))
    for draw in (learning_curves, at_comparisons, side_by_side):
        picture = draw(sweep)
        assert picture is not None
        lines = [line for line in picture.figure.axes[0].lines if line.get_gid() in picture.names]
        best = [line for line in lines if line.get_color() == BEST]
        assert len(best) == 1
        assert picture.names[str(best[0].get_gid())].startswith(f"trial {sweep.measured[0].number},")


def test_a_failed_trial_is_dashed_through_its_parameters() -> None:
    sweep = drawn(example(40, failed=10))
    picture = side_by_side(sweep)
    assert picture is not None
    failed = {f"trial-{trial.number}" for trial in sweep.trials if trial.state is TrialState.FAILED}
    dashed = {line.get_gid() for line in picture.figure.axes[0].lines if line.get_linestyle() == "--"}
    assert dashed == failed
    assert "Dashed lines are 4 trials that failed." in picture.description


def test_one_trial_and_equal_parameters_are_not_set_side_by_side() -> None:
    assert side_by_side(drawn(example(1))) is None
    assert side_by_side(drawn(example(5, space={"depth": [18]}))) is None


def test_axes_are_logarithmic_where_the_space_is() -> None:
    labels = texts(drawn_by(side_by_side, 30))
    assert "lr" in labels
    assert labels[labels.index("lr") + 1] == "(log)"
    assert {"1e-3", "1e-2", "adam", "sgd", "lion", "18", "34", "50"} <= set(labels)
    assert scale_of([1e-4, 1e-2, 1e-1], read_parameter({"log_uniform": [1e-5, 1e-1]})).heights == pytest.approx(
        [0.25, 0.75, 1]
    )


def test_an_axis_shows_the_whole_range_that_is_searched() -> None:
    scale = scale_of([0.2, 0.3], read_parameter({"uniform": [0, 0.5]}))
    assert scale.heights == pytest.approx([0.4, 0.6])
    assert [text for _, text in scale.ticks] == ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]


def test_values_without_numbers_stand_in_the_order_of_the_space() -> None:
    scale = scale_of(["sgd", "adam", "adam"], read_parameter(["adam", "lion", "sgd"]))
    assert scale.heights == [1, 0, 0]
    assert scale.ticks == [(0, "adam"), (1, "sgd")]


def test_one_value_has_its_place_in_the_middle() -> None:
    assert scale_of([0.1, 0.1]).heights == [0.5, 0.5]
    assert scale_of(["adam"]).ticks == [(0.5, "adam")]
    assert scale_of([True, False]).ticks == [(0, "false"), (1, "true")]


def test_a_number_that_is_kept_as_it_is_written_has_its_place_among_numbers() -> None:
    scale = scale_of(["1e-3", 0.01, "1e-1"])
    assert scale.log
    assert scale.heights == pytest.approx([0, 0.5, 1])
    assert scale.ticks[0] == (0, "0.001")
    assert scale.ticks[-1] == (1, "0.1")
    assert scale_of(["adam", "1e-3"]).heights == [1, 0]


def test_names_of_a_sweep_are_no_formulas() -> None:
    picture = drawn_by(side_by_side, 6, space={"$lr$": [1, 2, 3]}, metric="a/b_loss", search="random")
    assert "$lr$" in texts(picture)
