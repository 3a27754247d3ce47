"""The recovery of a run in a drill, decided from observations and shown to a person. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.text import Text

from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_cli.rendering.quantities import UNKNOWN, counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType


class Phase(StrEnum):
    """The phases of a drill, in this order. Each has the time at which it was first seen."""

    NOTICE = "notice"
    """EC2 has sent the instance its interruption notice."""
    LET_GO = "let go"
    """The instance has saved, detached the volume and given the run back."""
    GONE = "gone"
    """The instance does not run any more."""
    REPLACED = "replaced"
    """The fleet has another one."""
    TAKEN_UP = "taken up"
    """The new instance holds the run, and brings the volume to itself. Of several nodes, another one leads."""
    TRAINING = "training"
    """The run has completed a step that was not saved before, or the training is done."""


_NOT_IN_JSON = frozenset({"seen", "began_at", "others", "leader", "nodes"})


@dataclass(frozen=True, kw_only=True)
class DrillState:
    """The observation at one moment.

    Attributes:
        at: Seconds since any fixed moment.
        experiment: The state of the FIS experiment, such as `pending`, `running`, `completed`, `stopped` or `failed`.
        instances: Zones of the run's instances that are starting or running, by their ids.
        holder: The instance that holds the run, or None when none does.
        step: Number of completed steps in the last report, or None before the first report.
        durable_step: Step of the newest durable checkpoint, on the volume or in S3.
        over: True if the training has ended, well or not.
        failed: True if it has failed for good.
        reason: The reason for the experiment's state, in FIS's words.
        nodes: Number of nodes that train together. None for a run of one instance.
    """

    at: float
    experiment: str
    instances: Mapping[str, str]
    holder: str | None
    step: int | None
    durable_step: int | None
    over: bool = False
    failed: bool = False
    reason: str = ""
    nodes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The progress of a run's recovery.

    Attributes:
        run: The run's id.
        began_at: The time at which the experiment was started, on the clock of `DrillState.at`.
        instance: The instance that is taken away.
        zone: The Availability Zone of the instance.
        seen: Seconds from the start until each phase was first seen.
        replacement: The instance that took its place.
        replacement_zone: The Availability Zone of the replacement.
        reached_step: The highest step that the old instance reported.
        saved_step: The durable step when the old instance had let go. The new one continues there.
        problem: The reason that the drill can have no result any more.
        others: The other nodes of the run when the drill began.
        leader: The node that leads the others after it.
        nodes: Number of nodes that train together. None for a run of one instance.
    """

    run: str
    began_at: float
    instance: str
    zone: str
    seen: Mapping[Phase, float]
    replacement: str | None = None
    replacement_zone: str | None = None
    reached_step: int | None = None
    saved_step: int | None = None
    problem: str | None = None
    others: frozenset[str] = frozenset()
    leader: str | None = None
    nodes: int | None = None

    @property
    def recovered(self) -> bool:
        """True if the run trains again on another instance."""
        return Phase.TRAINING in self.seen

    @property
    def ended(self) -> bool:
        """True if there is nothing to wait for."""
        return self.recovered or self.problem is not None

    @property
    def steps_lost(self) -> int | None:
        """Steps that are trained twice. None where the run does not report any."""
        if self.reached_step is None or self.saved_step is None:
            return None
        return max(0, self.reached_step - self.saved_step)

    def phases(self) -> list[tuple[Phase, float, float]]:
        """Return each phase that was seen, in order of time.

        Each has its time and the seconds since the phase before.
        """
        ordered = sorted(self.seen.items(), key=lambda item: (item[1], list(Phase).index(item[0])))
        before = [0.0, *(at for _, at in ordered)]
        return [(phase, at, at - earlier) for (phase, at), earlier in zip(ordered, before, strict=False)]

    def document(self) -> dict[str, Any]:
        """Return it as `--json` gives it."""
        kept = {name: value for name, value in asdict(self).items() if name not in _NOT_IN_JSON}
        return {
            **kept,
            "ok": self.recovered,
            "recovered": self.recovered,
            "steps_lost": self.steps_lost,
            "phases": [
                {"phase": phase.value, "at_seconds": round(at, 1), "seconds": round(took, 1)}
                for phase, at, took in self.phases()
            ],
        }


