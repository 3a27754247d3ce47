"""A bar shows the text that it is given, also where that looks like markup."""

from __future__ import annotations

import io

from rich.console import Console

from spotkeep_cli.rendering.progress_bars import showing_bytes, showing_deployment
from spotkeep_local.cdk import CdkProgress, CdkStep


def terminal() -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_download_of_a_name_with_brackets_is_shown() -> None:
    console = terminal()
    with showing_bytes(console, "downloading [/best] [bold]model", 2**21) as advance:
        advance(2**20)
    assert "downloading [/best] [bold]model" in written(console)


def test_a_deployment_of_a_stack_with_brackets_is_shown() -> None:
    console = terminal()
    with showing_deployment(console) as show:
        show(CdkProgress(step=CdkStep.DEPLOY, text="", stack="[/Jobs]"))
    assert "cdk deploy [/Jobs]" in written(console)
