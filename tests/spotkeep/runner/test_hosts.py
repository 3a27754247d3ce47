"""The runners of the hosts of a job: they begin together, and each hears how the command of every other one ends."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import HostMeetingError, JobError
from spotkeep.runner.hosts import DONE, ENDED, FAILED, INTERRUPTED, LOST, HostEnding, OtherHosts, verdict
from spotkeep_fleet.training_spec import NOT_STARTED
from tests.ports import free_ports

NAMES = ("algo-1", "algo-2", "algo-3")


class World:
    """The hosts of a job on one machine, each with what it hears."""

    def __init__(self, names: Sequence[str], stack: contextlib.ExitStack, *, silent_seconds: float = 60.0) -> None:
        self.names = names
        self.port = free_ports()
        self.heard: dict[str, list[HostEnding]] = {name: [] for name in names}
        self.silent_seconds = silent_seconds
        self._stack = stack

    def start(self, name: str, *, job: str = "job") -> OtherHosts:
        return self._stack.enter_context(
            OtherHosts(
                hosts=self.names, current_host=name, job=job, address="127.0.0.1", port=self.port,
                on_ending=self.heard[name].append, silent_seconds=self.silent_seconds, beat_seconds=0.05,
            )
        )  # fmt: skip


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def began(*hosts: OtherHosts) -> None:
    with ThreadPoolExecutor(len(hosts)) as together:
        for each in [together.submit(waits, host) for host in hosts]:
            each.result()


def waits(host: OtherHosts) -> None:
    host.wait_until_all_are_there(is_over=lambda: False, most_seconds=300)


def hears(host: OtherHosts, ending: HostEnding) -> None:
    wait_until(lambda: ending in host.endings)


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(6000):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_hosts_begin_when_all_are_there_and_each_hears_each_ending(stack):
    world = World(NAMES, stack)
    third, second = world.start("algo-3"), world.start("algo-2")
    with pytest.raises(HostMeetingError) as missing:
        second.wait_until_all_are_there(is_over=lambda: False, most_seconds=0.3)
    assert missing.value.missing == ("algo-1",)
    assert f"127.0.0.1:{world.port}" in str(missing.value)
    first = world.start("algo-1")
    began(first, second, third)
    failed = HostEnding("algo-3", FAILED, 3, "no memory")
    third.say(failed, most_seconds=300)
    for host in (first, second):
        hears(host, failed)
    second.say(HostEnding("algo-2", ENDED, 143), most_seconds=300)
    first.wait_for_all_endings(most_seconds=300)
    assert [each.host for each in first.endings] == ["algo-3", "algo-2"]
    assert world.heard["algo-1"] == list(first.endings)


def test_a_host_that_waits_is_called_before_it_goes_on_because_of_an_ending(stack):
    """Else it would start its command, although the call ends it."""
    world = World(NAMES[:2], stack)
    called = []

    def end_slowly(ending: HostEnding) -> None:
        time.sleep(0.5)
        called.append(ending)

    first = stack.enter_context(
        OtherHosts(
            hosts=NAMES[:2], current_host="algo-1", job="job", address="127.0.0.1", port=world.port,
            on_ending=end_slowly,
        )
    )  # fmt: skip
    failed = HostEnding("algo-2", FAILED, 3, "no memory")
    world.start("algo-2").say(failed, most_seconds=300)
    waits(first)
    assert called == [failed]


def test_hosts_that_are_not_ready_are_named(stack):
    """The second one is connected, and installs its packages still. The third one has not come."""
    world = World(NAMES, stack)
    first, second = world.start("algo-1"), world.start("algo-2")
    with pytest.raises(HostMeetingError, match="within 0 minutes: algo-2, algo-3") as missing:
        first.wait_until_all_are_there(is_over=lambda: False, most_seconds=1)
    assert missing.value.exit_code == 68
    with pytest.raises(HostMeetingError):
        second.wait_until_all_are_there(is_over=lambda: False, most_seconds=1)
    for _ in range(600):
        with pytest.raises(HostMeetingError) as still_missing:
            first.wait_until_all_are_there(is_over=lambda: False, most_seconds=0)
        if still_missing.value.missing == ("algo-3",):
            return
        time.sleep(0.05)  # The word of the second one is on its way.
    raise AssertionError(still_missing.value.missing)


@pytest.mark.parametrize("failed", NAMES)
def test_a_host_that_fails_before_it_is_ready_is_heard_by_those_that_are_there_and_by_one_that_comes_later(
    stack, failed
):
    world = World(NAMES, stack)
    ending = HostEnding(failed, FAILED, 67, "no such package")
    world.start(failed).say(ending, most_seconds=0)
    for name in NAMES:
        if name != failed:
            host = world.start(name)
            waits(host)
            wait_until(lambda name=name: world.heard[name] == [ending])


def test_a_port_that_is_taken_is_named_at_once(stack):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        world = World(NAMES[:2], stack)
        world.port = taken.getsockname()[1]
        with pytest.raises(JobError, match=f"port {world.port} of this host cannot be opened"):
            began(world.start("algo-1"))


def test_nothing_is_waited_for_after_a_notice(stack):
    World(NAMES, stack).start("algo-1").wait_until_all_are_there(is_over=lambda: True)


@pytest.mark.parametrize("gone", NAMES)
def test_a_host_whose_connection_breaks_without_a_word_is_lost_to_those_that_can_know_it(gone):
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as of_the_other:
        world = World(NAMES, stack)
        there = {name: world.start(name) for name in NAMES if name != gone}
        lost = World.start(_like(world, of_the_other), gone)
        began(lost, *there.values())
        of_the_other.close()
        for host in there.values():
            hears(host, HostEnding(gone, LOST))


def _like(world: World, stack: contextlib.ExitStack) -> World:
    other = World(world.names, stack, silent_seconds=world.silent_seconds)
    other.port, other.heard = world.port, world.heard
    return other


def test_a_host_that_has_said_its_end_is_not_lost_when_it_leaves(stack):
    world = World(NAMES[:2], stack)
    second = world.start("algo-2")
    with contextlib.ExitStack() as of_the_first:
        first = _like(world, of_the_first).start("algo-1")
        began(first, second)
        first.say(HostEnding("algo-1", DONE), most_seconds=300)
    second.wait_for_all_endings(most_seconds=300)
    assert second.endings == (HostEnding("algo-1", DONE),)


def test_a_host_that_is_silent_is_lost_and_not_waited_for(stack):
    """Its network is gone, so no packet says that the connection is."""
    world = World(NAMES[:2], stack, silent_seconds=0.5)
    first = world.start("algo-1")
    with _connected(world.port) as silent:
        silent.sendall(b'{"host": "algo-2", "job": "job"}\n{"ready": true}\n')
        began(first)
        first.wait_for_all_endings(most_seconds=300)
    assert first.endings == (HostEnding("algo-2", LOST),)


@pytest.mark.parametrize(
    "said",
    [b'{"host": "algo-2", "job": "another"}\n', b'{"host": "algo-9", "job": "job"}\n', b"GET / HTTP/1.1\r\n\r\n",
     b"[]\n", b'{"host": ["algo-2"], "job": "job"}\n', b"x" * 70_000, b"[" * 16_000 + b"\n"],
)  # fmt: skip
def test_a_stranger_is_refused_and_takes_no_hosts_place(stack, said):
    world = World(NAMES[:2], stack)
    first = world.start("algo-1")
    with contextlib.suppress(OSError), _connected(world.port) as stranger:
        stranger.sendall(said)
        stranger.settimeout(30)
        assert stranger.recv(1) == b""
    second = world.start("algo-2")
    began(first, second)
    assert first.endings == ()


def _connected(port: int) -> socket.socket:
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError):
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        time.sleep(0.05)
    raise AssertionError("the first host does not listen")


@pytest.mark.parametrize(
    "said",
    [
        b'{"ending": {"host": "algo-3", "kind": "failed", "code": 1, "text": ""}}\n',
        b'{"ending": {"host": "algo-2", "kind": "failed", "code": 1e999, "text": ""}}\n',
    ],
)
def test_a_host_speaks_for_itself_alone_and_in_numbers(stack, said):
    world = World(NAMES, stack)
    first, third = world.start("algo-1"), world.start("algo-3")
    with _connected(world.port) as second:
        second.sendall(b'{"host": "algo-2", "job": "job"}\n{"ready": true}\n')
        began(first, third)
        second.sendall(said)
        hears(first, HostEnding("algo-2", LOST))
    assert len(first.endings) == 1


KINDS = st.sampled_from([DONE, INTERRUPTED, FAILED, ENDED, LOST])
A_PEER_IS_LOST = "RuntimeError: [/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer"
TEXTS = st.sampled_from(["ValueError: no data", A_PEER_IS_LOST, f"{NOT_STARTED}no such command", ""])
ENDINGS = st.builds(HostEnding, host=st.sampled_from(NAMES[1:]), kind=KINDS, code=st.integers(1, 255), text=TEXTS)
OWN = st.one_of(
    st.just(HostEnding("algo-1", DONE)),
    st.just(HostEnding("algo-1", INTERRUPTED, 75)),
    st.builds(HostEnding, host=st.just("algo-1"), kind=st.just(FAILED), code=st.integers(1, 255), text=TEXTS),
    st.builds(HostEnding, host=st.just("algo-1"), kind=st.just(ENDED), code=st.integers(1, 255)),
)


@given(own=OWN, others=st.lists(ENDINGS, unique_by=lambda each: each.host))
def test_a_host_ends_for_the_reason_that_the_job_has(own, others):
    final = verdict(own, others)
    kinds = {each.kind for each in others}
    assert final.host == "algo-1"
    assert (final.code == 0) is (own.kind == DONE), "no other host makes a success or a failure of it"
    if own.kind not in (FAILED, ENDED):
        return
    if kinds & {LOST, INTERRUPTED}:
        assert (final.kind, final.code) == (INTERRUPTED, 75)
        assert final.text.startswith("host lost: algo-") is (LOST in kinds)
        return
    assert final.kind == FAILED
    reasons = {each.text for each in (own, *others) if each.kind == FAILED}
    if final.text == own.text and final.code == own.code:
        assert own.text != A_PEER_IS_LOST or reasons == {A_PEER_IS_LOST}, "the host that was lost has the reason"
        assert own.kind == FAILED or not reasons, "a command that was ended has no reason of its own"
        return
    assert own.kind == ENDED or own.text == A_PEER_IS_LOST, "its own failure says more than that of another"
    cause = next(each for each in others if each.kind == FAILED and final.text.endswith(each.text.split(": ")[-1]))
    begun = NOT_STARTED if cause.text.startswith(NOT_STARTED) else ""
    assert final.text == f"{begun}on {cause.host}: {cause.text[len(begun) :]}", "the controller reads how it begins"
