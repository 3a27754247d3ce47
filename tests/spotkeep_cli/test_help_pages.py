"""`spotkeep help` prints pages and sections, names the near ones, and gives a command's help."""

from __future__ import annotations

import pytest

from spotkeep_cli import entry


def test_without_a_topic_it_lists_the_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["help"]) == 0
    listed = capsys.readouterr().out
    assert "  job-file " in listed
    assert "  runbook " in listed


def test_a_page_is_printed_with_links_that_can_be_followed_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["help", "prices"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# Prices\n")
    assert "[settings]" in shown
    assert ".md)" not in shown
    assert "<https://" in shown


def test_comments_of_a_page_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["help", "tutorial"]) == 0
    assert "<!--" not in capsys.readouterr().out


def test_words_choose_a_section_with_the_parts_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["help", "runbook", "A", "run", "looks", "stuck."]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("## A run looks stuck\n")
    assert "### What EC2 says of a run that waits" in shown
    assert "## A record cannot be read" not in shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job-fiel"], "did you mean job-file?"),
        (["stuck"], "spotkeep help runbook 'A run looks stuck'"),
        (["xyzzy"], "`spotkeep help` lists the pages"),
        (["runbook", "nothing of it"], "A record cannot be read"),
    ],
)
def test_what_is_not_there_is_answered_with_what_is(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert entry.main(["help", *words]) == 2
    answer = capsys.readouterr()
    assert answer.out == ""
    assert said in answer.err


def test_the_name_of_a_command_gives_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        entry.main(["help", "launch"])
    assert ended.value.code == 0
    assert "Usage: spotkeep launch" in capsys.readouterr().out