def absorb(recovery: Recovery, state: DrillState) -> Recovery:
    """Take a description into account.

    Args:
        recovery: The progress of the run's recovery so far.
        state: The present observation.
    """
    if recovery.ended:
        return recovery
    others = {id_: zone for id_, zone in state.instances.items() if id_ != recovery.instance}
    holds = state.holder == recovery.instance
    if Phase.LET_GO not in recovery.seen:
        # What it wrote as it left is what the next one goes on from; another's steps are not its own.
        own = holds or state.holder is None
        recovery = replace(
            recovery,
            reached_step=_highest((recovery.reached_step, state.step if own else None)),
            saved_step=_highest((recovery.saved_step, state.durable_step)),
        )
    new = [id_ for id_ in others if id_ not in recovery.others]
    taken_by = state.holder if state.holder in others else None
    noticed = state.experiment in ("running", "completed")
    now_true = {
        Phase.NOTICE: noticed,
        Phase.LET_GO: not holds and (noticed or Phase.NOTICE in recovery.seen),
        Phase.GONE: recovery.instance not in state.instances,
        Phase.REPLACED: bool(new),
        Phase.TAKEN_UP: taken_by is not None,
        Phase.TRAINING: taken_by is not None and not state.failed and (state.over or _beyond(state, recovery)),
    }
    after = state.at - recovery.began_at
    seen = {**{phase: after for phase, true in now_true.items() if true}, **recovery.seen}
    replacement = (taken_by if taken_by in new else None) or recovery.replacement or next(iter(new), None)
    return replace(
        recovery,
        seen=seen,
        replacement=replacement,
        replacement_zone=others.get(replacement or "", recovery.replacement_zone),
        problem=_problem(state, recovered=Phase.TRAINING in seen),
        leader=taken_by or recovery.leader,
        nodes=state.nodes,
    )


def _beyond(state: DrillState, recovery: Recovery) -> bool:
    """Return True if a step was completed that was not saved before.

    Without reports, return True if the run was taken up.
    """
    if state.step is None:
        return recovery.saved_step is None and recovery.reached_step is None
    return state.step > (recovery.saved_step or 0)


def _problem(state: DrillState, *, recovered: bool) -> str | None:
    if recovered:
        return None
    if state.failed:
        return "the training failed"
    if state.over:
        return "the training was done before its instance was taken away"
    if state.experiment in ("failed", "stopped", "cancelled"):
        why = f": {state.reason}" if state.reason else ""
        return f"the experiment {state.experiment}{why}"
    return None


def _highest(steps: Iterable[int | None]) -> int | None:
    return max((step for step in steps if step is not None), default=None)


_TABLE_WIDTH = 80


def phase_line(recovery: Recovery, phase: Phase) -> str:
    """Return one line, as soon as a phase is seen."""
    return f"{recovery.seen[phase]:7.1f} s  {_said(recovery, phase)}"


def drill_report(recovery: Recovery) -> RenderableType:
    """Return the phases with their seconds, the losses, and the verdict."""
    phases = recovery.phases()
    table = table_that_fits(
        [
            Column(heading="PHASE", cells=[phase.value for phase, _, _ in phases]),
            Column(heading="AFTER", cells=[f"{at:.1f} s" for _, at, _ in phases], justify="right"),
            Column(heading="TOOK", cells=[f"{took:.1f} s" for _, _, took in phases], justify="right"),
            Column(heading="WHAT", cells=[_said(recovery, phase) for phase, _, _ in phases], importance=0),
        ],
        width=_TABLE_WIDTH,
    )
    lost = UNKNOWN if recovery.steps_lost is None else counted(recovery.steps_lost, "step")
    return Group(table, Text(f"Trained twice: {lost}"), _verdict(recovery))


def _verdict(recovery: Recovery) -> Text:
    if not recovery.recovered:
        return Text.assemble(("FAIL", "bold red"), f"  {recovery.run} did not come back.")
    after = recovery.seen[Phase.TRAINING]
    if recovery.nodes is not None:
        where = f"on {counted(recovery.nodes, 'node')}"
    else:
        moved = "another zone" if recovery.replacement_zone != recovery.zone else "the same zone"
        where = f"in {moved} ({recovery.replacement_zone})"
    return Text.assemble(
        ("PASS", "bold green"),
        f"  {recovery.run} trains again after {after:.0f} s, {where}.",
    )


def _said(recovery: Recovery, phase: Phase) -> str:
    step = "" if recovery.saved_step is None else f", step {recovery.saved_step} saved"
    place = f"{recovery.replacement} in {recovery.replacement_zone}"
    return {
        Phase.NOTICE: f"{recovery.instance} in {recovery.zone} has its notice",
        Phase.LET_GO: f"it has let go{step}",
        Phase.GONE: "it is gone",
        Phase.REPLACED: f"the fleet has {place}",
        Phase.TAKEN_UP: (
            "which has taken the run up" if recovery.nodes is None else f"{recovery.leader} leads the other nodes"
        ),
        Phase.TRAINING: "it trains again",
    }[phase]
