"""Watching reads little, ends by itself, waits out what is refused, and leaves on Ctrl-C."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from rich.console import Console

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import NoConnectionError
from spotkeep_cli.following import LOST_CONNECTION_TRIES
from spotkeep_cli.rendering.printable import PrintableConsole
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.watching import CALL_SECONDS, RunsAndSweeps, watched_list, watched_run
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import RunState

RUN = "digits-1a2b3c4d"
CALLS = ("get_item", "query", "scan", "batch_get_item")
LOG_CALLS = ("describe_log_streams", "get_log_events", "filter_log_events")


class World:
    """A deployment whose calls are counted at its clients, and a clock that runs while a watcher waits."""

    def __init__(self, deployment: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.deployment, self.make = deployment, make
        self.seconds = 0.0
        self.calls: list[float] = []
        self.refusals: Iterator[Exception | None] = itertools.repeat(None)
        self.on_wait: Callable[[], object] = lambda: None
        for client, names in ((deployment.dynamodb, CALLS), (deployment.logs, LOG_CALLS)):
            for name in names:
                if hasattr(client, name):
                    monkeypatch.setattr(client, name, self._counted(getattr(client, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            self.calls.append(self.seconds)
            error = next(self.refusals, None)
            if error is not None:
                raise error
            return method(**request)

        return call

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.on_wait()

    @property
    def invocation(self) -> Invocation:
        seams = Seams(
            connect=lambda _: self.deployment,
            spot_market=lambda _: pytest.fail("nothing is planned"),
            now=lambda: self.make.now + timedelta(seconds=self.seconds),
            sleep=self.sleep,
        )
        return Invocation(options=ConnectionOptions(), seams=seams)

    def list(self, console: Console) -> RunsAndSweeps:
        def read() -> RunsAndSweeps:
            now = self.invocation.seams.now()
            return RunsAndSweeps.read(
                self.deployment.table,
                everything=False,
                owner=None,
                limit=20,
                rehearsals=False,
                most_read=20,
                now=now,
            )

        return watched_list(read, console=console, deployment=self.deployment, invocation=self.invocation)

    def run(self, console: Console) -> Run:
        first = self.deployment.table.runs.get(RUN)
        return watched_run(first, console=console, deployment=self.deployment, invocation=self.invocation)


@pytest.fixture
def world(deployment: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(deployment, make, monkeypatch)


def no_terminal() -> Console:
    console = PrintableConsole(stderr=False)
    console.file = io.StringIO()
    return console


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def print_in(world: World, *lines: str) -> list[tuple[float, str]]:
    """Let the run's job print, and give what it has printed."""
    stream: list[tuple[float, str]] = world.deployment.logs.streams.setdefault(f"{RUN}-1/algo-1-1", [])
    stream += [(world.make.now.timestamp() * 1_000, line) for line in lines]
    return stream


def progress(step: int, **fields: Any) -> str:
    return "spotkeep-event: " + json.dumps({"event": "progress", "time": 1.0 + step, "step": step, **fields})


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "not now"}}, "GetItem")


def versions_of(make: Any, count: int) -> list[Run]:
    """A run that changes at each reading, and ends at last."""
    return [*(make.run(version=number) for number in range(1, count)), make.completed(version=count)]


def at_most_one_in_five_seconds(calls: list[float], *, at_begin: int) -> bool:
    """Whether the calls until any moment are no more than one in five seconds, beside those of the first reading."""
    return all(
        number <= at_begin + at / CALL_SECONDS + 1e-9 for number, at in enumerate(calls, start=1) if at > calls[0]
    )


@pytest.mark.parametrize("changes", [1, 2, 30])
def test_a_run_is_read_with_one_call_in_five_seconds_however_often_it_changes(
    world: World, make: Any, changes: int
) -> None:
    unchanged = [make.run(version=0) for _ in range(20)]
    world.deployment.dynamodb.add(*unchanged, *versions_of(make, changes + 1), timeline=make.timeline())
    print_in(world, "epoch 1")
    console = no_terminal()
    assert world.run(console).state is RunState.COMPLETED
    of_the_last_reading = 5
    begin = world.calls.count(world.calls[0])
    assert begin <= 8
    assert len(world.calls) > 20
    assert at_most_one_in_five_seconds(world.calls, at_begin=begin + of_the_last_reading)


def test_a_list_is_read_with_one_call_in_five_seconds_until_all_has_ended(world: World, make: Any) -> None:
    world.deployment.dynamodb.add(make.run())
    waits = itertools.count(1)

    def end_after_ten() -> None:
        if next(waits) == 10:
            world.deployment.dynamodb.add(make.completed())

    world.on_wait = end_after_ten
    console = no_terminal()
    listed = world.list(console)
    assert [run.state for run in listed.runs] == [RunState.COMPLETED]
    of_one_reading = 2
    assert world.calls.count(0.0) == of_one_reading
    assert at_most_one_in_five_seconds(world.calls, at_begin=2 * of_one_reading)
    assert written(console).splitlines() == [
        "12:00:00  digits-1a2b3c4d  training  ml.m5.xlarge spot",
        f"{make.now + timedelta(seconds=world.seconds):%H:%M:%S}  digits-1a2b3c4d  completed  ml.m5.xlarge spot",
    ]


