"""Races that a story found, or that are too rare to wait for, each made on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spotkeep_jobs.record.states import RunState
from tests.models.faults import Process
from tests.torture.control.story import Circumstances, ControlPlaneStory


@pytest.fixture
def story() -> Iterator[ControlPlaneStory]:
    story = ControlPlaneStory()
    yield story
    story.teardown()


def held_before_create(story: ControlPlaneStory) -> Process:
    """The last process that began, brought to where it is about to create a job."""
    process = story.processes[-1]
    while process.held_before != "CreateTrainingJob":
        assert not process.ended
        process.go_on(1)
    return process


def launch(story: ControlPlaneStory, name: str, *, hold: int | None = None) -> None:
    story.a_user_launches(name=name, how=Circumstances(hold=hold))


def test_i1_a_refusal_ends_no_run_that_another_launcher_may_still_create_a_job_for(story: ControlPlaneStory) -> None:
    """Two calls with one token: the one is refused for the quota, the other is about to be accepted."""
    launch(story, "shared", hold=1)
    slow = held_before_create(story)
    story.the_quota_changes(used_up=True)
    launch(story, "shared")
    story.the_quota_changes(used_up=False)
    launch(story, "sharing")
    slow.go_on()
    story.i1_i4_i6_i8_hold()
    assert story.service.jobs["shared-1"].live


def test_i1_the_first_launcher_is_refused_while_a_second_is_about_to_be_accepted(story: ControlPlaneStory) -> None:
    launch(story, "shared", hold=1)
    first = held_before_create(story)
    launch(story, "shared", hold=1)
    second = held_before_create(story)
    story.the_quota_changes(used_up=True)
    first.go_on()
    story.the_quota_changes(used_up=False)
    launch(story, "sharing")
    second.go_on()
    story.i1_i4_i6_i8_hold()


def test_i1_a_stop_waits_for_a_pass_that_is_completing_the_launch(story: ControlPlaneStory) -> None:
    launch(story, "shared", hold=1)
    held_before_create(story).die()
    story.time_passes(seconds=301)
    story.a_pass_begins(how=Circumstances(hold=1))
    held = held_before_create(story)
    story.a_user_asks(name="shared", action="stop")
    launch(story, "sharing")
    held.go_on()
    story.i1_i4_i6_i8_hold()
    story.all_is_quiet_and_a_pass_runs(die=False)
    run_item = story.record.runs.get("shared")
    assert run_item is not None
    assert run_item.state in (RunState.STOPPING, RunState.STOPPED)


def test_a_refused_launch_that_no_other_process_is_at_ends_at_once(story: ControlPlaneStory) -> None:
    story.the_quota_changes(used_up=True)
    launch(story, "shared")
    run_item = story.record.runs.get("shared")
    assert run_item is not None
    assert run_item.state is RunState.FAILED


def test_a_launch_called_again_after_its_launcher_died_creates_the_job_at_once(story: ControlPlaneStory) -> None:
    launch(story, "shared", hold=1)
    held_before_create(story).die()
    launch(story, "shared")
    assert story.service.jobs["shared-1"].live
