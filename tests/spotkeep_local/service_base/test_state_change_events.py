import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.capacity import SHUFFLE_SECONDS, EventFaults
from spotkeep_local.service_base.state_change_events import StateChangeEvents, delays


def planned(faults: EventFaults, count: int = 1) -> list[list[float]]:
    chance = random.Random(faults.seed)  # noqa: S311
    return [list(delays(faults, chance)) for _ in range(count)]


def test_without_faults_an_event_goes_out_once_and_at_once():
    assert planned(EventFaults()) == [[0.0]]


def test_duplicate_late_and_lost():
    assert planned(EventFaults(duplicate=True, delay_seconds=3)) == [[3.0, 3.0]]
    assert planned(EventFaults(drop=1.0), count=50) == [[]] * 50
    some = planned(EventFaults(drop=0.5), count=50)
    assert [] in some
    assert [0.0] in some


@given(st.integers())
def test_shuffled_events_are_late_within_bounds_and_the_same_again_with_the_same_seed(seed):
    faults = EventFaults(shuffle=True, duplicate=True, seed=seed)
    late = planned(faults, count=10)
    assert late == planned(faults, count=10)
    assert all(0 <= seconds <= SHUFFLE_SECONDS for copies in late for seconds in copies)


class Bus:
    def __init__(self) -> None:
        self.events: list[int] = []
        self.changed = threading.Condition()

    def publish(self, detail, detail_type, resources):
        with self.changed:
            self.events.append(detail["number"])
            self.changed.notify_all()
        if detail["number"] == 13:
            raise ConnectionError("no luck")

    def wait_for(self, count: int) -> list[int]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.events) >= count, timeout=30)
            return self.events


@pytest.fixture
def bus():
    return Bus()


@pytest.fixture
def events(bus):
    events = StateChangeEvents(bus.publish)
    events.start()
    yield events
    events.stop()


def test_events_keep_their_order(bus, events):
    for number in range(50):
        events.send({"number": number}, "type", [])
    assert bus.wait_for(50) == list(range(50))


def test_shuffled_events_all_arrive_out_of_order(bus, events):
    events.set_faults(EventFaults(shuffle=True, seed=1))
    for number in range(100, 120):
        events.send({"number": number}, "type", [])
    arrived = bus.wait_for(20)
    assert sorted(arrived) == list(range(100, 120))
    assert arrived != sorted(arrived)


def test_an_event_that_cannot_be_published_does_not_silence_the_next(bus, events):
    for number in (13, 14):
        events.send({"number": number}, "type", [])
    assert bus.wait_for(2) == [13, 14]


def test_stop_drops_what_is_not_due(bus, events):
    events.set_faults(EventFaults(delay_seconds=3600))
    events.send({"number": 1}, "type", [])
    events.stop()
    assert bus.events == []
