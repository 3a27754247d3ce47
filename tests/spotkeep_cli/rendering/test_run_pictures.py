"""Each metric of a run has a picture of its whole curve, with the steps from which jobs went on."""

from __future__ import annotations

from spotkeep_cli.rendering.run_pictures import metric_pictures, resumed_steps
from spotkeep_jobs.record.record import ScriptMetrics
from tests.spotkeep_cli.rendering.example_runs import METRICS, TIMELINE, metric


def test_each_metric_has_a_picture_with_a_text_alternative() -> None:
    pictures = list(metric_pictures(METRICS, steps=[3_400, 5_750]))
    assert [picture.title for picture in pictures] == ["loss", "val_accuracy", "learning_rate"]
    assert len({picture.name for picture in pictures}) == 3
    assert pictures[1].description == (
        "val_accuracy goes from 0.0403066 at step 100 to 0.911209 at step 10,930. Its best value is 0.918598 at step"
        " 10,170. Jobs went on from the steps 3,400, 5,750."
    )


def test_a_picture_has_each_point_the_best_value_and_a_line_for_each_step_from_which_a_job_went_on() -> None:
    _, accuracy, rate = metric_pictures(METRICS, steps=[3_400, 5_750])
    curve, best, *lines = accuracy.figure.axes[0].lines
    assert list(zip(*curve.get_data(), strict=True)) == list(METRICS.metrics["val_accuracy"].points)
    assert [float(value) for value in best.get_xdata()] == [10_170.0]
    assert [float(line.get_xdata()[0]) for line in lines] == [3_400.0, 5_750.0]
    assert rate.figure.axes[0].get_yscale() == "log"
    assert resumed_steps(TIMELINE) == [3_400, 5_750]


def test_a_metric_without_a_point_has_none_and_one_that_ended_before_a_resume_has_no_line_for_it() -> None:
    short = metric("loss").model_copy(update={"points": ((100, 2.0), (200, 1.0))})
    empty = metric("loss").model_copy(update={"points": ()})
    (picture,) = metric_pictures(ScriptMetrics(metrics={"empty": empty, "short": short}), steps=[3_400, 5_750])
    assert picture.title == "short"
    assert len(picture.figure.axes[0].lines) == 1
