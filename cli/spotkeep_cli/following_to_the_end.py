"""What `launch` and `resume` do once a job is on its way: follow it, and end as it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_cli.ctrl_c import CtrlC
from spotkeep_cli.errors import RunFailedError, RunStoppedError
from spotkeep_cli.following import Stands, follow
from spotkeep_cli.next_steps import steps_for_run
from spotkeep_cli.rendering.bill import bill
from spotkeep_cli.rendering.facts import facts
from spotkeep_cli.rendering.follow_view import FollowView
from spotkeep_cli.rendering.run_list import reason_text, state_text
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from spotkeep_cli.deployment import Deployment
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal
    from spotkeep_jobs.record.record import Run


def follow_to_the_end(
    answer: dict[str, Any],
    *,
    told: str,
    invocation: Invocation,
    deployment: Deployment,
    terminal: Terminal,
    detach: bool,
) -> None:
    """Follows the run of a launcher answer; Ctrl-C leaves it running.

    Args:
        answer: What the launcher answered.
        told: What became of the run, in words: `launched`.
        invocation: How `spotkeep` was called.
        deployment: Where it runs.
        terminal: Where to show it.
        detach: Whether to leave at once.

    With `--json`, standard output gets the answer (detached) or the run as it ended, and the forecast there was.

    Raises:
        RunFailedError: It failed.
        RunStoppedError: It was stopped, or ran out of time.
    """
    run = str(answer["run"])
    fleet = str(answer.get("job_arn") or "")
    job = fleet if fleet.startswith("fleet-") else f"training job {answer.get('job_name', '?')}"
    terminal.show(f"{run} {told} ({job})")
    if detach:
        if terminal.as_json:
            terminal.give_json(answer)
        terminal.show_next(*_come_back(run, invocation=invocation))
        return
    attempt = int(answer.get("attempt", 1))
    ended = _watch(run, attempt=attempt, invocation=invocation, deployment=deployment, terminal=terminal)
    if ended is None:
        if terminal.as_json:
            terminal.give_json(answer)
        terminal.show(f"\nDetached. {run} goes on without you.")
        terminal.show_next(*_come_back(run, invocation=invocation))
        return
    _conclude(ended, forecast=answer.get("forecast"), invocation=invocation, terminal=terminal)


def _watch(run: str, *, attempt: int, invocation: Invocation, deployment: Deployment, terminal: Terminal) -> Run | None:
    """The run as it ended, or None when the user left with Ctrl-C."""
    last: Run | None = None
    try:
        with CtrlC(invocation.seams.sleep) as ctrl_c, FollowView(terminal.people) as view:
            for update in follow(
                deployment,
                run,
                sleep=ctrl_c.sleep,
                poll_seconds=invocation.poll_seconds,
                from_attempt=attempt,
            ):
                view.show(update)
                if isinstance(update, Stands):
                    last = update.run
    except KeyboardInterrupt:
        return None
    return last


def _conclude(run: Run, *, forecast: object, invocation: Invocation, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.give_json(run.model_dump(mode="json") | ({} if forecast is None else {"forecast": forecast}))
    else:
        terminal.show("")
        terminal.show(_verdict(run))
        terminal.show(bill(run))
        said = [("said", run.failure_reason)] if run.failure_reason else []
        terminal.show(facts([*said, ("model", run.output_uri or "none"), ("checkpoints", run.checkpoint_uri)]))
        terminal.show_next(*steps_for_run(run, invocation=invocation, after="launch"))
    if run.state is RunState.COMPLETED:
        return
    reason = reason_text(run.end_reason) or run.state.value.lower()
    hint = f"{invocation.command(f'resume {run.run}')} goes on from its last checkpoint"
    if run.state is RunState.FAILED:
        raise RunFailedError(f"{run.run} failed, {reason}", hint=hint)
    raise RunStoppedError(f"{run.run} stopped, {reason}", hint=hint)


def _verdict(run: Run) -> Any:
    times = {0: "without an interruption", 1: "after one interruption"}
    how = times.get(run.interruptions, f"after {run.interruptions} interruptions")
    return state_text(run.state).append(f"  {run.run}, {how}", style="default")


def _come_back(run: str, *, invocation: Invocation) -> list[NextStep]:
    return [
        NextStep(command=invocation.command(f"logs {run} -f"), what="follow it again"),
        NextStep(command=invocation.command(f"describe {run}"), what="where it stands"),
        NextStep(command=invocation.command(f"stop {run}"), what="end it"),
    ]
