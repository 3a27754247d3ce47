"""The rules of nodes: who may take the lease, which nodes train together, and how their ends are one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_agent.nodes.decisions import (
    BUSY_SECONDS,
    DONE,
    FAILED,
    INTERRUPTED,
    REFUSED_SECONDS,
    REJOIN_SECONDS,
    SETTLE_SECONDS,
    SLOWEST_DISK_BYTES,
    STALL_SECONDS,
    Bringing,
    Gathering,
    NodeEnd,
    SeenLease,
    end_of_world,
    grows,
    has_stalled,
    heard_again,
    may_take,
    next_world,
    seen_again,
    taken,
    tried,
)
from spotkeep_fleet.record import NODES_LEASE_SECONDS, Lease, Node, new_record

NAMES = [f"i-{number}" for number in range(5)]
IDS = st.lists(st.sampled_from(NAMES), unique=True, max_size=5).map(tuple)
SECONDS = st.floats(0, 2000)
LEASES = st.none() | st.builds(
    Lease, st.sampled_from(NAMES), st.integers(1, 9), st.floats(0, 2**32), address=st.just("10.0.0.1")
)


@st.composite
def gatherings(draw: st.DrawFn) -> Gathering:
    at_least = draw(st.integers(1, 4))
    ready = draw(IDS)
    return Gathering(
        leader="i-0",
        at_least=at_least,
        at_most=at_least + draw(st.integers(0, 2)),
        ready=ready,
        busy=tuple(each for each in draw(IDS) if each not in ready),
        former=draw(IDS),
        arrived_at=draw(SECONDS),
        since=draw(SECONDS),
    )


@given(gatherings(), st.floats(0, 5000))
def test_a_world_has_the_leader_first_and_as_many_ready_nodes_as_a_run_may_have(found: Gathering, now: float) -> None:
    world = next_world(found, now=now)
    if world is not None:
        assert world[0] == found.leader
        assert len(set(world)) == len(world)
        assert {*world} <= {*found.ready}
        assert found.at_least <= len(world) <= found.at_most
        assert len(world) == min(found.at_most, len(found.ready))


@given(gatherings(), SECONDS, SECONDS)
def test_a_leader_that_may_begin_waits_for_a_limited_time(found: Gathering, now: float, later: float) -> None:
    """And once it may begin, it still may later, unless another node comes or goes."""
    if next_world(found, now=now) is not None:
        assert next_world(found, now=now + later) is not None
    if found.leader in found.ready and len(found.ready) >= found.at_least:
        longest = max(found.since, found.arrived_at) + max(BUSY_SECONDS, SETTLE_SECONDS, REJOIN_SECONDS) + 1
        assert next_world(found, now=longest) is not None
    else:
        assert next_world(found, now=now + 1e9) is None


FIRST = Gathering("i-0", 1, 3, ready=("i-0", "i-1"), busy=(), former=(), arrived_at=10.0, since=0.0)


def test_a_first_world_waits_until_no_node_has_come_for_half_a_minute() -> None:
    assert next_world(FIRST, now=39.9) is None
    assert next_world(FIRST, now=40.0) == ("i-0", "i-1")
    assert next_world(replace(FIRST, ready=("i-0", "i-2", "i-1")), now=10.0) == ("i-0", "i-2", "i-1")


def test_after_a_loss_the_nodes_that_are_left_begin_at_once_in_the_order_of_their_ranks() -> None:
    left = replace(FIRST, ready=("i-0", "i-1", "i-2"), at_most=4, former=("i-2", "i-1", "i-0"))
    assert next_world(left, now=10.0) == ("i-0", "i-2", "i-1")


def test_a_new_leader_waits_some_seconds_for_nodes_of_the_world_before() -> None:
    found = replace(FIRST, former=("i-0", "i-1", "i-2"), arrived_at=100.0, since=100.0)
    assert next_world(found, now=114.0) is None
    assert next_world(found, now=115.0) == ("i-0", "i-1")


def test_a_node_that_still_sends_its_files_is_waited_for() -> None:
    found = replace(FIRST, former=("i-0", "i-1", "i-2"), busy=("i-2",), since=100.0)
    assert next_world(found, now=500.0) is None
    assert next_world(replace(found, ready=(*found.ready, "i-3")), now=100.0) == ("i-0", "i-1", "i-3")


@given(st.lists(st.tuples(LEASES, st.floats(0.01, 20)), min_size=1, max_size=12))
def test_a_lease_is_taken_only_after_it_was_unchanged_for_its_time_whatever_it_says(
    seen: list[tuple[Lease | None, float]],
) -> None:
    found: SeenLease | None = None
    now, changed_at = 0.0, 0.0
    before: Lease | str | None = "none yet"
    for lease, seconds in seen:
        now += seconds
        if lease != before:
            changed_at, before = now, lease
        found = seen_again(found, lease, now=now)
        expected = lease is None or lease.holder == "i-9" or now - changed_at >= NODES_LEASE_SECONDS
        assert may_take(found, instance="i-9", gone=False, now=now) is expected
        assert may_take(found, instance="i-9", gone=True, now=now)


TRIES = st.lists(st.tuples(st.sampled_from(["renewed", "refused", "in vain"]), st.floats(0.01, 20)), max_size=20)


@given(TRIES)
def test_a_lease_is_taken_sooner_only_where_each_try_of_some_time_was_refused_and_it_was_not_renewed(
    tries: list[tuple[str, float]],
) -> None:
    lease = Lease("i-0", 1, 0.0, address="10.0.0.1")
    seen = seen_again(None, lease, now=0.0)
    now, renewed_at, refused_since = 0.0, 0.0, None
    for what, seconds in tries:
        now += seconds
        if what == "renewed":
            lease, renewed_at, refused_since = replace(lease, expires_at=now), now, None
        seen = seen_again(seen, lease, now=now)
        if what != "renewed":
            seen = tried(seen, refused=what == "refused", now=now)
            refused_since = None if what == "in vain" else now if refused_since is None else refused_since
        expected = now - renewed_at >= NODES_LEASE_SECONDS or (
            refused_since is not None and now - refused_since >= REFUSED_SECONDS
        )
        assert may_take(seen, instance="i-9", gone=False, now=now) is expected


LOOK_SECONDS, SOON_SECONDS, RENEWED_SECONDS = 5.0, 0.5, 10.0


@given(
    ends_at=st.none() | st.floats(20, 60),
    is_slow=st.lists(st.floats(0, NODES_LEASE_SECONDS - RENEWED_SECONDS - 0.1), min_size=30, max_size=30),
    cut_off=st.sets(st.sampled_from(["i-1", "i-2"])),
    looks=st.permutations(["i-1", "i-2"]),
    machine_is_there=st.booleans(),
)
def test_a_slow_leader_stays_and_one_that_has_ended_is_replaced_once(
    ends_at: float | None, is_slow: list[float], cut_off: set[str], looks: list[str], machine_is_there: bool
) -> None:
    """The time is simulated. The leader renews late, and some nodes cannot reach it. It may end with its process, of
    which its machine, if it is still there, tells the nodes that had a connection."""
    record = taken(new_record(run="r"), instance="i-0", address="10.0.0.0", expires_at=0.0)
    seen: dict[str, SeenLease] = {}
    look_at = dict.fromkeys(looks, 0.0)
    renew_at, leaders = RENEWED_SECONDS, [("i-0", 0.0)]
    late = iter(is_slow)
    now = 0.0
    while now < 150.0:
        now = round(now + 0.1, 1)
        leader = leaders[-1][0]
        has_ended = leader == "i-0" and ends_at is not None and now >= ends_at
        if now >= renew_at and not has_ended and record.lease is not None:
            record = replace(record, lease=replace(record.lease, expires_at=now))
            renew_at = now + RENEWED_SECONDS + (next(late, 0.0) if leader == "i-0" else 0.0)
        for name in looks:
            if name == leader or now < look_at[name]:
                continue
            mine = seen_again(seen.get(name), record.lease, now=now)
            refused = has_ended and machine_is_there and name not in cut_off
            seen[name] = mine = tried(mine, refused=refused, now=now)
            look_at[name] = now + (SOON_SECONDS if refused else LOOK_SECONDS)
            if may_take(mine, instance=name, gone=False, now=now):
                record = taken(record, instance=name, address=f"10.0.0.{name[-1]}", expires_at=now)
                leaders.append((name, now))
                leader, has_ended, renew_at = name, False, now + RENEWED_SECONDS
    if ends_at is None:
        assert leaders == [("i-0", 0.0)]
        return
    assert len(leaders) == 2
    knows = machine_is_there and cut_off != {"i-1", "i-2"}
    longest = LOOK_SECONDS + (REFUSED_SECONDS + SOON_SECONDS if knows else NODES_LEASE_SECONDS + LOOK_SECONDS)
    assert leaders[1][1] - ends_at <= longest + 0.5


def test_a_taken_lease_has_a_higher_fence_and_no_node_of_the_leader_before() -> None:
    record = replace(
        new_record(run="r"), fence=7, lease=Lease("i-0", 7, 1.0), nodes=(Node("i-0", "a"),), world=("i-0", "i-1")
    )
    following = taken(record, instance="i-1", address="10.0.0.9", expires_at=5.0)
    assert following.lease == Lease("i-1", 8, 5.0, address="10.0.0.9")
    assert (following.fence, following.nodes, following.world) == (8, (), ("i-0", "i-1"))


@given(world=IDS, ready=IDS, at_most=st.integers(1, 5), stepped=st.booleans(), since=st.floats(0, 60))
def test_a_world_grows_only_after_its_first_step_and_when_it_becomes_larger(
    world: tuple[str, ...], ready: tuple[str, ...], at_most: int, stepped: bool, since: float
) -> None:
    does = grows(world=world, ready=ready, at_most=at_most, has_stepped=stepped, arrived_at=0.0, now=since)
    after = min(at_most, len({*world, *ready}))
    if does:
        assert stepped
        assert after > len(world)
        assert since >= SETTLE_SECONDS or after == at_most
    if stepped and after > len(world) and since >= SETTLE_SECONDS:
        assert does


ENDS = st.builds(NodeEnd, st.sampled_from([DONE, INTERRUPTED, FAILED]), st.integers(0, 255), st.text(max_size=5))


@given(ENDS, st.dictionaries(st.sampled_from(["10.0.0.2", "10.0.0.3"]), ENDS), st.booleans())
def test_a_world_fails_with_the_first_known_failure_unless_a_node_was_lost(
    own: NodeEnd, others: dict[str, NodeEnd], lost: bool
) -> None:
    found = end_of_world(own, others, lost=["10.0.0.4"] if lost else [])
    if lost:
        assert found.kind == (DONE if own.kind == DONE else INTERRUPTED)
    elif own.kind == FAILED:
        assert found == own
    elif any(each.kind == FAILED for each in others.values()):
        assert found.kind == FAILED
        assert found.failure.startswith("on 10.0.0.")
    else:
        assert found == own


def test_the_reason_of_another_node_names_it() -> None:
    found = end_of_world(NodeEnd(INTERRUPTED, 75), {"10.0.0.2": NodeEnd(FAILED, 3, "ValueError: no")}, lost=[])
    assert found == NodeEnd(FAILED, 3, "on 10.0.0.2: ValueError: no")


@pytest.mark.parametrize("ready", [("i-1",), ()])
def test_no_world_without_the_leader(ready: tuple[str, ...]) -> None:
    assert next_world(replace(FIRST, ready=ready), now=1e9) is None


REPORTS = st.lists(st.tuples(st.floats(0, 2 * STALL_SECONDS), st.integers(0, 2**40)), max_size=20)


@given(REPORTS, st.floats(0, 2 * STALL_SECONDS))
def test_a_node_that_brings_more_in_time_is_waited_for_and_any_other_is_gone(
    reports: list[tuple[float, int]], silence: float
) -> None:
    """A simulated clock: the node says again and again how much it has brought, and at last it hangs."""
    now, most = 0.0, 0
    bringing = Bringing(moved_bytes=0, since=now)
    for seconds, moved_bytes in reports:
        most = max(most, moved_bytes)
        grows_in_time = moved_bytes > bringing.moved_bytes
        before, now = bringing, now + seconds
        bringing = heard_again(bringing, moved_bytes, now=now)
        assert bringing.moved_bytes >= before.moved_bytes
        assert bringing.since == (now if grows_in_time else before.since)
        if grows_in_time:
            assert not has_stalled(bringing, now=now + STALL_SECONDS)
    # Signs of life alone keep no node.
    for _ in range(3):
        bringing = heard_again(bringing, bringing.moved_bytes, now=now + silence)
    allowed = STALL_SECONDS + bringing.moved_bytes / SLOWEST_DISK_BYTES
    assert has_stalled(bringing, now=now + silence) == (now + silence - bringing.since > allowed)
    assert has_stalled(bringing, now=now + STALL_SECONDS + most / SLOWEST_DISK_BYTES + 1)
