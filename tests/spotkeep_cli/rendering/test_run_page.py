"""The page of a run has the values of its description, escapes all text, and everybody can read it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from spotkeep_cli.rendering.run_description import RunStory, attempt_columns, bill_facts, run_facts
from spotkeep_cli.rendering.run_page import run_page
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Metric, ScriptMetrics
from spotkeep_jobs.record.states import NotificationState, TimelineKind
from tests.html import HOSTILE, Parsed, assert_harmless
from tests.spotkeep_cli.conftest import NOW
from tests.spotkeep_cli.rendering.example_runs import (
    BODY,
    METRICS,
    RUN,
    entry,
    failed_run,
    interrupted_run,
    metric,
    run_at_work,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser import Browser


def page_of(story: RunStory, *, footer: str = "today") -> str:
    return run_page(story, now=NOW, steps=[(f"spotkeep logs {RUN}", "its log")], footer=footer)


def words(text: str) -> str:
    return " ".join(Parsed(text).text.split())


def pictures(text: str) -> list[str]:
    return [str(of["aria-label"]) for tag, of in Parsed(text).tags if tag == "svg" and "aria-label" in of]


@pytest.mark.parametrize("story", [interrupted_run(), run_at_work(), failed_run()], ids=["ended", "at work", "failed"])
def test_a_page_has_the_facts_of_the_description(story: RunStory) -> None:
    found, run = words(page_of(story)), story.run
    facts = run_facts(run, page=story.page, now=NOW)
    facts += [] if run.cost is None else bill_facts(run, run.cost)
    assert len(facts) >= 8
    for name, value in facts:
        assert " ".join(f"{name}{value}".split()) in found


def test_the_saving_is_a_ceiling_where_the_repeated_work_is_unknown() -> None:
    story = failed_run()
    assert story.run.cost is not None
    cost = with_changes(story.run.cost, saved_percent=62.5)
    run = with_changes(story.run, cost=cost)
    assert "Saved62%at most, against a clean on-demand run" in words(page_of(replace(story, run=run)))
    known = with_changes(run, cost=with_changes(cost, redone_steps=3, redone_seconds=2.0))
    assert "Saved62%against a clean on-demand run" in words(page_of(replace(story, run=known)))


def test_the_attempts_and_the_events_are_those_of_the_description() -> None:
    story = interrupted_run()
    found = words(page_of(story))
    for column in attempt_columns(story.attempts):
        assert all(str(cell) in found for cell in (column.heading.lower(), *column.cells))
    assert all(each.text in found for each in story.timeline)
    assert f"{len(story.timeline)} events" in found


def test_the_timeline_shows_each_wait_start_and_training_and_each_interruption() -> None:
    first, second = pictures(page_of(interrupted_run()))
    assert first == (
        "waited for capacity for 24m; started, and fetched its data for 18m; trained for 1h 42m;"
        " 2026-11-21 05:24:00: Lost its capacity and waits for new; waited for capacity for 42m;"
        " started, and fetched its data for 18m; 2026-11-21 06:24:00: Resumed after step 3,400; trained for 1h 12m;"
        " 2026-11-21 07:36:00: Lost its capacity and waits for new; waited for capacity for 1h 01m"
    )
    assert second.startswith("waited for capacity for 7m 12s; started, and fetched its data for 15m;")
    assert second.endswith("trained for 2h 36m; saved its results for 6m")


def test_the_newest_phase_of_a_run_at_work_lasts_until_now() -> None:
    (lane,) = pictures(page_of(run_at_work()))
    assert lane.endswith("trained for 5h 36m")


def test_an_attempt_without_an_end_in_the_timeline_ends_where_the_next_one_begins() -> None:
    story = interrupted_run()
    timeline = [each for each in story.timeline if each.kind is not TimelineKind.ATTEMPT_ENDED]
    assert pictures(page_of(replace(story, timeline=timeline)))[0].endswith("waited for capacity for 1h 01m")
    alone = [each for each in timeline if each.attempt == 1]
    assert pictures(page_of(replace(story, timeline=alone)))[0].endswith("waited for capacity for 4h 06m")


def test_a_run_whose_events_cannot_be_read_has_a_page() -> None:
    story = replace(interrupted_run(), timeline=[], attempts=[], metrics=None, notifications=[])
    assert "Timeline" not in words(page_of(story))
    assert RUN in words(page_of(story))


def test_the_notification_is_shown_as_it_was_sent_and_one_that_was_not_says_so() -> None:
    story = interrupted_run()
    text = Parsed(page_of(story)).text
    assert f"Subject: {RUN} completed: saved 45%\n\n{BODY}" in text
    assert "Sent 2026-11-21 11:42:02 UTC" in text
    dead = with_changes(story.notifications[-1], state=NotificationState.DEAD, problem="the topic is gone")
    assert "Could not be sent: the topic is gone" in words(page_of(replace(story, notifications=[dead])))
    waiting = with_changes(story.notifications[-1], state=NotificationState.PENDING, sent_at=None)
    assert "Not sent yet" in words(page_of(replace(story, notifications=[waiting])))


def test_without_matplotlib_the_metrics_are_a_table_with_small_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spotkeep_cli.rendering.run_page.can_draw", lambda: False)
    found = words(page_of(interrupted_run()))
    assert "Larger curves need matplotlib" in found
    assert "[planner]" in found
    assert "▁" in found


def test_a_failure_comes_first_with_its_lines() -> None:
    text = Parsed(page_of(failed_run("Traceback:\n  File 'train.py'"))).text
    assert text.index("Traceback:\n  File 'train.py'") < text.index("Timeline")


def test_names_and_texts_of_any_origin_stay_text() -> None:
    def full(text: str) -> str:
        story = interrupted_run()
        run = with_changes(story.run, owner=text[:60], failure_reason=text, log_warning=text)
        sent = with_changes(story.notifications[0], subject=text, body=text)
        own = Metric.model_validate({**metric("loss").model_dump(), "goal": "minimize"})
        return page_of(
            replace(
                story,
                run=run,
                timeline=[*story.timeline, entry(8.9, 2, TimelineKind.STUCK, text)],
                metrics=ScriptMetrics(metrics={text[:100]: own}),
                notifications=[sent, sent],
            ),
            footer=text,
        )

    assert_harmless(full(HOSTILE), plain=full("a plain text"))


def test_everybody_can_read_it(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    file.write_text(page_of(interrupted_run(), footer=f"spotkeep describe {RUN} --html"), encoding="utf-8")
    for seen in browser.check(file, name="run"):
        assert seen.requests == []
        assert f"{RUN} completed" in seen.text
        assert "learning_rate" in seen.text


@pytest.mark.long
def test_a_failed_run_has_a_page_that_everybody_can_read(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(page_of(failed_run("no module\n" * 3)), encoding="utf-8")
    browser.check(tmp_path / "run.html", name="run-failed")


@pytest.mark.long
def test_forty_metrics_and_forty_attempts_fit(browser: Browser, tmp_path: Path) -> None:
    story = interrupted_run()
    metrics = {f"metric/{number}" + "x" * (number % 3 * 40): METRICS.metrics["loss"] for number in range(40)}
    timeline = [
        with_changes(each, attempt=each.attempt + 2 * number, at=each.at + timedelta(hours=9 * number))
        for number in range(20)
        for each in story.timeline
    ]
    file = tmp_path / "run.html"
    file.write_text(
        page_of(replace(story, metrics=ScriptMetrics(metrics=metrics), timeline=timeline)), encoding="utf-8"
    )
    with browser.open_page(file, name="run-of-forty") as opened:
        seen = opened.look(width=390)
    assert (seen.axe, seen.too_wide, seen.scroll_width) == ([], [], 390)
