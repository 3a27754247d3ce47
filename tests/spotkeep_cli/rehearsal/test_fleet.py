"""The scenario of a fleet goes through whatever its run does: it may end before its capacity was taken twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.rehearsal.fleet import _taken_twice
from spotkeep_cli.rehearsal.fleet_verdict import ResourcesOfRun
from spotkeep_jobs.record.states import RunState

NOTHING = ResourcesOfRun(fleets={}, instances={}, volumes={}, snapshots={})


class FakeFleet:
    """A fleet whose run ends when so many instances have trained, or a share of its steps has come."""

    run = "digits"

    def __init__(self, *, ends_in: int, before_share: bool, steps: bool = True) -> None:
        self.ends_in, self.before_share, self.reports_steps = ends_in, before_share, steps
        self.number, self.taken = 1, list[bool]()

    @property
    def ended(self) -> bool:
        return self.number > self.ends_in or (self.number == self.ends_in and self.before_share)

    def trains(self, *, number: int) -> bool:
        return self.number >= number

    def share(self) -> float:
        return 0.0 if self.number == self.ends_in and self.before_share else 1.0

    def take(self, *, notice: bool) -> None:
        self.taken.append(notice)
        self.number += 1

    def _known(self, number: int) -> int:
        assert number <= min(self.number, self.ends_in), "asks for an instance that never came"
        return number

    def id(self, number: int) -> str:
        return f"i-{self._known(number)}"

    def zone(self, number: int) -> str:
        return f"zone-{self._known(number)}"

    def resumed(self, number: int) -> int | None:
        return self._known(number) if self.reports_steps else None

    def steps(self) -> tuple[int, int | None]:
        return 0, None

    def resources(self) -> ResourcesOfRun:
        return NOTHING

    def standing(self, run: object) -> str:
        return str(run)


class FakeRehearsal:
    """Follows a run as the engine does, and notes what each stage came to."""

    def __init__(self, fleet: FakeFleet) -> None:
        self._fleet, self.outcomes = fleet, list[str]()
        self.deployment = SimpleNamespace(launch=lambda run: None)
        self.view = SimpleNamespace(stage=self._stage, note=lambda text: None, progress=lambda **_: None)

    @contextmanager
    def _stage(self, stage: object) -> Any:
        del stage
        outcome: list[str] = []
        yield outcome
        self.outcomes.append("".join(outcome))

    def follow(self, name: str, *, until: Callable[[], object], meanwhile: Any, standing: Any) -> dict[str, Any]:
        del standing
        ended = self._fleet.ended
        assert ended or until(), "else it would wait for ever"
        run = SimpleNamespace(state=RunState.COMPLETED if ended else RunState.TRAINING)
        meanwhile({name: run})
        return {name: run}


@pytest.mark.parametrize(
    ("fleet", "taken", "outcomes"),
    [
        (FakeFleet(ends_in=0, before_share=False), [], ["ended"]),
        (FakeFleet(ends_in=1, before_share=True), [], ["ended"]),
        (FakeFleet(ends_in=1, before_share=False), [True], ["digits trains in zone-1", "ended"]),
        (FakeFleet(ends_in=2, before_share=False), [True, False], ["digits trains in zone-1", "goes on", "ended"]),
        (FakeFleet(ends_in=3, before_share=False), [True, False], ["digits trains in zone-1", "goes on", "goes on"]),
        (FakeFleet(ends_in=3, before_share=False, steps=False), [True, False], ["digits trains", "zone-2", "zone-3"]),
    ],
)
def test_a_run_that_ends_early_is_taken_no_further(fleet: FakeFleet, taken: list[bool], outcomes: list[str]) -> None:
    """As one whose script ended with 0 on the notice, or has failed."""
    rehearsal: Any = FakeRehearsal(fleet)
    assert _taken_twice(rehearsal, fleet) is NOTHING  # type: ignore[arg-type]
    assert fleet.taken == taken
    assert len(rehearsal.outcomes) == len(outcomes)
    assert all(said in found for said, found in zip(outcomes, rehearsal.outcomes, strict=True)), rehearsal.outcomes
