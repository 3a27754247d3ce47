"""The report says the verdict as text, as JSON and as a JUnit file, and each is one that its reader accepts."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from spotkeep_rehearsal.report import document_of, junit_of, next_command, text_of
from spotkeep_rehearsal.verdict import Going, LossFacts, Status, Verdict

LOSS = LossFacts(
    notice=True,
    seconds=1.25,
    at_step=4,
    resumed_from=3,
    repeated=1,
    going=Going.ON,
    found_files=("a.pt", "b.pt"),
    read_files=None,
)
FAILED = Verdict(
    Status.FAIL, "It fails.", reasons=("one\nsecond line", "\x1b[31m\x00two <&>"), losses=(LOSS,), change="mend it"
)


def test_the_text_has_each_reason_and_what_each_loss_cost() -> None:
    lines = text_of(FAILED)
    assert "FAIL  It fails." in lines
    assert lines[lines.index("  - one") + 1] == "    second line"
    row = next(line.split() for line in lines if "SIGTERM" in line)
    assert row == ["4", "SIGTERM", "2", "?", "3", "1"]
    assert lines[-1] == "Change: mend it"


def test_no_line_of_the_text_is_wider_than_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    long = "the checkpoint that it left was not read again " * 5
    verdict = Verdict(Status.FAIL, long, reasons=(f"{long}\n  {long}",), remarks=(long,), losses=(LOSS,), change=long)
    lines = text_of(verdict)
    assert 80 < max(map(len, lines)) <= 100
    assert " ".join(" ".join(lines).split()).count(long.strip()) == 5


def test_a_verdict_without_a_reason_or_with_an_empty_one_is_shown() -> None:
    assert text_of(Verdict(Status.PASS, "Good.")) == ["", "PASS  Good."]
    assert "NOT JUDGED  why" in text_of(Verdict(Status.NOT_JUDGED, "why", reasons=("",)))


def test_the_document_is_json_and_keeps_unknown_apart_from_none() -> None:
    document = json.loads(json.dumps(document_of(FAILED, words=["python", "a b.py"], facts={"seed": 3})))
    assert (document["verdict"], document["seed"], document["command"]) == ("FAIL", 3, ["python", "a b.py"])
    assert document["losses"][0]["read_files"] is None
    assert document["losses"][0]["found_files"] == ["a.pt", "b.pt"]


@pytest.mark.parametrize(
    ("status", "element", "counts"),
    [
        (Status.FAIL, "failure", ("1", "0")),
        (Status.NOT_JUDGED, "error", ("0", "1")),
        (Status.PASS, None, ("0", "0")),
    ],
)
def test_junit_counts_a_verdict_once_whatever_the_output_had(
    status: Status, element: str | None, counts: tuple[str, str]
) -> None:
    verdict = Verdict(status, "head\x0bline", reasons=FAILED.reasons, losses=(LOSS,))
    suite = ET.fromstring(junit_of(verdict, words=["python", "\x07train.py"], seconds=2.0))  # noqa: S314 - our own
    assert (suite.get("failures"), suite.get("errors")) == counts
    case = suite.findall("testcase")[0]
    found = [child.tag for child in case]
    assert found == ([element] if element else [])
    assert suite.get("tests") == str(len(suite.findall("testcase")))


def test_the_next_command_can_be_typed() -> None:
    words = ["python", "my train.py"]
    again, _ = next_command(FAILED, words=words, options=["--for", "2m"])
    assert again == "spotkeep rehearse --for 2m -- python 'my train.py'"
    assert next_command(Verdict(Status.PASS, ""), words=words, options=[])[0] == "spotkeep init 'my train.py'"
