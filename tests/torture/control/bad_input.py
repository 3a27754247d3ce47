"""Bad requests and events, generated: wrong types, huge, unicode, missing, hostile; each function must answer each.

To every input the function gives a structured answer, launches nothing, writes nothing, and logs no secret: the values
of environment variables and hyperparameters, and whatever an event carries beside a job's name.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from controller import handler as controller_handler
from launcher import handler as launcher_handler
from launcher.payload import ACTIONS
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.functions.controller_events import TRAINING_JOB_CHANGED
from spotkeep_jobs.functions.full_pass import FullPass
from spotkeep_jobs.record.states import NotificationKind
from tests.models.control_plane import ControlPlane
from tests.models.functions import Context
from webhook import handler as webhook_handler

SECRET: Final = "hunter2-4f1c9d"
LARGEST_ANSWER_BYTES: Final = 6 * 2**20
"""What Lambda returns at most: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""

VALID: Final[dict[str, Any]] = {
    "name": "digits",
    "command": ["python", "train.py"],
    "capacity": "spot",
    "instance_type": "ml.m5.xlarge",
    "max_run": "2h",
    "max_wait": "4h",
    "environment": {"HF_TOKEN": SECRET},
    "hyperparameters": {"password": SECRET},
    "channels": {"train": "s3://bucket/data/"},
    "notify": ["completed"],
}
_HOSTILE: Final = (
    "", " ", "\x00", "\ud800", "\u202e", "\uff41", "../../etc/passwd", "'; DROP TABLE runs; --", "${jndi:ldap://x}",
    "{{7*7}}", "<script>", "$(reboot)", "`id`", "%s%n", "\r\n\r\nSubject: x", "NaN", "-0", "1e309", "null", "s3://",
    "s3://b/../..", "arn:aws:iam::1:role/x", "ml.", "x" * 70_000, "é" * 2_000, "0" * 5_000,
)  # fmt: skip
_HOSTILE_NAMES: Final = tuple(word for word in _HOSTILE if not re.fullmatch(r"[A-Za-z0-9]{1,43}", word))

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(10**20, 10**40)
    | st.floats(allow_nan=True)
    | st.text(max_size=30)
    | st.sampled_from(_HOSTILE)
)
junk = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
deep = st.integers(50, 400).map(lambda depth: _nested(depth))
not_an_object = scalars | st.lists(junk, max_size=4) | deep

# Each of these alone makes a document bad.
_bad_fields: Final[dict[str, st.SearchStrategy[Any]]] = {
    "name": st.none() | st.integers() | st.sampled_from(_HOSTILE_NAMES) | st.just("-x") | st.just("a" * 44),
    "command": st.integers() | st.just("") | st.just([]) | st.lists(st.none() | st.lists(junk), min_size=1),
    "capacity": st.integers() | st.sampled_from(_HOSTILE) | st.just("spot-ish"),
    "instance_type": st.integers() | st.sampled_from(_HOSTILE) | st.just("p4d.24xlarge"),
    "instance_count": st.integers(max_value=0) | st.integers(21) | st.text(max_size=4) | st.booleans() | st.floats(),
    "max_run": st.integers(max_value=0) | st.integers(10**9) | st.lists(junk) | st.sampled_from(_HOSTILE),
    "max_wait": st.integers(max_value=0) | st.integers(10**9) | st.sampled_from(_HOSTILE) | st.just("1m"),
    "environment": st.integers() | st.text(min_size=1) | st.just({"A": SECRET * 100}) | st.just({"SM_X": SECRET}),
    "hyperparameters": st.integers() | st.just({"a": [SECRET]}) | st.just({f"h{n}": SECRET for n in range(101)}),
    "channels": st.integers() | st.just({"train": SECRET}) | st.just({"spotkeep": "s3://b/x/"}),
    "notify": st.integers() | st.lists(st.integers(), min_size=1) | st.just([*NotificationKind, "at-night"]),
    "tags": st.integers() | st.just({"aws:x": "y"}),
    "run": st.integers() | st.just("a" * 53) | st.sampled_from(_HOSTILE_NAMES),
    "token": st.integers() | st.just("x" * 100_000),
    "checkpoint_prefix": st.integers() | st.just("s3://other/../x/") | st.just("/local/") | st.just("s3://"),
}
_unknown_fields = st.dictionaries(
    st.text(min_size=1, max_size=30).filter(lambda name: name not in (*JobRequest.model_fields, "action")),
    junk,
    min_size=1,
)


@st.composite
def bad_documents(draw: st.DrawFn) -> Any:
    """Return a document with one thing wrong, or several."""
    document = deepcopy(VALID)
    for name in draw(st.lists(st.sampled_from(sorted(_bad_fields)), max_size=4, unique=True)):
        document[name] = draw(_bad_fields[name])
    if document == VALID:
        which = draw(st.sampled_from(["unknown", "missing", "action"]))
        if which == "unknown":
            return document | draw(_unknown_fields)
        if which == "missing":
            del document[draw(st.sampled_from(["name", "command"]))]
            return document
        return document | {"action": draw(scalars.filter(lambda word: word not in ACTIONS))}
    if draw(st.booleans()):
        document |= draw(_unknown_fields)
    return document


_bad_actions = st.fixed_dictionaries(
    {"action": st.sampled_from(["stop", "resume", "describe", "replay-notifications"])},
    optional={"run": scalars, "environment": junk},
)
bad_requests = not_an_object | junk | bad_documents() | _bad_actions

