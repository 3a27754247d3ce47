"""llms.txt and the skill file name commands, pages and exit codes that exist, and stay short."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer.main
import yaml

from spotkeep_cli.errors import ExitCode
from spotkeep_cli.main import app
from spotkeep_jobs.record.states import RunState

ROOT = Path(__file__).parents[2]
LLMS = (ROOT / "docs" / "llms.txt").read_text()
SKILL = (ROOT / "cli" / "spotkeep_cli" / "SKILL.md").read_text()


def commands() -> dict[str, Any]:
    """The commands with their options, by their words."""

    def below(command: Any, words: str) -> dict[str, Any]:
        if not hasattr(command, "commands"):
            return {words: command}
        return {
            name: each
            for word, inner in command.commands.items()
            for name, each in below(inner, f"{words} {word}".strip()).items()
        }

    return below(typer.main.get_command(app), "")


def named(text: str) -> set[tuple[str, ...]]:
    """The command lines of a text, as words after `spotkeep`."""
    return {tuple(line.split()) for line in re.findall(r"`spotkeep ([^`]+)`", text)}


def test_each_command_and_option_that_they_name_exists() -> None:
    known = commands()
    lines = named(SKILL) | named(LLMS)
    assert len(lines) > 10
    for words in lines:
        plain = [word for word in words if word != "--local"]
        command = next((name for name in (" ".join(plain[:2]), *plain[:1]) if name in known), None)
        assert command is not None or plain == [], f"spotkeep {' '.join(words)}"
        if command and command != "cdk" and "--" not in plain:
            options = {option for parameter in known[command].params for option in parameter.opts}
            assert {word for word in plain if word.startswith("-")} <= options, f"spotkeep {' '.join(words)}"


def test_exit_codes_and_states_are_those_of_the_code() -> None:
    codes = {
        int(code)
        for code in re.findall(
            r"(?:^|, |,\n)(\d+) [a-z]", SKILL.partition("## Exit codes")[2].partition("##")[0].strip()
        )
    }
    assert codes == {
        ExitCode.DONE, ExitCode.USAGE, ExitCode.REFUSED, ExitCode.NOT_FOUND, ExitCode.NO_CONNECTION,
        ExitCode.RUN_FAILED, ExitCode.RUN_STOPPED, ExitCode.NOT_CONFIRMED, ExitCode.REHEARSAL_FAILED,
        ExitCode.REHEARSAL_NOT_JUDGED,
    }  # fmt: skip
    table = SKILL.partition("## States of a run")[2].partition("##")[0]
    states = {
        word.strip() for row in re.findall(r"^\| ([a-z, ]+) \|", table, flags=re.MULTILINE) for word in row.split(",")
    }
    assert states - {"state"} <= {state.value.lower() for state in RunState}


def test_the_skill_file_is_short_and_says_when_to_use_it() -> None:
    _, front, body = SKILL.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["name"] == "spotkeep"
    assert 50 < len(matter["description"]) < 1024
    assert len(body.splitlines()) < 120


def test_llms_txt_names_pages_that_exist() -> None:
    assert LLMS.startswith("# Spotkeep\n\n> ")
    assert len(LLMS.splitlines()) < 80
    targets = re.findall(r"\]\(([^)]+)\)", LLMS)
    own = {"SKILL.md"}
    assert [target for target in targets if target not in own and not (ROOT / "docs" / target).exists()] == []
