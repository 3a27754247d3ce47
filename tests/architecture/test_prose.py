"""The sentences of pages and docstrings stay short and plain: a budget that only falls."""

from __future__ import annotations

import ast
import dataclasses
import re
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figures:
    """How long and how winding sentences are.

    Attributes:
        median_words: The words of the sentence in the middle.
        long: Sentences of more than 25 words, in percent.
        marked: Sentences with a semicolon, or with a colon inside, in percent.
        clauses: Sentences with "what" or "who", in percent.
    """

    median_words: float
    long: float
    marked: float
    clauses: float


# Lower a figure here when the sources are better than it says. No figure is ever raised.
BUDGET = {
    "pages": Figures(median_words=13, long=4, marked=2, clauses=2),
    "docstrings": Figures(median_words=9, long=1, marked=2, clauses=1),
}


_SECTION = re.compile(r"^(?:Args|Attributes|Raises|Returns|Yields):$\n", re.MULTILINE)
_ITEM = re.compile(r"^ {4}[`*\w.]+(?:, [`*\w.]+)*: (?=\S)", re.MULTILINE)
"""The name before an item of such a section. It is no part of the sentence, and ends the one of the item before."""


def sentences(text: str) -> list[str]:
    """Split a text into sentences. Tables, headings, code blocks and sentences under four words do not count."""
    text = _ITEM.sub("\n\n", _SECTION.sub("\n", text))
    prose = "\n".join(
        line
        for line in re.sub(r"```.*?```", "", text, flags=re.DOTALL).splitlines()
        if not line.lstrip().startswith(("|", "#", ">>>"))
    )
    split = (re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"])", " ".join(each.split())) for each in re.split(r"\n\s*\n", prose))
    return [sentence for paragraph in split for sentence in paragraph if len(sentence.split()) >= 4]


def docstrings(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def measured(found: Sequence[str]) -> Figures:
    def share(pattern: str) -> float:
        return 100 * sum(bool(re.search(pattern, sentence, flags=re.IGNORECASE)) for sentence in found) / len(found)

    return Figures(
        median_words=statistics.median(len(sentence.split()) for sentence in found),
        long=100 * sum(len(sentence.split()) > 25 for sentence in found) / len(found),
        marked=share(r";|: "),
        clauses=share(r"\b(what|who|whom|whose|whoever)\b"),
    )


def against(budget: Figures, figures: Figures) -> list[str]:
    """Return a problem for each figure that is above its budget, or more than a point below it."""
    problems = []
    for name, allowed in dataclasses.asdict(budget).items():
        found = getattr(figures, name)
        if round(found) > allowed:
            problems.append(f"{name} is {found:.1f}, the budget {allowed}: write shorter sentences (CONTRIBUTING.md)")
        elif found < allowed - 1:
            problems.append(f"{name} is {found:.1f}, the budget {allowed}: write {round(found)} into BUDGET")
    return problems


def written() -> dict[str, list[str]]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [file for file in listed if (ROOT / file).is_file()]
    # The reference is generated from docstrings, and is mostly lists of options.
    pages = [
        file
        for file in files
        if file == "README.md"
        or (file.startswith("docs/") and file.endswith(".md") and file != "docs/command-reference.md")
    ]
    code = [file for file in files if file.endswith(".py") and not file.startswith("tests/")]
    return {
        "pages": [each for page in pages for each in sentences((ROOT / page).read_text())],
        "docstrings": [
            each for file in code for text in docstrings((ROOT / file).read_text()) for each in sentences(text)
        ],
    }


def test_sentences_keep_their_budget() -> None:
    found = written()
    assert {name: against(BUDGET[name], measured(found[name])) for name in BUDGET} == {"pages": [], "docstrings": []}


def test_what_counts_as_a_sentence() -> None:
    text = "# A heading\n\nOne is short. This one has\nfive words.\n\n| a row of a table |\n\n```\nsome code here\n```"
    assert sentences(text) == ["This one has five words."]


def test_each_item_of_a_section_begins_a_sentence_and_its_name_is_no_part_of_one() -> None:
    text = (
        "Give a checkpoint its place.\n\nArgs:\n    name: The name of it, which\n        goes on here. Another: with"
        " a mark.\n    *more, step: The number of it.\n\nRaises:\n    OSError, ValueError: There is no such place."
    )
    assert sentences(text) == [
        "Give a checkpoint its place.",
        "The name of it, which goes on here.",
        "Another: with a mark.",
        "The number of it.",
        "There is no such place.",
    ]


@pytest.mark.parametrize(
    ("found", "problem"), [(10.4, ""), (10.6, "write shorter sentences"), (9.0, ""), (8.9, "write 9 into BUDGET")]
)
def test_a_budget_is_kept_and_falls(found: float, problem: str) -> None:
    budget = Figures(median_words=13, long=10, marked=50, clauses=20)
    problems = against(budget, dataclasses.replace(budget, long=found))
    assert [problem in each for each in problems] == [True] * bool(problem)
