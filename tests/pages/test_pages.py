"""Each command of a page runs, and each output is the one of the day.

`pytest tests/pages --snapshot-update` writes the outputs of the day into the pages. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spotkeep_local.capacity import CapacityScript, Interruption
from tests.pages.every_block import PAGES
from tests.pages.shown import Block, blocks_of, renewed
from tests.pages.worlds import (
    PROJECT,
    Deployed,
    Fleets,
    Machine,
    Models,
    Notebook,
    Operator,
    Texts,
    World,
    as_on_pages,
    copy_example,
)

DOCS = PROJECT / "docs"
MACHINES = {
    "client": "client",
    "deployed": "digits",
    "example": "digits",
    "fleets": "digits",
    "local": "digits",
    "forgetful": "forgetful",
    "operator": "digits",
    "tutorial": None,
}
"""The worlds with real processes, and the example in the folder of each, if it begins with one."""
_KINDS = {"client": Notebook, "deployed": Deployed, "fleets": Fleets, "operator": Operator}
_CAPACITY = {"digits-lucky": CapacityScript(interruptions=(Interruption(at_fraction=0.4, notice_seconds=6.0),))}
_NAMES = {"RUN": "digits-1a2b3c4d", "SWEEP": "digits-sweep-0f0f0f0f", "SWEEP/17": "digits-sweep-0f0f0f0f/4"}


def _sessions() -> Iterator[Any]:
    for page in PAGES:
        worlds = dict.fromkeys(block.world for block in blocks_of(page.read_text()) if block.world)
        for world in worlds:
            yield pytest.param(
                page, world, id=f"{page.name}-{world}", marks=[pytest.mark.long] if world in MACHINES else []
            )


@pytest.fixture
def enter(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes the world of a name, and ends it."""
    made: list[World] = []

    def make(name: str) -> World:
        world: World
        if name in MACHINES:
            machine = _KINDS.get(name, Machine)
            world = machine(tmp_path / "machine", capacity=_CAPACITY)
        elif name == "text":
            from tests.pages.texts import TEXTS

            world = Texts(tmp_path, texts=TEXTS)
        else:
            monkeypatch.chdir(tmp_path)
            if name != "notification":
                request.getfixturevalue(name)
            texts = request.getfixturevalue("notifications") if name == "notification" else {}
            world = Models(tmp_path, spotkeep=request.getfixturevalue("spotkeep"), names=_NAMES, texts=texts)
        made.append(world)
        return world

    yield make
    for world in made:
        world.end()


@pytest.mark.parametrize(("page", "name"), [*_sessions()])
def test_a_page_shows_what_is_printed(
    page: Path, name: str, enter: Callable[[str], World], request: pytest.FixtureRequest
) -> None:
    text = page.read_text()
    blocks = blocks_of(text)
    world = enter(name)
    if example := MACHINES.get(name):
        copy_example(example, world.folder)
    if name == "operator":
        # Pages show the files of a command behind it, too.
        for block in blocks:
            if block.file:
                (world.folder / block.file).write_text(block.content)
    wrong = {}
    for block in blocks:
        if block.file:
            (world.folder / block.file).write_text(block.content)
        elif block.world == name and (content := _run(block, world)) != block.content:
            wrong[block] = content
    for file, picture in re.findall(r"^<!-- seen:(\S+) -->\n!\[[^\]]+\]\((\S+)\)$", text, flags=re.MULTILINE):
        if (world.folder / file).exists() and request.config.option.update_snapshots:
            seen = world.folder / file
            seen.write_text(as_on_pages(seen.read_text(), folder=world.folder))
            with request.getfixturevalue("browser").open_page(seen, name="page") as opened:
                shutil.copy(opened.look(width=900).screenshot, DOCS / picture)
    if wrong and request.config.option.update_snapshots:
        _write(page, wrong)
        return
    differences = "".join(_difference(block, content) for block, content in wrong.items())
    assert not differences, (
        f"{differences}pytest tests/pages --snapshot-update writes the outputs of the day into {page.name}"
    )


def _difference(block: Block, content: str) -> str:
    lines = difflib.unified_diff(
        block.content.splitlines(keepends=True), content.splitlines(keepends=True), "the page", "the day"
    )
    return "".join(lines)


def _run(block: Block, world: World) -> str:
    """Run a block's commands, and return the block with the output of the day."""
    lines: list[str] = []
    for shown in block.commands():
        if block.argument:
            printed = world.text(block.argument)
        else:
            printed, exit_code = world.run(shown.command)
            if not block.has_prompts:
                assert exit_code == 0, f"{shown.command}\n{chr(10).join(printed)}"
        lines += shown.typed
        if block.has_prompts or block.argument:
            lines += renewed(shown.output, printed, form=world.form)
    return "".join(f"{line}\n" for line in lines)


def _write(page: Path, contents: dict[Block, str]) -> None:
    """Write new outputs into a page. Tests of its other worlds may have written theirs since it was read."""
    text = page.read_text()
    for block, content in contents.items():
        old, new = (re.sub(r"^(?=.)", block.indent, each, flags=re.MULTILINE) for each in (block.content, content))
        assert old in text, f"{page} has changed meanwhile"
        text = text.replace(old, new, 1)
    page.write_text(text)