def test_where_the_output_is_no_terminal_a_run_has_a_line_a_change_and_a_tenth(world: World, make: Any) -> None:
    world.deployment.dynamodb.add(
        *(make.run(version=1) for _ in range(12)), make.completed(version=2), timeline=make.timeline()[:3]
    )
    steps = itertools.count(1)
    world.on_wait = lambda: print_in(world, progress(next(steps), total_steps=20))
    console = no_terminal()
    world.run(console)
    clocks = [line[:8] for line in written(console).splitlines()]
    assert clocks[:5] == ["11:40:00", "11:40:03", "11:42:00", "12:00:00", "12:00:05"], "an entry has its own time"
    lines = [line[10:] for line in written(console).splitlines()]
    assert lines[:4] == [
        "ada asked for the run",
        f"SageMaker accepted training job {RUN}-1",
        "Training began",
        f"{RUN}  training",
    ]
    of_tenths = [line.split()[1] for line in lines if line.startswith("step")]
    assert of_tenths == ["1", "2", "4", "6", "8", "10"]
    assert lines[-1] == f"{RUN}  completed"


def test_at_a_terminal_it_is_drawn_with_its_bar_and_its_last_line(world: World, make: Any) -> None:
    world.deployment.dynamodb.add(make.run(), make.run(), make.completed(version=2))
    print_in(world, "epoch 1", "epoch 2: loss 3")
    console = terminal()
    world.run(console)
    assert "epoch 2: loss 3" in written(console)
    assert "Ctrl-C leaves" in written(console)


@pytest.mark.parametrize("code", ["ThrottlingException", "AccessDeniedException"])
@pytest.mark.parametrize("console_of", [no_terminal, terminal])
def test_a_refused_call_is_shown_and_tried_again(
    world: World, make: Any, code: str, console_of: Callable[[], Console]
) -> None:
    world.deployment.dynamodb.add(make.completed())
    world.refusals = iter([refusal(code), refusal(code), None])
    console = console_of()
    assert world.list(console).runs
    assert f"{code}: not now; trying again" in written(console)
    assert world.seconds == 2 * CALL_SECONDS


def test_a_call_that_is_refused_again_and_again_ends_it(world: World) -> None:
    world.refusals = itertools.repeat(refusal("AccessDeniedException"))
    with pytest.raises(NoConnectionError, match="AccessDeniedException"):
        world.list(no_terminal())
    assert len(world.calls) == LOST_CONNECTION_TRIES


def test_a_log_that_may_not_be_read_is_said_in_the_place_of_its_last_line(
    world: World, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_: Any) -> Any:
        raise refusal("AccessDeniedException")

    monkeypatch.setattr(world.deployment.logs, "describe_log_streams", refused)
    world.deployment.dynamodb.add(make.run(), make.run(), make.completed(version=2))
    console = terminal()
    assert world.run(console).state is RunState.COMPLETED
    assert "AccessDeniedException" in written(console)


@pytest.mark.parametrize("console_of", [no_terminal, terminal])
def test_ctrl_c_leaves_with_what_was_read_last(world: World, make: Any, console_of: Callable[[], Console]) -> None:
    def press() -> None:
        raise KeyboardInterrupt

    world.on_wait = press
    world.deployment.dynamodb.add(make.run())
    assert [run.run for run in world.list(console_of()).runs] == [RUN]


def test_the_commands_end_with_the_page_as_it_is_without_watching(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run(), make.run(), make.run(), make.completed(version=2))
    watched = spotkeep("describe", RUN, "--watch")
    assert watched.exit_code == 0
    assert watched.stdout.endswith(spotkeep("describe", RUN).stdout)
    listed = spotkeep("ps", "-w").stdout
    assert listed.endswith(spotkeep("ps").stdout)
    assert json.loads(spotkeep("describe", RUN, "-w", "--json").stdout)["run"]["state"] == "COMPLETED"


def test_a_run_at_work_is_described_with_its_bar(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run())
    stream = deployment.logs.streams.setdefault(f"{RUN}-1/algo-1-1", [])
    stream.append((1_000 * make.now.timestamp(), "epoch 1: loss 3"))
    assert spotkeep("describe", RUN).stdout.splitlines()[1:3] == ["  training 18m", "    epoch 1: loss 3"]
    stream.append((1_000 * make.now.timestamp(), progress(40, total_steps=100)))
    bar, words = spotkeep("describe", RUN).stdout.splitlines()[1:3]
    assert bar.startswith("  training ━━━━━")
    assert bar.endswith(" 40% 18m")
    assert words == "    step 40 of 100"


def test_curves_are_drawn_of_metrics_that_only_the_log_has_so_far(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run())
    assert "its script has logged no metric so far" in spotkeep("describe", RUN, "--plots").output
    printed = [progress(step, metrics={"loss": 1 / step}) for step in range(1, 30)]
    deployment.logs.streams[f"{RUN}-1/algo-1-1"] = [(1_000 * make.now.timestamp(), line) for line in printed]
    for words in (("--plots", "--all", RUN), (RUN, "--plots"), ("--plots", RUN), ("--plots",)):
        output = spotkeep("describe", *words).stdout
        assert "  loss  last 0.0344828 at step 29" in output, words
    assert "step" in output
    assert spotkeep("describe", RUN, "--plots", "folder").exit_code == 2
