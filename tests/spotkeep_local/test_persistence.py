"""The saver: what changed is written soon, what did not is not, and nothing is given up on."""

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from spotkeep_local.errors import PersistenceError
from spotkeep_local.persistence import StateSaver


class Memory:
    """A store that remembers what it was told, and fails or changes under the reader when asked to."""

    def __init__(self, **states: dict[str, Any] | None) -> None:
        self.states = states
        self.written: list[tuple[str, Any]] = []
        self.failures = 0
        self.disturbances = 0
        self.arrived = threading.Condition()

    def getters(self) -> Mapping[str, Callable[[], Mapping[str, Any] | None]]:
        return {name: partial(self._state, name) for name in self.states}

    def _state(self, name: str) -> Mapping[str, Any] | None:
        if self.disturbances:
            self.disturbances -= 1
            raise RuntimeError("dictionary changed size during iteration")
        state = self.states[name]
        return None if state is None else dict(state)

    def write(self, name: str, state: Mapping[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise PersistenceError("no space left on device")
        with self.arrived:
            self.written.append((name, dict(state)))
            self.arrived.notify_all()

    def wait_for(self, name: str, state: dict[str, Any]) -> bool:
        with self.arrived:
            return self.arrived.wait_for(lambda: (name, state) in self.written, timeout=20)


def saver_of(store: Memory) -> StateSaver:
    return StateSaver(store=store, delay_seconds=0.01)


def test_a_pass_writes_what_changed_since_the_last_one() -> None:
    store = Memory(sqs={"queues": 1}, sns={"topics": 1})
    saver = saver_of(store)
    assert saver.save()
    store.states["sns"] = {"topics": 2}
    assert saver.save()
    assert not saver.save()
    assert store.written == [("sns", {"topics": 1}), ("sqs", {"queues": 1}), ("sns", {"topics": 2})]


def test_stacks_are_written_after_the_resources_they_claim() -> None:
    store = Memory(cloudformation={"stacks": 1}, sqs={}, apigateway={})
    saver_of(store).save()
    assert [name for name, _ in store.written] == ["apigateway", "sqs", "cloudformation"]


def test_a_service_that_never_loaded_keeps_what_is_on_disk() -> None:
    store = Memory(sqs=None)
    assert not saver_of(store).save()
    assert store.written == []


def test_a_failed_write_is_tried_again() -> None:
    store = Memory(sqs={"queues": 1})
    store.failures = 1
    saver = saver_of(store)
    assert saver.save(), "there is still something to write"
    saver.save()
    assert store.written == [("sqs", {"queues": 1})]


def test_state_that_changes_while_it_is_read_is_read_again() -> None:
    store = Memory(sqs={"queues": 1})
    store.disturbances = 1
    saver = saver_of(store)
    assert saver.save()
    assert store.written == []
    saver.save()
    assert store.written == [("sqs", {"queues": 1})]


def test_a_noted_change_is_saved_by_itself() -> None:
    store = Memory(sqs={"queues": 1})
    saver = saver_of(store)
    saver.start()
    saver.note_change()
    assert store.wait_for("sqs", {"queues": 1})
    saver.stop()


def test_what_a_request_starts_is_saved_without_another_request() -> None:
    store = Memory(cloudformation={"status": "CREATE_IN_PROGRESS"})
    saver = saver_of(store)
    saver.start()
    saver.note_change()
    assert store.wait_for("cloudformation", {"status": "CREATE_IN_PROGRESS"})
    store.states["cloudformation"] = {"status": "CREATE_COMPLETE"}
    assert store.wait_for("cloudformation", {"status": "CREATE_COMPLETE"})
    saver.stop()


def test_a_failure_is_tried_again_without_another_request() -> None:
    store = Memory(sqs={"queues": 1})
    store.failures = 2
    saver = saver_of(store)
    saver.start()
    saver.note_change()
    assert store.wait_for("sqs", {"queues": 1})
    saver.stop()


def test_stopping_saves_what_nobody_noted() -> None:
    store = Memory(sqs={"queues": 1})
    saver = saver_of(store)
    saver.start()
    saver.stop()
    assert store.written == [("sqs", {"queues": 1})]
