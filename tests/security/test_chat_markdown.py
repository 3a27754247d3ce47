r"""Who attacks: a script, by what it prints as it fails, or a user, by the name of an owner.

With what: backticks that end the code block of a Slack or Teams message; then `<!channel>`, `<http://evil|Log in>` or
`[Log in](http://evil)`. And without anybody's intent: the command that failed, quoted with the key in its arguments.

What they would gain: a message in the team's channel under the deployment's name that rings everybody and leads them to
a page of the attacker's; a key that everybody in the channel can read.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.notifications.outbox import chat_message_of, chat_text, document_of
from spotkeep_jobs.notifications.texts.composition import REDACTED, quoted_reason, without_secrets
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import NotificationKind
from webhook.handler import notifications_of

AT = datetime(2026, 11, 23, tzinfo=UTC)
FENCE = "```"
ATTACKS = [
    "```\n<!channel> <http://evil.example|Log in>\n```",
    "`` ` ``` ````",
    "[Log in](http://evil.example)",
    "[Log in][1]\n\n[1]: http://evil.example",
    "![](http://evil.example/pixel.png)",
    "<@U012AB3CD>",
    "<!subteam^S0123>",
    "<https://evil.example>",
    "<a href='http://evil.example'>x</a>",
    "@channel @here @Everyone",
    "user\u202efdp.exe\x1b]52;c;x\x07",
]
MARKUP = st.lists(
    st.one_of(st.sampled_from([*ATTACKS, "`", "``", "<", ">", "|", "](", "[", "@", "here", "\n"]), st.text(max_size=5)),
    max_size=12,
).map("".join)
MEANING = re.compile(
    r"[`<>\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]|\][(\[:]|@(?:channel|here|everyone)\b", re.IGNORECASE
)


def notification(body: str, *, owner: str = "ada") -> Notification:
    return Notification(
        notification_id="digits-7/failed/1",
        subject_id="digits-7",
        kind=NotificationKind.FAILED,
        subject=f"[spotkeep] digits-7 failed ({owner})",
        body=body,
        attributes={"run": "digits-7", "owner": owner},
        happened_at=AT,
        created_at=AT,
    )


# The chat.


@given(MARKUP)
def test_nothing_keeps_a_meaning(text: str) -> None:
    assert not MEANING.search(chat_text(text))


@given(MARKUP)
def test_a_message_is_one_code_block(text: str) -> None:
    content = chat_message_of(notification(text * 50))["content"]
    inside = content["description"].removeprefix(f"{FENCE}\n").removesuffix(f"\n{FENCE}")
    assert content["description"] == f"{FENCE}\n{inside}\n{FENCE}"
    assert not MEANING.search(inside)
    assert len(inside) <= 6_000


def test_a_message_that_is_cut_places_no_mention_by_it() -> None:
    content = chat_message_of(notification("x" * 5_990 + " @everyones"))["content"]
    assert content["description"].endswith("x \uff20everyone\n" + FENCE)


@given(MARKUP)
def test_no_part_of_a_message_takes_markup(attack: str) -> None:
    message = chat_message_of(notification(attack, owner=attack))
    texts = [message["content"]["title"], message["metadata"]["summary"]]
    texts += message["metadata"]["additionalContext"].values()
    assert not [text for text in texts if MEANING.search(text)]


def test_a_traceback_stays_readable() -> None:
    assert chat_text('File "train.py", line 3, in <module>\n  x[0](1)') == (
        'File "train.py", line 3, in \u2039module\u203a\n  x[0] (1)'
    )


# The webhook, whose address is often a chat's.


def sent_to_the_webhook(document: dict[str, Any]) -> dict[str, Any]:
    event = {"Records": [{"Sns": {"Message": json.dumps(document)}}]}
    (body,) = notifications_of(event).values()
    return dict(json.loads(body))


@given(MARKUP)
def test_a_webhook_that_is_a_chat_s_takes_no_markup(attack: str) -> None:
    document = document_of(notification(attack, owner=attack))
    posted = sent_to_the_webhook(document)
    assert not MEANING.search(posted["text"])
    assert not MEANING.search(posted["subject"].replace("[spotkeep] ", ""))
    unshown = {name: value for name, value in document.items() if name not in ("text", "subject")}
    assert {name: value for name, value in posted.items() if name not in ("text", "subject")} == unshown


# Secrets.

AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKE" + "Y"


@pytest.mark.parametrize(
    ("reason", "secret"),
    [
        ("ExecuteUserScriptError: python train.py --token abc123", "abc123"),
        ("python train.py --token=abc123 --epochs 3", "abc123"),
        ("Command '['python', 'train.py', '--hub-token', 'abc123']' returned 1", "abc123"),
        ('["python", "train.py", "--password", "abc 123"]', "abc 123"),
        ("WANDB_API_KEY=abc123 python train.py", "abc123"),
        ('{"api_key": "abc123"}', "abc123"),
        ("password: abc123", "abc123"),
        ("AWS_SECRET_ACCESS_KEY=" + AWS_SECRET, AWS_SECRET),
        ("no access with " + AWS_SECRET, AWS_SECRET),
        ("InvalidAccessKeyId: AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("ASIAIOSFODNN7EXAMPLE is expired", "ASIAIOSFODNN7EXAMPLE"),
        ("Authorization: Bearer abcdefghijklmnop1234", "abcdefghijklmnop1234"),
        ("authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
        ("401 for url: https://user:hunter2@host.example/x", "hunter2"),
        ("git clone https://ghs_0123456789abcdefghij@github.com/a/b", "ghs_0123456789abcdefghij"),
        ("postgres://u:p%40ss@db/x cannot be reached", "p%40ss"),
        ("GET https://b.s3.amazonaws.com/k?X-Amz-Credential=ASIA1%2F2&X-Amz-Signature=0af1 403", "0af1"),
        ("GET https://b.s3.amazonaws.com/k?X-Amz-Security-Token=FwoGZX&x=1", "FwoGZX"),
        ("hf_abcdefghijklmnopqrstuvwx is not valid", "hf_abcdefghijklmnopqrstuvwx"),
        ("sk-proj-abcdefghijklmnopqrstuvwx", "abcdefghijklmnopqrstuvwx"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow"),
    ],
)
def test_what_looks_like_a_secret_is_not_sent(reason: str, secret: str) -> None:
    quoted = "\n".join(quoted_reason(reason))
    assert secret not in without_secrets(reason)
    assert secret not in quoted
    assert REDACTED in quoted


def test_a_secret_is_found_before_a_line_is_broken_and_the_reason_is_cut() -> None:
    quoted = "\n".join(quoted_reason(f"{'x ' * 345}--token {AWS_SECRET}"))
    assert not any(AWS_SECRET[start : start + 8] in quoted for start in range(30))
    quoted = "\n".join(quoted_reason(f"{'x' * 50} {'AKIA' + 'Q' * 16}"))
    assert "AKIA" not in quoted


@pytest.mark.parametrize(
    "reason",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ModuleNotFoundError: No module named 'tokenizers'",
        "ValueError: max_tokens=512 is too many tokens",
        "FileNotFoundError: /opt/ml/input/data/train/part-0001.parquet",
        "fatal: reference is not a tree: 9b2c1f0d4e5a69788796a5b4c3d2e1f001234567",
        "python train.py --epochs 3 --basic configuration",
        "see https://docs.aws.amazon.com/sagemaker/latest/dg/x.html",
        "user@example.com",
        "[1, 2](3)",
    ],
)
def test_what_looks_like_none_stays(reason: str) -> None:
    assert without_secrets(reason) == reason


@pytest.mark.parametrize(
    "piece", ["-" * 50 + "token", "a" * 100 + "://", "bearer ", "AKIA", "token = '", "eyJa.", "x/", "Aa1"]
)
def test_a_reason_made_to_be_slow_is_not(piece: str) -> None:
    text = (piece * 20_000)[:20_000]
    started = time.process_time()
    without_secrets(text)
    chat_text(text)
    assert time.process_time() - started < 5
