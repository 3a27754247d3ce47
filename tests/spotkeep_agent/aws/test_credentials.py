"""Credentials are renewed in time, and what is still good is used while they cannot be."""

from __future__ import annotations

import threading

import pytest

from spotkeep_agent.aws.credentials import CurrentCredentials
from spotkeep_agent.aws.run_credentials import wait_for
from spotkeep_agent.errors import CredentialsUnavailableError
from spotkeep_fleet.signed_fetch import Credentials, FetchError


class Source:
    """Gives credentials for an hour, numbered; or trouble."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0
        self.failing = 0
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def fetch(self) -> Credentials:
        self.asked += 1
        self.entered.set()
        if self.gate is not None:
            assert self.gate.wait(30)
        if self.failing:
            self.failing -= 1
            raise FetchError("throttled")
        return Credentials(f"key-{self.asked}", "s", "t", self.now + 3600)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def current(source: Source) -> CurrentCredentials:
    return CurrentCredentials(source.fetch, renew_seconds=900, clock=lambda: source.now)


def test_they_are_fetched_once_and_renewed_a_quarter_of_an_hour_before_their_end(
    source: Source, current: CurrentCredentials
) -> None:
    assert [current.get().access_key for _ in range(3)] == ["key-1"] * 3
    source.now += 2699
    assert current.get().access_key == "key-1"
    source.now += 2
    assert current.get().access_key == "key-2"


def test_while_they_cannot_be_renewed_those_that_are_good_are_used_and_others_asked_for_seldom(
    source: Source, current: CurrentCredentials
) -> None:
    current.get()
    source.now += 2800
    source.failing = 100
    for _ in range(20):
        assert current.get().access_key == "key-1"
        source.now += 10
    assert source.asked == 1 + 7
    source.failing = 0
    source.now += 30
    assert current.get().access_key != "key-1"


def test_once_they_have_run_out_there_are_none(source: Source, current: CurrentCredentials) -> None:
    current.get()
    source.now += 3600
    source.failing = 1
    with pytest.raises(FetchError, match="throttled"):
        current.get()
    assert current.get().access_key == "key-3"


def test_what_aws_calls_expired_is_fetched_anew(source: Source, current: CurrentCredentials) -> None:
    current.get()
    current.forget()
    assert current.get().access_key == "key-2"


def test_no_call_waits_for_a_renewal_while_the_old_ones_are_good(source: Source, current: CurrentCredentials) -> None:
    current.get()
    source.now += 3000
    source.gate = threading.Event()
    source.entered.clear()
    renewing = threading.Thread(target=current.get)
    renewing.start()
    assert source.entered.wait(30)
    assert current.get().access_key == "key-1"
    source.gate.set()
    renewing.join(30)
    assert current.get().access_key == "key-2"


def test_at_the_boot_the_wait_for_them_is_bounded_and_says_why_it_ends(
    source: Source, current: CurrentCredentials
) -> None:
    pauses: list[float] = []
    source.failing = 5
    wait_for(current, sleep=pauses.append)
    assert pauses == [2, 4, 8, 16, 20]
    current.forget()
    source.failing = 1000
    with pytest.raises(CredentialsUnavailableError, match="no credentials of its run: throttled"):
        wait_for(current, sleep=pauses.append)
    assert 120 < sum(pauses[5:]) < 300
