"""Notices of EC2: read from a real server that answers as the metadata service does, and as it should not."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep import UsageError
from spotkeep.notices import instance_metadata as module
from spotkeep.notices.instance_metadata import (
    InstanceMetadataService,
    MetadataUnavailableError,
    SpotAction,
    metadata_endpoint,
    parse_spot_action,
    poll_metadata,
)

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z


def action(kind="terminate", at="2026-11-21T12:02:00Z"):
    return json.dumps({"action": kind, "time": at}).encode()


def test_a_quiet_instance_announces_nothing(metadata_service):
    metadata = InstanceMetadataService(metadata_service.url)
    assert metadata.spot_action() is None
    assert not metadata.rebalance_recommended()
    assert metadata_service.requests == [
        "PUT /latest/api/token",
        "GET /latest/meta-data/spot/instance-action",
        "GET /latest/meta-data/events/recommendations/rebalance",
    ]


def test_what_is_announced_is_read_by_the_clock_of_who_announces_it(metadata_service):
    metadata_service.date = "Sat, 21 Nov 2026 12:00:30 GMT"
    metadata_service.action = action()
    assert InstanceMetadataService(metadata_service.url).spot_action() == SpotAction("terminate", 90.0)


def test_a_rebalance_recommendation_is_read(metadata_service):
    metadata_service.rebalance = b'{"noticeTime": "2026-11-21T12:00:00Z"}'
    assert InstanceMetadataService(metadata_service.url).rebalance_recommended()


def test_a_token_that_ran_out_is_renewed(metadata_service):
    metadata = InstanceMetadataService(metadata_service.url)
    assert metadata.spot_action() is None
    metadata_service.tokens.clear()
    metadata_service.action = action()
    assert metadata.spot_action() is not None
    assert metadata_service.requests[-3:] == [
        "GET /latest/meta-data/spot/instance-action",
        "PUT /latest/api/token",
        "GET /latest/meta-data/spot/instance-action",
    ]


NO_NOTICE = {
    "a fault": 500,
    "throttled": 503,
    "switched off": 403,
    "never authorized": 401,
    "elsewhere": 302,
    "an empty page": b"",
    "a page of a proxy": b"<html>login</html>",
    "no document": b"[1]",
    "a document of something else": b'{"time": "2026-11-21T12:02:00Z"}',
    "an action that is none": b'{"action": null}',
    "an endless nesting": b"[" * 4000,
    "no end": b'{"action": "terminate"' + b" " * 10**6,
    "a cut connection": "cut",
    "no answer": "hang",
    "not HTTP": "garbage",
}


@pytest.mark.parametrize("answer", NO_NOTICE.values(), ids=NO_NOTICE)
def test_any_other_answer_is_no_notice_and_ends_soon(metadata_service, monkeypatch, answer):
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.1)
    metadata_service.action = answer
    with pytest.raises(MetadataUnavailableError):
        InstanceMetadataService(metadata_service.url).spot_action()


def test_an_answer_that_is_larger_than_any_of_it_is_not_cut_short(metadata_service):
    metadata_service.action = b"x" * 4097
    with pytest.raises(MetadataUnavailableError, match="instance-action answered more than 4,096 bytes"):
        InstanceMetadataService(metadata_service.url).text("/latest/meta-data/spot/instance-action")


@pytest.mark.parametrize("answer", [500, 403, b"", b"a\r\nHost: evil", "cut", "hang"])
def test_without_a_token_there_is_no_answer(metadata_service, monkeypatch, answer):
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.1)
    metadata_service.token = answer
    with pytest.raises(MetadataUnavailableError):
        InstanceMetadataService(metadata_service.url).spot_action()
    for _ in range(6000):
        if metadata_service.requests:
            break
        time.sleep(0.01)  # The service may hear of it after the client has given up.
    assert metadata_service.requests == ["PUT /latest/api/token"]


def test_where_no_service_listens_it_says_so():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(MetadataUnavailableError, match="does not answer"):
        InstanceMetadataService(url).spot_action()


def test_no_proxy_is_asked(metadata_service, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert InstanceMetadataService(metadata_service.url).spot_action() is None


@pytest.mark.parametrize("kind", ["terminate", "stop", "hibernate"])
def test_every_action_is_a_notice(kind):
    assert parse_spot_action(action(kind), server_time=NOON) == SpotAction(kind, 120.0)


@pytest.mark.parametrize(
    ("at", "left"),
    [
        ("2026-11-21T11:59:00Z", 0.0),
        ("9999-11-21T12:00:00Z", 900.0),
        ("soon", None),
        (None, None),
        (17, None),
        ("2026-13-45T99:00:00Z", None),
    ],
)
def test_a_time_that_makes_no_sense_does_not_hide_the_action(at, left):
    assert parse_spot_action(action(at=at), server_time=NOON) == SpotAction("terminate", left)


@given(
    raw=st.binary(max_size=200) | st.from_regex(rb'\{"action": ?"?[a-z]{0,9}"?(, "time": ?.{0,30})?\}', fullmatch=True)
)
def test_whatever_comes_is_an_action_or_an_error_of_its_own(raw):
    try:
        found = parse_spot_action(raw, server_time=NOON)
    except MetadataUnavailableError:
        return
    assert found.action
    assert found.seconds_left is None or 0 <= found.seconds_left <= 900


class Poll:
    """A poll in a thread of its own, without pauses."""

    def __init__(self, url, *, rebalance=True):
        self.actions, self.rebalances, self.pauses = [], [], []
        self.stopping = self
        self.stopped = False
        self.thread = threading.Thread(
            target=poll_metadata,
            args=(InstanceMetadataService(url),),
            kwargs={
                "stopping": self,
                "on_action": self.actions.append,
                "on_rebalance": (lambda: self.rebalances.append(1)) if rebalance else None,
            },
        )
        self.between = lambda: None

    def wait(self, seconds):
        self.pauses.append(seconds)
        self.between()
        return self.stopped

    def run(self, *between):
        steps = iter(between)

        def step():
            then = next(steps, None)
            if then is None:
                self.stopped = True
            else:
                then()

        self.between = step
        self.thread.start()
        self.thread.join()


def test_it_asks_every_five_seconds_until_an_action_is_announced(metadata_service):
    poll = Poll(metadata_service.url)
    poll.run(lambda: None, lambda: setattr(metadata_service, "action", action()))
    assert [found.action for found in poll.actions] == ["terminate"]
    assert poll.pauses == [5.0, 5.0]


def test_a_rebalance_is_reported_once_and_asked_for_only_where_it_matters(metadata_service):
    metadata_service.rebalance = b'{"noticeTime": "2026-11-21T12:00:00Z"}'
    poll = Poll(metadata_service.url)
    poll.run(lambda: None, lambda: None)
    assert poll.rebalances == [1]
    metadata_service.requests.clear()
    Poll(metadata_service.url, rebalance=False).run()
    assert not any("rebalance" in request for request in metadata_service.requests)


def test_where_no_service_answers_it_asks_ever_more_seldom_and_complains_once(metadata_service, caplog):
    metadata_service.token = 500
    poll = Poll(metadata_service.url)
    poll.run(*[lambda: None] * 5, lambda: setattr(metadata_service, "token", None), lambda: None)
    assert poll.pauses == [10.0, 20.0, 40.0, 60.0, 60.0, 60.0, 5.0, 5.0]
    assert caplog.text.count("cannot be read") == 1
    assert "SPOTKEEP_INSTANCE_METADATA=off" in caplog.text


@pytest.fixture
def firmware(tmp_path):
    def write(**files):
        for name, text in files.items():
            (tmp_path / name).write_text(text + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("files", "asked"),
    [
        ({"sys_vendor": "Amazon EC2"}, True),
        ({"sys_vendor": "Xen", "bios_version": "4.11.amazon"}, True),
        ({"sys_vendor": "QEMU"}, False),
        ({}, False),
    ],
)
def test_an_ec2_instance_is_known_by_its_firmware(firmware, files, asked):
    found = metadata_endpoint({}, dmi=firmware(**files))
    assert found == ("http://169.254.169.254" if asked else None)


def test_the_sdks_variables_are_followed(firmware):
    ec2 = firmware(sys_vendor="Amazon EC2")
    endpoint = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
    assert metadata_endpoint({endpoint: "http://127.0.0.1:1/"}, dmi=firmware()) == "http://127.0.0.1:1"
    assert metadata_endpoint({"AWS_EC2_METADATA_DISABLED": "True", endpoint: "http://x"}, dmi=ec2) is None
    ipv6 = {"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6"}
    assert metadata_endpoint(ipv6, dmi=ec2) == "http://[fd00:ec2::254]"


def test_it_can_be_switched_on_and_off(firmware):
    ec2 = firmware(sys_vendor="Amazon EC2")
    assert metadata_endpoint({"SPOTKEEP_INSTANCE_METADATA": "off"}, dmi=ec2) is None
    sagemaker = {"TRAINING_JOB_NAME": "digits-1"}
    assert metadata_endpoint(sagemaker, dmi=ec2) is None, "the instance is not the user's"
    assert metadata_endpoint({**sagemaker, "SPOTKEEP_INSTANCE_METADATA": "on"}, dmi=ec2) is not None
    with pytest.raises(UsageError, match="auto, on, off"):
        metadata_endpoint({"SPOTKEEP_INSTANCE_METADATA": "yes"}, dmi=ec2)


@pytest.mark.parametrize("endpoint", ["169.254.169.254", "https://x", "http://", "http://host:port"])
def test_an_endpoint_that_is_none_is_refused(endpoint):
    with pytest.raises(UsageError, match="metadata endpoint"):
        InstanceMetadataService(endpoint)


def test_a_process_that_knows_that_this_is_an_instance_asks_on_at_the_same_pace():
    class Silent:
        def spot_action(self):
            raise MetadataUnavailableError("it hangs")

    class Pauses(threading.Event):
        def __init__(self):
            super().__init__()
            self.seconds = []

        def wait(self, timeout=None):
            self.seconds.append(timeout)
            return len(self.seconds) == 4

    pauses = Pauses()
    poll_metadata(Silent(), stopping=pauses, on_action=lambda action: None, longest_pause_seconds=5.0)
    assert pauses.seconds == [5.0] * 4
