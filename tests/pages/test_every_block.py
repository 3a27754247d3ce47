"""No block of a page is left out: each runs, is compared, is parsed, or gives a reason of a short list.

`docs/testing.md` has the ways. The lines of a block that does not run are read by the programs that they name.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.pages.checked import problems_of, problems_of_command
from tests.pages.code import plain_code, problems_of_code
from tests.pages.every_block import GENERATED, PROJECT, Placed, counts, placed_blocks
from tests.pages.phrases import phrases_of, phrases_of_sources
from tests.pages.shown import REASONS

BLOCKS = placed_blocks()
CODE = {"python", "diff"}
NOT_COMMANDS = {*CODE, "yaml", "json", "text", "mermaid"}
OUTPUTS = {"is-measured", "runs-for-minutes"}
NOT_RUN = 85
"""The blocks that do not run. The number falls, or a new one is reviewed."""
FEWEST = 250
"""The blocks of all pages together, or the parser of blocks sees some no more."""


def test_each_block_is_tested_or_gives_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    silent = [str(placed) for placed in BLOCKS if placed.way is None]
    assert silent == [], "name the world that shows the block, or a reason (tests/pages/shown.py)"
    assert len(BLOCKS) >= FEWEST
    with capsys.disabled():
        print(f"\nblocks of pages: {counts()}")


def test_each_fence_belongs_to_a_block() -> None:
    for page in {placed.page for placed in BLOCKS}:
        text = (PROJECT / page).read_text()
        fences = re.findall(r"^ *(?:```|~~~)", text, flags=re.MULTILINE)
        assert len(fences) == 2 * sum(placed.page == page for placed in BLOCKS), page


def test_reasons_are_those_of_the_list_and_the_blocks_that_do_not_run_get_fewer() -> None:
    reasons = {str(placed): placed.block.reason for placed in BLOCKS if placed.block.reason}
    assert {place: reason for place, reason in reasons.items() if reason not in REASONS} == {}
    assert set(reasons.values()) == set(REASONS), "remove a reason that no block gives"
    assert len(reasons) <= NOT_RUN


def test_the_tests_that_are_named_read_the_page() -> None:
    named = {(placed.page, placed.block.test) for placed in BLOCKS if placed.block.test} | set(GENERATED.items())
    for page, test in named:
        assert Path(page).name in (PROJECT / str(test)).read_text(), f"{test} does not read {page}"


def _with_commands(placed: Placed) -> bool:
    block = placed.block
    if placed.page in GENERATED or block.language in NOT_COMMANDS or block.argument or block.reason == "is-a-diagram":
        return False
    return block.has_prompts or not (block.reason == "is-measured" or _is_an_output(placed))


def _is_an_output(placed: Placed) -> bool:
    """Return True for an output alone. Its first line begins with no program."""
    first = placed.block.content.split(maxsplit=1)[0]
    return shutil.which(first) is None and first not in {"make", "uvx", "pip", "pipx", "SPOTKEEP_PAUSE_AT_STEP=1000"}


@pytest.mark.parametrize("placed", [placed for placed in BLOCKS if _with_commands(placed)], ids=str)
def test_the_programs_that_commands_name_take_them(placed: Placed) -> None:
    files = {str(other.block.file): other.block.content for other in BLOCKS if other.page == placed.page}
    assert problems_of(placed.block, files=files) == []


@pytest.mark.parametrize(
    "placed", [placed for placed in BLOCKS if placed.block.language in CODE and not placed.block.test], ids=str
)
def test_code_is_python_and_calls_us_as_we_are(placed: Placed) -> None:
    assert problems_of_code(plain_code(placed.block)) == []


@pytest.mark.parametrize("placed", [placed for placed in BLOCKS if placed.block.language == "json"], ids=str)
def test_json_is_json(placed: Placed) -> None:
    text = placed.block.content.strip()
    # Three dots stand for more members. A member alone is a part of an object.
    text = re.sub(r",\s*\.\.\.(?=\s*[\]}])", "", text)
    json.loads(text if text[0] in "[{" else f"{{{text}}}")


@pytest.mark.parametrize("placed", [placed for placed in BLOCKS if placed.block.language == "mermaid"], ids=str)
def test_a_picture_names_its_kind(placed: Placed) -> None:
    assert placed.block.content.split()[0] in {"flowchart", "graph", "sequenceDiagram", "stateDiagram-v2"}


def _printed(placed: Placed) -> str:
    """The output of a block that does not run. Without a prompt it is the whole block."""
    if placed.block.has_prompts:
        return "\n".join(line for shown in placed.block.commands() for line in shown.output)
    return placed.block.content


@pytest.mark.parametrize("placed", [placed for placed in BLOCKS if placed.block.reason in OUTPUTS], ids=str)
def test_the_phrases_of_an_output_are_those_of_the_sources(placed: Placed) -> None:
    phrases = [] if _with_commands(placed) and not placed.block.has_prompts else phrases_of(_printed(placed))
    unknown = [" ".join(phrase) for phrase in phrases if phrase not in phrases_of_sources()]
    # A text that a program puts together has some that no source has.
    assert len(unknown) * 8 <= len(phrases), unknown


EVENT = re.compile(r"^spotkeep-event: (.*)$", flags=re.MULTILINE)


@pytest.mark.parametrize("placed", [placed for placed in BLOCKS if EVENT.search(placed.block.content)], ids=str)
def test_events_are_those_that_the_library_writes(placed: Placed) -> None:
    written = "".join(path.read_text() for path in (PROJECT / "training").rglob("*.py"))
    for line in EVENT.findall(placed.block.content):
        event = json.loads(line)
        assert list(event)[:2] == ["event", "time"]
        assert f'"{event["event"]}"' in written
        for name in list(event)[2:]:
            assert re.search(rf'\b{name}=|"{name}"', written), f"no event has {name}"


def test_a_phrase_that_no_source_has_is_found() -> None:
    shown = "✓ training  25.5 s  the capacity waits for new turtles (us-east-1a)\nReport: .spotkeep/report.html"
    assert phrases_of(shown) == [
        ("the", "capacity", "waits"), ("capacity", "waits", "for"), ("waits", "for", "new"), ("for", "new", "turtles"),
    ]  # fmt: skip
    assert ("for", "new", "turtles") not in phrases_of_sources()
    assert ("waiting", "for", "new") in phrases_of_sources()


def test_wrong_lines_are_refused() -> None:
    for line, problem in {
        "spotkeep describe RUN --colour": "No such option",
        "spotkeep rehearse --twice -- python train.py": "unrecognized arguments",
        "aws sagemaker stop-training-job --training-job-name x --when now": "Unknown options",
        "make benchmark-everything": "no target",
        "spotkeep cdk deploy -c notify=a@example.com": "no setting",
        "pip install 'spotkeep[gpu]'": "no extra",
        "frobnicate": "not among the programs",
        "while true; do ls": "bash does not read",
    }.items():
        [found] = problems_of_command(line)
        assert problem in found
