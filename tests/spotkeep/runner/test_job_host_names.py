"""Hosts of a job start at different times: its command begins when all names resolve, or it says which do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.errors import HostNameError
from spotkeep.runner.job import MOST_SECONDS_FOR_HOST_NAMES, await_host_names


class Network:
    """Names that resolve from a time on, and a clock that only waiting moves."""

    def __init__(self, known_from: dict[str, float]) -> None:
        self.known_from = known_from
        self.now = 0.0
        self.asked: list[str] = []

    def look_up(self, host: str) -> str:
        self.asked.append(host)
        if self.now < self.known_from[host]:
            raise OSError(-2, "Name or service not known")
        return "10.0.0.1"

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, *, is_over: Callable[[], bool] = lambda: False) -> None:
        await_host_names(
            tuple(self.known_from), is_over=is_over, look_up=self.look_up, clock=lambda: self.now, sleep=self.sleep
        )


HOSTS = st.integers(1, 20).map("algo-{}".format)
IN_TIME = st.floats(0, MOST_SECONDS_FOR_HOST_NAMES)


@given(st.dictionaries(HOSTS, IN_TIME, min_size=2))
def test_the_command_begins_soon_after_the_last_name_resolves(known_from):
    network = Network(known_from)
    network.wait()
    last = max(known_from.values())
    assert last <= network.now <= max(2 * last, 0.1)
    assert network.now - last <= 5


@given(st.dictionaries(HOSTS, IN_TIME), st.sets(HOSTS, min_size=1))
def test_after_the_bound_every_name_that_does_not_resolve_is_named_and_no_other(in_time, never):
    network = Network({"algo-0": 0} | in_time | dict.fromkeys(never, float("inf")))
    with pytest.raises(HostNameError) as refused:
        network.wait()
    assert set(refused.value.missing) == never
    assert all(host in str(refused.value) for host in never)
    assert MOST_SECONDS_FOR_HOST_NAMES <= network.now <= MOST_SECONDS_FOR_HOST_NAMES + 5
    assert refused.value.exit_code == 68


def test_it_says_which_name_it_waits_for(capfd):
    network = Network({"algo-1": 0, "algo-2": 1})
    network.wait()
    assert capfd.readouterr().err == "spotkeep: waiting until the names of all hosts resolve: algo-2\n"
    assert network.asked.count("algo-1") == 1, "a name that resolved is not asked for again"


def test_a_job_with_one_host_asks_for_no_name():
    network = Network({"algo-1": float("inf")})
    network.wait()
    assert network.asked == []


def test_a_notice_ends_the_wait():
    network = Network({"algo-1": 0, "algo-2": float("inf")})
    network.wait(is_over=lambda: network.now > 10)
    assert network.now < 20


def test_what_is_no_name_at_all_does_not_resolve(monkeypatch):
    network = Network({"algo-1": 0, "..bad": 0})
    monkeypatch.setattr(network, "look_up", lambda host: host.encode("idna"))
    with pytest.raises(HostNameError, match=r"\.\.bad"):
        network.wait()
