"""`--interrupt-at` understands a share, a step and a time, and says so when it does not understand."""

from __future__ import annotations

from random import Random

import pytest

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rehearsal.interruption_points import in_the_middle_of_copies, read_interruptions


def test_a_share_a_step_and_a_time() -> None:
    share, step, time = read_interruptions(["40%", "120", "1.5s"], notice=False)
    assert share.at_fraction == pytest.approx(0.4)
    assert step.at_step == 120
    assert time.at_seconds == pytest.approx(1.5)
    assert not any(point.notice for point in (share, step, time))


@pytest.mark.parametrize("point", ["", "forty", "0%", "100%", "-1", "12.5", "0", "40 %%"])
def test_anything_else_is_refused_with_an_example(point: str) -> None:
    with pytest.raises(UsageError, match="takes a share of the steps") as refused:
        read_interruptions([point], notice=True)
    assert "--interrupt-at 25%" in refused.value.hint


def test_of_several_hosts_the_losses_without_notice_cut_copies_off_at_drawn_places() -> None:
    plan, chance = read_interruptions((), notice=True), Random(1)  # noqa: S311
    assert in_the_middle_of_copies(plan, hosts=1, chance=chance) == plan
    drawn = [in_the_middle_of_copies(plan, hosts=2, chance=chance) for _ in range(40)]
    assert {noticed.after_uploads for noticed, _ in drawn} == {0}
    assert {sudden.after_uploads for _, sudden in drawn} == {1, 2, 3, 4}
