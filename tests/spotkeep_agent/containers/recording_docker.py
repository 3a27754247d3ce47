"""A `docker` that writes down how it is called, and answers what a test says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PROGRAM = """\
#!{python}
import json, os, sys, time
folder = {folder!r}
words = sys.argv[1:]
given = "" if sys.stdin.isatty() else sys.stdin.read()
called = {{"words": words, "given": given, "config": os.environ.get("DOCKER_CONFIG")}}
with open(os.path.join(folder, "calls"), "a") as file:
    file.write(json.dumps(called) + "\\n")
with open(os.path.join(folder, "answers")) as file:
    answers = json.load(file)
mine = answers.get(words[0], [])
with open(os.path.join(folder, "calls")) as file:
    turn = sum(json.loads(line)["words"][0] == words[0] for line in file) - 1
answer = mine[min(turn, len(mine) - 1)] if mine else {{}}
sys.stdout.write(answer.get("said", ""))
sys.stdout.flush()
time.sleep(answer.get("seconds", 0))
sys.exit(answer.get("code", 0))
"""


@dataclass
class Call:
    """One call.

    Attributes:
        words: What follows `docker`.
        given: Its standard input.
        config: DOCKER_CONFIG.
    """

    words: list[str]
    given: str
    config: str | None


class RecordingDocker:
    """The program, in a folder of its own; each verb's answers come one after the other, the last one again and again.

    Args:
        folder: For the program, `bin/docker`, and for what it writes down.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "bin"
        self.path.mkdir(parents=True)
        program = self.path / "docker"
        program.write_text(_PROGRAM.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.answers: dict[str, list[dict[str, Any]]] = {}
        self.answer("info", said='{"nvidia":{},"runc":{}}')

    def answer(self, verb: str, *, code: int = 0, said: str = "", seconds: float = 0.0) -> None:
        """Add an answer of a verb."""
        self.answers.setdefault(verb, []).append({"code": code, "said": said, "seconds": seconds})
        (self._folder / "answers").write_text(json.dumps(self.answers))

    def answer_always(self, verb: str, *, code: int = 0, said: str = "", seconds: float = 0.0) -> None:
        """Forget a verb's answers, and give it this one."""
        self.answers.pop(verb, None)
        self.answer(verb, code=code, said=said, seconds=seconds)

    def calls(self, verb: str | None = None) -> list[Call]:
        """What it was called with, all or those of one verb."""
        file = self._folder / "calls"
        found = [Call(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        return [call for call in found if verb is None or call.words[0] == verb]
