"""A notification reaches the team's address once, signed; what the address does not take is tried again by Lambda."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from tests.models.functions import Context
from webhook import handler as entry
from webhook.handler import NotDeliveredError

SECRET = "hunter2-of-the-webhook"
DOCUMENT = {"version": 1, "notification_id": "digits/completed/1", "status": "completed", "text": "It is done."}


@dataclass
class Receiver:
    """The team's server."""

    answers: list[int] = field(default_factory=list)
    received: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    team = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            team.received.append((dict(self.headers), body))
            self.send_response(team.answers.pop(0) if team.answers else 204)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/hooks/spotkeep"
    monkeypatch.setattr(entry, "production_target", lambda: (url, SecretStr(SECRET)))
    yield team
    server.shutdown()
    thread.join()
    server.server_close()


def event_of(*documents: object) -> dict[str, Any]:
    return {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(each)}} for each in documents]}


def call(event: object) -> dict[str, Any]:
    answer: dict[str, Any] = entry.handler(event, Context())
    return answer


def test_the_team_gets_the_document_and_can_tell_that_it_is_ours_by_a_secret_that_is_in_no_log(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(event_of(DOCUMENT)) == {"ok": True, "posted": ["digits/completed/1"]}
    [(headers, body)] = receiver.received
    assert json.loads(body) == DOCUMENT
    assert headers["Spotkeep-Notification"] == "digits/completed/1"
    timestamp, mac = (part.partition("=")[2] for part in headers["Spotkeep-Signature"].split(","))
    assert mac == hmac.new(SECRET.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert abs(int(timestamp) - datetime.now(UTC).timestamp()) < 600, "an old notification cannot be sent again"
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("answer", [307, 404, 503])
def test_what_the_address_does_not_take_is_raised_and_follows_no_redirect(receiver: Receiver, answer: int) -> None:
    receiver.answers = [answer]
    with pytest.raises(NotDeliveredError, match=str(answer)):
        call(event_of(DOCUMENT))
    assert len(receiver.received) == 1


def test_an_address_where_no_server_answers_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "production_target", lambda: ("http://127.0.0.1:9/", SecretStr(SECRET)))
    with pytest.raises(NotDeliveredError, match="no answer"):
        call(event_of(DOCUMENT))


@pytest.mark.parametrize(
    "event", [None, [], {}, {"Records": 1}, {"Records": [{"Sns": {"Message": "{"}}]}, event_of([])]
)
def test_what_holds_no_notification_goes_nowhere(monkeypatch: pytest.MonkeyPatch, event: object) -> None:
    def untouched() -> None:
        raise AssertionError("the secret was read")

    monkeypatch.setattr(entry, "production_target", untouched)
    assert call(event)["error"] == "no-notification"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """What Secrets Manager holds, by name; every read of it counts."""
    held = {"address": "https://hooks.example.com/T0\n", "signing": SECRET}
    monkeypatch.setenv("SPOTKEEP_DEPLOYMENT", "spotkeep")
    monkeypatch.setenv("SPOTKEEP_WEBHOOK_ADDRESS_SECRET_ARN", "address")
    monkeypatch.setenv("SPOTKEEP_WEBHOOK_SECRET_ARN", "signing")
    client = SimpleNamespace(get_secret_value=lambda *, SecretId: {"SecretString": held[SecretId]})  # noqa: N803
    monkeypatch.setattr(entry.boto3, "client", lambda *_, **__: client)
    entry._read_target.cache_clear()
    yield held
    entry._read_target.cache_clear()


def test_the_address_is_read_from_the_teams_secret(secrets: dict[str, str]) -> None:
    assert entry.production_target() == ("https://hooks.example.com/T0", SecretStr(SECRET))
    secrets["address"] = "https://hooks.example.com/T1"
    assert entry.production_target()[0].endswith("T0"), "one read for each execution environment"


def test_an_address_that_took_nothing_is_read_again(secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    posted = []

    def refuse(*, url: str, notification_id: str, **_: object) -> int:
        posted.append(url)
        raise NotDeliveredError(notification_id=notification_id, reason="it answered 410")

    monkeypatch.setattr(entry, "post", refuse)
    for address in ("https://hooks.example.com/T0", "https://hooks.example.com/T1"):
        secrets["address"] = address
        with pytest.raises(NotDeliveredError):
            call(event_of(DOCUMENT))
    assert posted == ["https://hooks.example.com/T0", "https://hooks.example.com/T1"]


@pytest.mark.parametrize("held", ["", "http://hooks.example.com/T0", '{"url": "https://hooks.example.com/T0"}'])
def test_a_secret_without_an_address_is_said_and_not_shown(secrets: dict[str, str], held: str) -> None:
    secrets["address"] = held
    with pytest.raises(entry.AddressError, match="put-secret-value") as raised:
        entry.production_target()
    assert "T0" not in str(raised.value)
