"""A script that reports no steps loses its capacity at a share of what it saves, or else of its time."""

from __future__ import annotations

from dataclasses import replace

from spotkeep_cli.rehearsal.evidence import ProcessEnding, RehearsedProcess, RunEvidence
from spotkeep_cli.rehearsal.interruption_points import read_interruptions
from spotkeep_cli.rehearsal.spot import without_steps

DEFAULT = read_interruptions((), notice=True)


def left_alone(*, uploads: int = 0, last_step: int | None = None) -> RunEvidence:
    life = RehearsedProcess(
        started_at=100.0,
        ended_at=140.0,
        ending=ProcessEnding.EXITED,
        resumed_from_step=None,
        last_step=last_step,
        saved_steps=(),
        durable_step=0,
        uploads=uploads,
    )
    return RunEvidence(run="plain-1", state="COMPLETED", failure=None, attempts=1, lives=(life,))


def test_a_share_is_one_of_the_checkpoint_files() -> None:
    moved = without_steps(DEFAULT, run=left_alone(uploads=12), reference=left_alone(uploads=12))
    assert [(each.at_uploads, each.at_fraction, each.notice) for each in moved] == [(4, None, True), (4, None, False)]


def test_with_few_files_each_capacity_gets_to_save_one() -> None:
    moved = without_steps(DEFAULT, run=left_alone(uploads=1), reference=left_alone(uploads=1))
    assert [each.at_uploads for each in moved] == [1, 1]


def test_without_any_file_it_is_one_of_the_time() -> None:
    moved = without_steps(DEFAULT, run=left_alone(), reference=left_alone())
    assert [each.at_seconds for each in moved] == [14.0, 38.0], "the second comes after the notice of the first is over"


def test_what_was_carried_out_or_cannot_be_is_left_as_it_is() -> None:
    plain = left_alone(uploads=12)
    assert without_steps(DEFAULT, run=left_alone(last_step=9), reference=plain) == ()
    assert without_steps(DEFAULT, run=replace(plain, state="FAILED"), reference=plain) == ()
    assert without_steps(read_interruptions(("30s",), notice=True), run=plain, reference=plain) == ()
    assert without_steps(read_interruptions(("120",), notice=True), run=plain, reference=plain) == ()