_details = junk | st.fixed_dictionaries(
    {"TrainingJobName": scalars | st.sampled_from(["strangers-1", "digits-1", "a" * 63])},
    optional={"Environment": st.just({"A": SECRET}), "HyperParameters": st.just(SECRET)},
)
_events = st.fixed_dictionaries(
    {},
    optional={
        "source": st.just("aws.sagemaker") | scalars,
        "detail-type": st.just(TRAINING_JOB_CHANGED) | junk,
        "detail": _details,
        "secret": st.just(SECRET),
    },
)
_bodies = _events.map(lambda event: json.dumps(event, default=str)) | st.text(max_size=40) | junk
_records = junk | st.fixed_dictionaries({"messageId": st.text(max_size=8) | junk, "body": _bodies})
bad_events = (
    not_an_object
    | junk
    | _events
    | st.fixed_dictionaries({"Records": junk | st.lists(_records, max_size=6)}, optional={"secret": st.just(SECRET)})
)

bad_pool_schedules = (
    not_an_object
    | junk
    | st.fixed_dictionaries(
        {},
        optional={"run": scalars | st.just("no-run"), "attempt": scalars | st.just(1), "secret": st.just(SECRET)},
    )
)


@dataclass
class InputCounts:
    """What was fed so far.

    Attributes:
        inputs: How many.
        answers: How many answers there were of each kind.
    """

    inputs: int = 0
    answers: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, kw_only=True)
class _Fed:
    """How one function is fed: its module, what it gets, and what a good answer is."""

    module: Any
    production: str
    parts: Callable[[ControlPlane], object]
    inputs: st.SearchStrategy[Any]
    judge: Callable[[Any], str]
    beside: Mapping[str, Callable[[ControlPlane], object]] = field(default_factory=dict)
    """What else the module would find, by the name of what gives it."""


class _NothingIsDeleted:
    """No input here is a request of CloudFormation's, which alone deletes the deployment."""

    @staticmethod
    def pending() -> None:
        return None


def _launcher_answer(answer: Any) -> str:
    assert answer["ok"] is False, f"accepted: {answer}"
    assert answer["error"] == "refused"
    assert answer["problems"]
    for problem in answer["problems"]:
        assert set(problem) >= {"field", "found", "problem", "fix"}
        assert all(isinstance(text, str) for text in problem.values())
        assert problem["problem"]
        assert problem["fix"]
    return "refused"


def _controller_answer(answer: Any) -> str:
    if "batchItemFailures" in answer:
        assert answer == {"batchItemFailures": []}
        return "batches done with"
    if "runs" in answer:
        assert answer["ok"] is True
        assert answer["runs"] == 0
        return "everything reconciled: an empty event"
    if answer["ok"]:
        assert answer["ignored"]
        return "foreign"
    assert answer["error"] == "unknown-event"
    assert answer["problem"]
    return "unknown event"


def _webhook_answer(answer: Any) -> str:
    assert answer["ok"] is False
    assert answer["error"] == "no-notification"
    return "no notification"


_FED: Final = {
    "launcher": _Fed(
        module=launcher_handler,
        production="production_parts",
        parts=lambda plane: plane.launching,
        inputs=bad_requests,
        judge=_launcher_answer,
    ),
    "controller": _Fed(
        module=controller_handler,
        production="production_parts",
        parts=lambda plane: plane.parts,
        inputs=bad_events | bad_pool_schedules | bad_requests,
        judge=_controller_answer,
        beside={
            "production_full_pass": lambda plane: FullPass(plane.parts),
            "production_shutdown": lambda _: _NothingIsDeleted(),
        },
    ),
    "webhook": _Fed(
        module=webhook_handler,
        production="production_target",
        parts=lambda _: ("https://127.0.0.1:9/no-server", SecretStr(SECRET)),
        inputs=bad_events,
        judge=_webhook_answer,
    ),
}
FUNCTIONS: Final = tuple(_FED)


def trial(function: str, *, fed: InputCounts, how: settings) -> Callable[[], None]:
    """Return a Hypothesis test that feeds one function.

    Args:
        function: One of `FUNCTIONS`.
        fed: Where it counts.
        how: How many inputs, and what to do with a bad answer.
    """
    feeding = _FED[function]

    @how
    @given(bad=feeding.inputs)
    def feed(bad: Any) -> None:
        fed.answers[_judged(feeding, bad)] += 1
        fed.inputs += 1

    test: Callable[[], None] = feed
    return test


def _judged(feeding: _Fed, bad: Any) -> str:
    plane = ControlPlane()
    with _said(feeding.module) as said, _standing_on(feeding, plane):
        answer = feeding.module.handler(bad, Context())
    assert len(json.dumps(answer)) < LARGEST_ANSWER_BYTES
    assert not plane.service.jobs, "a job was launched"
    assert not plane.service.dynamodb.items, "something was written"
    assert SECRET not in said.getvalue(), "a secret was logged"
    return feeding.judge(answer)


@contextlib.contextmanager
def _standing_on(feeding: _Fed, plane: ControlPlane) -> Iterator[None]:
    """Let the function find these parts where it would find its real clients."""
    makers = {feeding.production: feeding.parts, **feeding.beside}
    stands_on = {name: make(plane) for name, make in makers.items()}
    real = {name: getattr(feeding.module, name) for name in stands_on}
    for name, part in stands_on.items():
        setattr(feeding.module, name, lambda part=part: part)
    try:
        yield
    finally:
        for name, part in real.items():
            setattr(feeding.module, name, part)


@contextlib.contextmanager
def _said(module: Any) -> Iterator[io.StringIO]:
    """Yield all that a function prints and logs, which is read nowhere else."""
    said = io.StringIO()
    handler = module.logger.registered_handler
    before = handler.setStream(said)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            yield said
    finally:
        handler.setStream(before)


def _nested(depth: int) -> Any:
    value: Any = SECRET
    for _ in range(depth):
        value = {"a": value}
    return value
