"""Each open line of the pages has a question, each question a line, and each answer follows from what was seen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.first_account.questions import NOT_ABOUT_AWS, QUESTIONS, SeenJob
from spotkeep_fleet.tags import RUN_TAG

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "first-account.md"
LINK = re.compile(r"\[unverified\]\(first-account\.md#([a-z-]+)\)")
LEFT_OPEN = re.compile(
    r"AWS does(?: not|n't) (?:say|document)|AWS says nothing|does AWS not document|not documented by AWS"
    r"|documentation says nothing|\bit does not say\b|is not promised|it is not known how|\bNot shown is\b|unverified",
    flags=re.IGNORECASE,
)
BY_ID = {question.id: question for question in QUESTIONS}


def statements() -> Iterator[tuple[str, str]]:
    """Yield each paragraph, item and row of each page but the one of the questions."""
    for page in sorted(DOCS.glob("*.md")):
        if page != PAGE:
            for part in re.split(r"\n\s*\n|\n(?=\s*(?:- |\||#))", page.read_text()):
                if not part.startswith("#"):
                    yield page.name, " ".join(part.split())


def test_each_line_that_aws_leaves_open_names_its_question() -> None:
    unnamed = [(page, text) for page, text in statements() if LEFT_OPEN.search(text) and not LINK.search(text)]
    assert unnamed == [], "link it to a question of spotkeep_cli.first_account.questions, or to a new one"


def test_each_question_has_a_line_and_each_named_question_is_asked() -> None:
    named = {id_ for _, text in statements() for id_ in LINK.findall(text)}
    assert named == set(BY_ID)


def test_the_page_has_each_question_as_it_is_asked() -> None:
    rows = [
        f'| <a id="{each.id}"></a>`{each.id}` | {each.asks} | {each.documented} '
        f"| {f'the job `{each.job}`' if each.job else 'nothing of the hour'} |"
        for each in QUESTIONS
    ]
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| <a id=")]
    assert written == rows, "\n".join(rows)


def training_job(*statuses: str, **fields: Any) -> dict[str, Any]:
    return {
        "TrainingJobName": "j-1",
        "SecondaryStatusTransitions": [{"Status": status} for status in statuses],
        "Tags": [],
        **fields,
    }


def fact(name: str, **fields: Any) -> dict[str, Any]:
    return {"fact": name, "at": 1.0, **fields}


def uploads(*names: str) -> tuple[dict[str, Any], ...]:
    marked = [fact("uploaded", file=name, marked_at=float(number)) for number, name in enumerate(names)]
    return (fact("wrote", files=["a", "b", "c"]), *marked)


def host(current: str, hostname: str, *, resolves_to: str = "10.0.0.1") -> dict[str, Any]:
    return fact("host", current=current, hostname=hostname, resolves_to=resolves_to)


INTERRUPTED = ("Starting", "Training", "Interrupted", "Starting", "Training", "Completed")
POOL = {"extended_to_seconds": 420, "extended_after_seconds": 90.0}


def kept(seconds: int, status: str = "Terminated") -> tuple[dict[str, Any]]:
    return (training_job(WarmPoolStatus={"Status": status, "ResourceRetainedBillableTimeInSeconds": seconds}),)


@pytest.mark.parametrize(
    ("id_", "seen", "verdict", "words"),
    [
        ("spot-sigterm", SeenJob(jobs=(training_job("Training"),)), "not answered", "AWS interrupted no job"),
        ("spot-sigterm", SeenJob(jobs=(training_job(*INTERRUPTED),)), "as documented", "no SIGTERM"),
        (
            "spot-sigterm",
            SeenJob(jobs=(training_job(*INTERRUPTED),), printed=(fact("sigterm"),)),
            "otherwise",
            "1 times",
        ),
        ("end-on-notice", SeenJob(jobs=(training_job("Training"),)), "not answered", "interrupted no job"),
        ("end-on-notice", SeenJob(jobs=(training_job(*INTERRUPTED),)), "as documented", "Starting, Training"),
        ("end-on-notice", SeenJob(jobs=(training_job("Interrupted", "Completed"),)), "otherwise", "Completed"),
        ("sync-order", SeenJob(printed=uploads("b", "a", "c")), "as documented", "uploaded as b, a, c"),
        ("sync-order", SeenJob(printed=uploads("a", "c")), "not answered", "promises nothing"),
        ("sync-order", SeenJob(printed=uploads("a")), "not answered", "1 of 3"),
        ("upload-markers", SeenJob(printed=uploads("a")), "as documented", "1 of 3"),
        ("upload-markers", SeenJob(printed=uploads()), "otherwise", "0 of 3"),
        ("upload-markers", SeenJob(jobs=(training_job(),)), "not answered", "wrote no files"),
        ("host-names", SeenJob(printed=(host("algo-1", "ip-1"), host("algo-2", "ip-2"))), "as documented", "ip-2"),
        ("host-names", SeenJob(printed=(host("algo-1", "algo-1"), host("algo-2", "algo-2"))), "otherwise", "algo-2"),
        (
            "host-names",
            SeenJob(printed=(host("algo-1", "algo-1", resolves_to="127.0.0.1"), host("algo-2", "algo-2"))),
            "as documented",
            "algo-1",
        ),
        ("host-names", SeenJob(printed=(host("algo-1", "algo-1"),)), "not answered", "1 hosts"),
        ("batch-tags", SeenJob(jobs=(training_job(),)), "as documented", "none"),
        ("batch-tags", SeenJob(jobs=(training_job(Tags=[{"Key": RUN_TAG}]),)), "otherwise", RUN_TAG),
        ("batch-tags", SeenJob(service_jobs=({"status": "RUNNABLE"},)), "not answered", "no training job"),
        (
            "batch-started-at",
            SeenJob(service_jobs=({"status": "RUNNABLE", "startedAt": 0},)),
            "as documented",
            "0 in RUNNABLE",
        ),
        ("batch-started-at", SeenJob(service_jobs=({"status": "RUNNABLE"},)), "otherwise", "None"),
        ("batch-started-at", SeenJob(service_jobs=({"status": "RUNNING"},)), "not answered", "had begun"),
        (
            "batch-next-job",
            SeenJob(jobs=(training_job(TrainingEndTime=5), training_job(CreationTime=6))),
            "as documented",
            "in turn",
        ),
        (
            "batch-next-job",
            SeenJob(jobs=(training_job(TrainingEndTime=5), training_job(CreationTime=4))),
            "otherwise",
            "j-1",
        ),
        ("batch-next-job", SeenJob(jobs=(training_job(),)), "not answered", "1 training jobs"),
        ("pool-extension", SeenJob(jobs=kept(425), noted=POOL), "as documented", "425 s"),
        ("pool-extension", SeenJob(jobs=kept(510), noted=POOL), "otherwise", "510 s"),
        ("pool-extension", SeenJob(jobs=kept(100, "Available"), noted=POOL), "not answered", "had not expired"),
        ("pool-extension", SeenJob(jobs=kept(425)), "not answered", "not extended"),
        ("pool-period", SeenJob(jobs=kept(1), noted={**POOL, "period_shown": 420}), "as documented", "420"),
        ("pool-period", SeenJob(jobs=kept(1), noted={**POOL, "period_shown": 300}), "otherwise", "300"),
        ("pool-period", SeenJob(jobs=kept(1)), "not answered", "not extended"),
        ("pool-quota", SeenJob(jobs=kept(0), noted={"pool_after_end": None}), "as documented", "missing"),
        (
            "pool-quota",
            SeenJob(jobs=kept(9), noted={"pool_after_end": {"Status": "Available"}}),
            "not answered",
            "has the quota",
        ),
        ("pool-without-keep-alive", SeenJob(jobs=kept(9)), "not answered", "was not resumed"),
        (
            "pool-without-keep-alive",
            SeenJob(jobs=(training_job(WarmPoolStatus={"Status": "Reused", "ReusedByJob": "j-1"}), training_job())),
            "as documented",
            "Reused",
        ),
        ("pool-without-keep-alive", SeenJob(jobs=(*kept(9, "Available"), training_job())), "otherwise", "Available"),
    ],
)
def test_an_answer_follows_from_what_was_seen(id_: str, seen: SeenJob, verdict: str, words: str) -> None:
    question = BY_ID[id_]
    found = question.answered({question.job: seen}, local=False)
    assert (found.verdict, words in found.seen) == (verdict, True), found


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.id)
def test_without_its_job_a_question_is_not_answered_and_the_reason_is_given(question: Any) -> None:
    found = question.answered({question.job: SeenJob(problem="quota of 0")} if question.job else {}, local=False)
    assert found.verdict == "not answered"
    assert ("quota of 0" if question.job else "not asked: ") in found.seen


def test_the_local_aws_answers_nothing_about_aws() -> None:
    seen = {each.job: SeenJob(jobs=(training_job(*INTERRUPTED),)) for each in QUESTIONS}
    found = [each.answered(seen, local=True) for each in QUESTIONS]
    assert {answer.verdict for answer in found} == {"not answered"}
    assert all(answer.seen.startswith(NOT_ABOUT_AWS) for answer in found)
