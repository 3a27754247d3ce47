"""The lease of a run with nodes: of any nodes that look, take, write and give back, one at a time writes."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_agent.aws.fleet_records import RecordChangedError
from spotkeep_agent.errors import AwsUnavailableError, LeaseLostError
from spotkeep_agent.nodes.connections import NodeNames
from spotkeep_agent.nodes.lease import NodesLease
from spotkeep_fleet.record import MOST_BOOTED, FleetRecord, decode, encode, new_record

LONG_SECONDS = 1e6
NODES = ["i-0", "i-1", "i-2"]


class Records:
    """The item of the record, which is written over the version that was read, and the state of instances."""

    def __init__(self) -> None:
        self.text = encode(new_record(run="r"))
        self.gone: set[str] = set()
        self.ending_state = "terminated"
        self.loses_answers = False
        self.fences: list[int] = []

    def read(self) -> FleetRecord:
        return decode(self.text)

    def write(self, record: FleetRecord) -> None:
        if self.read().version != record.version:
            raise RecordChangedError
        self.text = encode(record.next_version())
        self.fences.append(record.fence)
        if self.loses_answers:
            raise AwsUnavailableError("no answer")

    def instances(self, ids: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        return tuple((each, self.ending_state if each in self.gone else "running") for each in ids)


def node(records: Records, instance: str, *, lease_seconds: float = LONG_SECONDS) -> NodesLease:
    names = NodeNames(run="r", attempt=1, launch="", instance=instance, address=f"10.0.0.{instance[-1]}")
    given_records: Any = records
    return NodesLease(names, records=given_records, ec2=given_records, lease_seconds=lease_seconds)


def takes(lease: NodesLease, *, is_silent: bool) -> bool:
    return lease.may_take(holder_is_silent=is_silent) and lease.take()


def note(record: FleetRecord) -> FleetRecord:
    return replace(record, problem="written")


def test_the_first_node_takes_it_with_its_address_and_another_one_finds_that() -> None:
    records = Records()
    first, second = node(records, "i-1"), node(records, "i-2")
    first.read()
    second.read()
    assert takes(first, is_silent=False)
    assert not takes(second, is_silent=False), "it has read an older version"
    found = second.read().lease
    assert found is not None
    assert (found.holder, found.fence, found.address) == ("i-1", 1, "10.0.0.1")
    assert not takes(second, is_silent=True)
    records.gone.add("i-1")
    assert not takes(second, is_silent=False), "EC2 is asked where the leader cannot be reached"
    assert takes(second, is_silent=True)
    with pytest.raises(LeaseLostError):
        first.write(note)
    assert second.write(note).fence == 2


def test_a_node_says_that_it_has_booted_without_the_lease_and_takes_nothing_from_its_holder() -> None:
    records = Records()
    first, second = node(records, "i-1"), node(records, "i-2")
    first.read()
    assert takes(first, is_silent=False)
    assert second.note_boot().booted == ("i-2",)
    assert second.note_boot().booted == ("i-2",)
    found = first.write(note)
    assert (found.booted, found.lease, found.fence) == (("i-2",), records.read().lease, 1)
    assert not second.is_held


def test_the_newest_nodes_that_have_booted_are_named() -> None:
    records = Records()
    for number in range(MOST_BOOTED + 3):
        node(records, f"i-{number}").note_boot()
    assert records.read().booted == tuple(f"i-{number}" for number in range(3, MOST_BOOTED + 3))


def test_each_world_has_a_higher_fence_and_a_lease_that_is_given_back_is_free() -> None:
    records = Records()
    first, second = node(records, "i-1"), node(records, "i-2")
    first.read()
    assert takes(first, is_silent=False)
    assert first.write(note, raises_fence=True).fence == first.fence == 2
    first.give_back(note)
    assert not first.is_held
    assert second.read().lease is None
    assert takes(second, is_silent=False)
    assert second.fence == 3


def test_an_agent_that_starts_again_on_the_same_instance_takes_its_lease_at_once() -> None:
    records = Records()
    first = node(records, "i-1")
    first.read()
    assert takes(first, is_silent=False)
    again = node(records, "i-1")
    again.read()
    assert takes(again, is_silent=True)
    with pytest.raises(LeaseLostError):
        first.write(note)


def test_a_lost_answer_is_found_out_by_the_next_write() -> None:
    records = Records()
    first = node(records, "i-1")
    first.read()
    assert takes(first, is_silent=False)
    records.loses_answers = True
    with pytest.raises(ConnectionError):
        first.write(note)
    records.loses_answers = False
    assert first.write(note).lease == first.read().lease


def test_a_renewed_lease_is_another_one_for_a_node_that_looks() -> None:
    """A thread renews it, so a node whose lease time is over takes none that is alive."""
    records = Records()
    first = node(records, "i-1", lease_seconds=3)
    first.read()
    assert takes(first, is_silent=False)
    before = records.read().lease
    second = node(records, "i-2")
    second.read()
    ends = time.monotonic() + 60
    while second.read().lease == before:
        assert time.monotonic() < ends, "it was never renewed"
        time.sleep(0.01)
    assert not takes(second, is_silent=True)
    first.give_back(note)


def test_a_leader_that_shuts_down_and_cannot_be_reached_leads_no_more() -> None:
    """Its disk may still be written. Under its fence nothing of that is read."""
    records = Records()
    first, second = node(records, "i-1"), node(records, "i-2")
    first.read()
    assert takes(first, is_silent=False)
    second.read()
    records.gone, records.ending_state = {"i-1"}, "shutting-down"
    assert not takes(second, is_silent=False)
    assert takes(second, is_silent=True)


def test_a_leader_that_renews_its_lease_lives_whatever_its_machine_refuses() -> None:
    records = Records()
    first, second = node(records, "i-1"), node(records, "i-2")
    first.read()
    assert takes(first, is_silent=False)
    second.read()
    second.note_try(refused=True)
    assert second.is_refused
    first.write(note)
    second.read()
    assert not second.is_refused
    assert not takes(second, is_silent=True)


def test_an_unreadable_record_and_none_end_the_lease() -> None:
    records = Records()
    first = node(records, "i-1")
    first.read()
    records.text = json.dumps({"format": 99})
    with pytest.raises(LeaseLostError, match="format is 99"):
        first.read()


@given(st.lists(st.tuples(st.sampled_from(["look", "take", "write", "begin", "back", "die"]), st.sampled_from(NODES))))
def test_of_any_nodes_the_one_with_the_highest_fence_alone_writes(acts: list[tuple[str, str]]) -> None:
    records = Records()
    nodes = {name: node(records, name) for name in NODES}
    for act, name in acts:
        lease = nodes[name]
        if act == "look":
            lease.read()
        elif act == "take":
            takes(lease, is_silent=True)
        elif act == "die":
            records.gone = {name}
        else:
            try:
                if act == "back":
                    lease.give_back(note)
                else:
                    lease.write(note, raises_fence=act == "begin")
            except LeaseLostError:
                found = records.read().lease
                assert found is None or (found.holder, found.fence) != (name, lease.fence)
            else:
                assert records.fences[-1] == max(records.fences)
    assert records.fences == sorted(records.fences)
    for lease in nodes.values():
        lease.forget()  # Its thread ends.
