"""The worlds that the volume protocol can come to, and what must hold in all of them (I1, I3, I5, I6).

Exhaustive within a budget of mischief, and far beyond it along paths that Hypothesis chooses. From every state of
record and volumes that is met, one more instance must come to train, in either zone, on all that was ever durable; and
after the controller's next pass nothing but its volume is left.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_agent.volume import protocol

from .protocol_model import Budget, World, boot, check, complete, new_world, next_worlds, world_with_volume

ZONES = ("a", "b")


@pytest.fixture(autouse=True)
def _short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rounds of the same waiting: what follows the patience is the same."""
    for name in ("LONGEST_WAIT_SECONDS", "MISSING_SECONDS", "FORCE_SECONDS", "REFUSED_SECONDS"):
        monkeypatch.setattr(protocol, name, 1.0)


class Explorer:
    """Checks worlds, and remembers which were completed."""

    def __init__(self) -> None:
        self._completed: set[Any] = set()

    def check(self, world: World) -> None:
        check(world)
        key = (world.disks, world.snaps, world.record, world.durable)
        if key in self._completed:
            return
        for zone in ZONES:
            last = complete(world, zone)
            assert last.record.volume is not None
            assert [disk.id for disk in last.disks] == [last.record.volume.id], "an orphaned volume (I6)"
            assert not last.snaps, "a snapshot is orphaned (I6)"
            assert last.disks[0].content == world.durable, "what was durable is lost"
        self._completed.add(key)


EXPLORER = Explorer()
"""Of the protocol as it is: most worlds that one kind of mischief leads to are met with another kind, too."""


def explore(start: World, *, most: int | None = None, explorer: Explorer = EXPLORER) -> int:
    """Visit every world that can be reached, the near ones first. Gives how many there were."""
    seen: dict[World, tuple[str, World] | None] = {start: None}
    waiting = deque([start])
    while waiting and (most is None or len(seen) < most):
        world = waiting.popleft()
        try:
            explorer.check(world)
            for name, after in next_worlds(world):
                if after not in seen:
                    seen[after] = (name, world)
                    waiting.append(after)
        except AssertionError as error:
            path, at = [], seen[world]
            while at is not None:
                path.append(at[0])
                at = seen[at[1]]
            raise AssertionError(f"{error}\nafter\n" + "\n".join(reversed(path))) from error
    return len(seen)


FIRST = pytest.param(new_world, "a", id="first instance")
SAME_ZONE = pytest.param(world_with_volume, "a", id="volume in this zone")
OTHER_ZONE = pytest.param(world_with_volume, "b", id="volume in another zone")


@pytest.mark.long
@pytest.mark.parametrize(("start", "zone"), [FIRST, SAME_ZONE, OTHER_ZONE])
@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(machine_losses=1), id="the machine is lost"),
        pytest.param(Budget(agent_crashes=1), id="the agent crashes and is started again"),
        pytest.param(Budget(machine_losses=1, stuck_detaches=1), id="the volume sticks to a lost machine"),
        pytest.param(Budget(lost_answers=1), id="an answer is lost"),
        pytest.param(Budget(throttles=2), id="throttles"),
        pytest.param(Budget(stale_listings=2), id="listings are late"),
        pytest.param(Budget(failures=2), id="volumes and snapshots fail"),
        pytest.param(Budget(notices=1, agent_crashes=1), id="a notice, and a crash in the goodbye"),
    ],
)
def test_one_instance_after_the_other(start: Callable[..., World], zone: str, budget: Budget) -> None:
    assert explore(boot(start(ZONES, budget), zone)) > 5


@pytest.mark.long
@pytest.mark.parametrize(("start", "zone"), [SAME_ZONE, OTHER_ZONE])
@pytest.mark.parametrize(
    "budget",
    [
        pytest.param(Budget(boots=1, expiries=1), id="the lease expires"),
        pytest.param(Budget(boots=1, machine_losses=1), id="the machine is lost"),
        pytest.param(Budget(boots=1, machine_losses=2), id="both machines are lost"),
    ],
)
def test_a_second_instance_races_the_first(start: Callable[..., World], zone: str, budget: Budget) -> None:
    # All of them are 46,012 and 153,215 where the lease expires: `make torture-volume` visits them.
    most = None if os.environ.get("SPOTKEEP_EXPLORE") == "all" else 1_000
    assert explore(boot(start(ZONES, budget), zone), most=most) > 500


EVERYTHING = Budget(
    boots=3,
    agent_crashes=2,
    machine_losses=2,
    notices=1,
    expiries=2,
    lost_answers=2,
    throttles=2,
    stale_listings=2,
    failures=1,
    stuck_detaches=1,
    writes=3,
)


def walk(start: World, choices: list[int]) -> World:
    """Take one path."""
    world = start
    for choice in choices:
        steps = list(next_worlds(world))
        if not steps:
            break
        world = steps[choice % len(steps)][1]
        check(world)
    return world


@pytest.mark.long
@settings(max_examples=150)
@given(volume=st.booleans(), zone=st.sampled_from(ZONES), choices=st.lists(st.integers(0, 5039), max_size=150))
def test_everything_at_once(volume: bool, zone: str, choices: list[int]) -> None:
    start = (world_with_volume if volume else new_world)(ZONES, EVERYTHING)
    EXPLORER.check(walk(boot(start, zone), choices))


# The naive ways, which must be seen to fail: a model that cannot tell them apart proves nothing.


def fails(start: World) -> bool:
    """Whether some world breaks a promise."""
    try:
        explore(start, explorer=Explorer())
    except AssertionError:
        return True
    return False


def test_without_waiting_for_the_other_instance_data_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "_quiet", lambda s, fact: None)
    assert fails(boot(world_with_volume(ZONES, Budget(boots=1, expiries=1)), "a"))


def test_without_the_lease_being_ours_after_attaching_two_instances_train(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = protocol._attach
    monkeypatch.setattr(
        protocol,
        "_attach",
        lambda s, record, fact, now: attach(replace(s, confirmed=s.confirmed | {fact.id}), record, fact, now),
    )
    assert fails(boot(world_with_volume(ZONES, Budget(boots=1, expiries=1)), "a"))


def test_without_its_operation_in_the_record_a_volume_is_orphaned(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a random token would do: a crash between making and recording makes a second one (trap 12)."""
    from . import protocol_model

    create = protocol_model._create_volume
    monkeypatch.setattr(
        protocol_model,
        "_create_volume",
        lambda world, action: create(world, replace(action, operation=1000 + world.made)),
    )
    assert fails(boot(new_world(ZONES, Budget(machine_losses=1)), "a"))


def test_giving_the_old_volume_up_before_its_successor_is_current_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old volume deleted before its snapshot is known good (trap 6)."""
    from spotkeep_fleet.record import VOLUME, Retired

    begun = protocol._begun

    def naive(record: Any, **how: Any) -> Any:
        after = begun(record, **how)
        old = () if record.volume is None else (Retired(VOLUME, record.volume.id),)
        return replace(after, volume=None, retired=(*after.retired, *old))

    monkeypatch.setattr(protocol, "_begun", naive)
    assert fails(boot(world_with_volume(ZONES, Budget(failures=1)), "b"))
