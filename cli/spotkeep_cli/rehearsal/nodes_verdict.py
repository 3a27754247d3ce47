"""Decides the verdict on a run of several nodes, in pure functions over the evidence.

It adds to the verdict on any run (`verdict`). A run of nodes is a sequence of worlds. Nodes that were not taken train
on, each sample counts once, and nothing may be left to pay for.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any

from spotkeep.disk.manifest import Manifest
from spotkeep_cli.rehearsal.evidence import CapacityLoss, ProcessEnding, RehearsalCheck, RehearsedProcess
from spotkeep_cli.rehearsal.fleet_verdict import ResourcesOfRun
from spotkeep_cli.rehearsal.verdict import Verdict
from spotkeep_cli.rendering.quantities import counted

SAMPLES_FILE = "samples-taken.json"
"""The file of a model with the number of times that each sample was taken, as a JSON list."""
_OF_VIRTUAL_RANKS = frozenset({"count", "seed", "steps", "environment"})
_LISTING_SECONDS = 1.0
"""S3 lists the times of its objects in whole seconds."""


class WorldEnding(enum.Enum):
    """The kinds of end of a world."""

    NOTICE = "notice"
    """A node of it was taken after a notice."""
    NO_NOTICE = "no-notice"
    """A node of it was taken without notice."""
    MORE_NODES = "more-nodes"
    """It made room for a larger one."""
    DONE = "done"
    """Its command ended."""
    UNKNOWN = "unknown"
    """Another one began, and nothing that the rehearsal did explains it."""


@dataclass(frozen=True, kw_only=True)
class TakenNode:
    """A node that the rehearsal took away.

    Attributes:
        instance_id: Its id.
        at: When its notice came, or when it was gone without one, in seconds since the epoch.
        notice: True if it got a notice.
        held_lease: True if the run's lease was its own.
        fewer: True if there was no room for another one afterwards.
    """

    instance_id: str
    at: float
    notice: bool
    held_lease: bool
    fewer: bool


@dataclass(frozen=True, kw_only=True)
class StoredCheckpoint:
    """A checkpoint that was whole in S3.

    Attributes:
        manifest: Its manifest.
        fence: The fencing token of its world. None for a training outside of a run.
        at: When S3 got the manifest, in seconds since the epoch.
    """

    manifest: Manifest
    fence: int | None
    at: float


@dataclass(frozen=True, kw_only=True)
class RehearsedWorld:
    """The nodes that trained together, from the start of their ranks to their end.

    Attributes:
        fence: The fencing token of the lease.
        nodes: Their instance ids. The first one held the lease.
        ranks: Number of their ranks. None where no checkpoint of the run says it.
        began_at: When their ranks were started, in seconds since the epoch.
        ending: The reason of their end.
        process: Their training.
    """

    fence: int
    nodes: tuple[str, ...]
    ranks: int | None
    began_at: float
    ending: WorldEnding
    process: RehearsedProcess


@dataclass(frozen=True, kw_only=True)
class ComparedCheckpoints:
    """Checkpoints of one step that two runs saved in worlds of one size.

    Attributes:
        steps: The steps that were compared.
        differing: Those of them at which the two runs had other bits.
        differ_from_the_start: True if the first ones differ that the run saved before it lost a node. Then no loss is
            the cause, and the later ones show nothing of losses.
    """

    steps: tuple[int, ...]
    differing: tuple[int, ...]
    differ_from_the_start: bool = False


@dataclass(frozen=True, kw_only=True)
class SampleCounts:
    """The samples of a run beside those of the run left alone.

    Attributes:
        doubled: Number of times that a sample was taken too often.
        missed: Number of times that a sample was not taken.
    """

    doubled: int
    missed: int


@dataclass(frozen=True, kw_only=True)
class NodesEvidence:
    """The evidence of a rehearsal on several nodes, beside the evidence of any run.

    Attributes:
        at_least: The fewest nodes of a world.
        at_most: The most nodes of a world.
        worlds: The worlds of the run, oldest first.
        taken: The nodes that were taken, in order.
        compared: The checkpoints that both runs have.
        samples: The samples of the run. None where the script does not count them.
        equal_on_any_world: True if the script trains with virtual ranks.
        after: The run's resources after its end.
        isolation: The kind of instances on this machine, `namespace` or `relocated`.
    """

    at_least: int
    at_most: int
    worlds: Sequence[RehearsedWorld]
    taken: Sequence[TakenNode]
    compared: ComparedCheckpoints
    samples: SampleCounts | None
    equal_on_any_world: bool
    after: ResourcesOfRun
    isolation: str

    @property
    def changed_size(self) -> bool:
        """True if not all worlds had as many nodes."""
        return len({len(world.nodes) for world in self.worlds}) > 1

    def to_document(self) -> dict[str, Any]:
        """Return the part of the report that only a run of nodes has."""
        return {
            "instances_are": self.isolation,
            "nodes": {"min": self.at_least, "max": self.at_most},
            "world_sizes": [world.ranks for world in self.worlds],
            "worlds": [_world_document(world) for world in self.worlds],
            "nodes_taken": [asdict(each) for each in self.taken],
            "equal_on_any_world": self.equal_on_any_world,
            "checkpoints_compared": {"steps": self.compared.steps, "differing": self.compared.differing},
            "samples_doubled": None if self.samples is None else self.samples.doubled,
            "samples_missed": None if self.samples is None else self.samples.missed,
        }


def losses_alone(ends: Iterable[CapacityLoss], *, worlds: Iterable[RehearsedWorld]) -> list[CapacityLoss]:
    """Return the ends of worlds that lost a node, without those that made room for a larger world.

    Args:
        ends: The ends of worlds, as of processes that capacity was taken from.
        worlds: The worlds of the run.
    """
    joins = {world.process.last_step for world in worlds if world.ending is WorldEnding.MORE_NODES}
    return [loss for loss in ends if loss.at_step not in joins]


def _world_document(world: RehearsedWorld) -> dict[str, Any]:
    return {
        "fence": world.fence,
        "nodes": list(world.nodes),
        "ranks": world.ranks,
        "resumed_from_step": world.process.resumed_from_step,
        "last_step": world.process.last_step,
        "ending": world.ending.value,
        "seconds_to_first_step": round(world.process.started_at - world.began_at, 3),
    }


def worlds_of(
    events: Iterable[Mapping[str, Any]],
    *,
    taken: Sequence[TakenNode] = (),
    stored: Sequence[StoredCheckpoint] = (),
    ended_at: float,
) -> list[RehearsedWorld]:
    """Return the worlds of a run, oldest first.

    Args:
        events: What all of its instances printed.
        taken: The nodes that were taken, in order.
        stored: The checkpoints that came to S3.
        ended_at: When the run ended, or now, in seconds since the epoch.
    """
    in_order = sorted(events, key=lambda event: float(event["time"]))
    begun = [event for event in in_order if event["event"] == "world-began"]
    worlds = []
    for event, later in zip_longest(begun, begun[1:]):
        until = ended_at if later is None else float(later["time"])
        own = [each for each in in_order if float(event["time"]) <= float(each["time"]) < until]
        worlds.append(_world(event, own, later=later, until=until, taken=taken, stored=stored))
    return _with_ranks(worlds, stored)


def _world(
    event: Mapping[str, Any],
    own: Sequence[Mapping[str, Any]],
    *,
    later: Mapping[str, Any] | None,
    until: float,
    taken: Sequence[TakenNode],
    stored: Sequence[StoredCheckpoint],
) -> RehearsedWorld:
    began_at, nodes = float(event["time"]), _nodes(event)
    lost = next((each for each in taken if each.instance_id in nodes and began_at <= each.at < until), None)
    steps = {kind: [each for each in own if each["event"] == kind] for kind in ("resume", "progress", "saved")}
    stepped = steps["progress"]
    # Without notice all ends when the node goes. With one, the ranks train on to a step that all of them save.
    stopped_at = until if later is None or not stepped else float(stepped[-1]["time"])
    if lost is not None and not lost.notice:
        stopped_at = lost.at
    ending = _ending(lost, nodes, later=later)
    began_with = steps["resume"][0]["step"] if steps["resume"] else event.get("step") or 0
    durable = (each.manifest.step for each in stored if each.at + _LISTING_SECONDS <= stopped_at)
    process = RehearsedProcess(
        started_at=float(stepped[0]["time"]) if stepped else began_at,
        ended_at=stopped_at,
        ending=_PROCESS_ENDINGS[ending],
        resumed_from_step=began_with,
        last_step=max((each["step"] for each in stepped), default=began_with),
        saved_steps=tuple(each["step"] for each in steps["saved"]),
        durable_step=max(durable, default=0),
    )
    return RehearsedWorld(
        fence=int(event["fence"]), nodes=nodes, ranks=None, began_at=began_at, ending=ending, process=process
    )


def _nodes(event: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(map(str, event["nodes"]))


def _ending(lost: TakenNode | None, nodes: Sequence[str], *, later: Mapping[str, Any] | None) -> WorldEnding:
    if lost is not None:
        return WorldEnding.NOTICE if lost.notice else WorldEnding.NO_NOTICE
    if later is None:
        return WorldEnding.DONE
    return WorldEnding.MORE_NODES if set(_nodes(later)) > set(nodes) else WorldEnding.UNKNOWN


_PROCESS_ENDINGS = {
    WorldEnding.NOTICE: ProcessEnding.NOTICE,
    WorldEnding.NO_NOTICE: ProcessEnding.NO_NOTICE,
    # All save the same step and leave, as on a notice.
    WorldEnding.MORE_NODES: ProcessEnding.NOTICE,
    WorldEnding.DONE: ProcessEnding.EXITED,
    WorldEnding.UNKNOWN: ProcessEnding.NO_NOTICE,
}


def _with_ranks(worlds: Sequence[RehearsedWorld], stored: Sequence[StoredCheckpoint]) -> list[RehearsedWorld]:
    """Add the numbers of ranks. A world that saved nothing has as many on each node as the others."""
    written = {each.fence: each.manifest.world_size for each in stored}
    on_a_node = {written[world.fence] // len(world.nodes) for world in worlds if world.fence in written}
    if len(on_a_node) != 1:
        return [replace(world, ranks=written.get(world.fence)) for world in worlds]
    (each,) = on_a_node
    return [replace(world, ranks=each * len(world.nodes)) for world in worlds]


def compare_checkpoints(run: Sequence[StoredCheckpoint], reference: Sequence[StoredCheckpoint]) -> ComparedCheckpoints:
    """Compare the checkpoints of two runs at the steps that both saved, up to the first change of the number of ranks.

    Args:
        run: The checkpoints of the interrupted run.
        reference: Those of the run left alone.
    """
    by_step = [_of_first_size(each) for each in (run, reference)]
    steps = sorted(by_step[0].keys() & by_step[1].keys())
    differing = [step for step in steps if len(by_step[0][step] | by_step[1][step]) > 1]
    first_fence = min(run, key=lambda each: each.at).fence if run else None
    before_a_loss = _of_first_size([each for each in run if each.fence == first_fence])
    first = min(before_a_loss.keys() & by_step[1].keys(), default=None)
    return ComparedCheckpoints(
        steps=tuple(steps),
        differing=tuple(differing),
        differ_from_the_start=first is not None and before_a_loss[first].isdisjoint(by_step[1][first]),
    )


def _of_first_size(stored: Sequence[StoredCheckpoint]) -> dict[int, set[str]]:
    """Return the digests of the checkpoints of each step, as long as their number of ranks is that of the first one."""
    found: dict[int, set[str]] = {}
    in_order = sorted(stored, key=lambda each: each.at)
    for each in in_order:
        if each.manifest.world_size != in_order[0].manifest.world_size:
            break
        found.setdefault(each.manifest.step, set()).add(digest_of(each.manifest))
    return found


def digest_of(manifest: Manifest) -> str:
    """Return a digest of the values in a checkpoint and their division. Equal ones hold the same bits."""
    parts = (
        manifest.step,
        manifest.world_size,
        [[(file.size, file.chunks) for file in stream] for stream in manifest.streams],
        manifest.state,
        [asdict(share) for share in manifest.ranks],
        [[asdict(box) for box in boxes] for boxes in manifest.divided],
    )
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def has_virtual_ranks(manifest: Manifest) -> bool:
    """Return True if the state of a checkpoint has that of `VirtualRanks`."""
    pairs = manifest.state.get("dict", ()) if isinstance(manifest.state, dict) else ()
    return any(
        isinstance(node, dict) and {name for name, _ in node.get("dict", ())} == _OF_VIRTUAL_RANKS for _, node in pairs
    )


def sample_counts(run: bytes | None, reference: bytes | None) -> SampleCounts | None:
    """Compare how often two runs took each sample.

    Args:
        run: The file of the interrupted run, or None where its model has none.
        reference: That of the run left alone.

    Returns:
        The differences. None where one of the files is missing, or no list of numbers.
    """
    counts = [_counts(each) for each in (run, reference)]
    ours, theirs = counts
    if ours is None or theirs is None or len(ours) != len(theirs):
        return None
    more = [one - other for one, other in zip(ours, theirs, strict=True)]
    return SampleCounts(doubled=sum(max(0, each) for each in more), missed=sum(max(0, -each) for each in more))


def _counts(content: bytes | None) -> list[int] | None:
    try:
        found = json.loads(content or b"")
    except ValueError:
        return None
    return found if isinstance(found, list) and all(type(each) is int for each in found) else None


_NOTHING_TO_COMPARE = (
    "the run went on with another number of ranks before a checkpoint that both runs have, so its model shows nothing. "
    "Let it save at fixed steps (every_steps), more often"
)
_DIFFER_FROM_THE_START = (
    "the checkpoints of the two runs differ before a node was taken, so they show nothing of losses. Seed every random "
    "generator whose state is saved: random.seed(0), numpy.random.seed(0), torch.manual_seed(0)"
)


def with_other_sums(verdict: Verdict, evidence: NodesEvidence) -> Verdict:
    """Return the verdict on a model that was trained by several numbers of ranks.

    Such a model has other last bits, unless the script trains with virtual ranks. So a difference is no reason against
    it where the checkpoints before the first change have the bits of the run left alone. Where they had other bits
    before a loss, no loss is the cause of other bits of the model. An equal model gets a remark then.

    Args:
        verdict: The verdict on the run as on any other.
        evidence: The evidence of its worlds.
    """
    unseeded, steps = evidence.compared.differ_from_the_start, evidence.compared.steps
    if unseeded and not verdict.other_model:
        return replace(verdict, remarks=(*verdict.remarks, _DIFFER_FROM_THE_START))
    has_one_model = evidence.equal_on_any_world or not evidence.changed_size
    if not verdict.other_model or (has_one_model and not unseeded):
        return verdict
    others = tuple(reason for reason in verdict.reasons if reason not in verdict.other_model)
    if unseeded or not steps:
        unseen = _DIFFER_FROM_THE_START if unseeded else _NOTHING_TO_COMPARE
        return replace(verdict, reasons=(*others, unseen), not_shown=(*verdict.not_shown, unseen), other_model=())
    remark = (
        "the final model is not judged. It differs from that of the run left alone, as it does where another number of "
        f"ranks adds the same gradients in another order. So after step {steps[-1]} nothing is compared, and a fault "
        "there would not show. With VirtualRanks all of it is (`spotkeep help virtual-ranks`)"
    )
    return replace(verdict, reasons=others, remarks=(*verdict.remarks, remark), other_model=())


def judge_nodes(evidence: NodesEvidence) -> list[RehearsalCheck]:
    """Judge a rehearsed run of several nodes."""
    return list(_checks(evidence))


def _checks(evidence: NodesEvidence) -> Iterator[RehearsalCheck]:
    worlds, taken = evidence.worlds, evidence.taken
    yield RehearsalCheck(
        expected="three nodes were taken: one after a notice, the first one (the others connect to it) without notice, "
        "and one for good",
        found=", ".join(map(_taken, taken)) or "none",
        passed=[(each.notice, each.held_lease, each.fewer) for each in taken]
        == [(True, False, False), (False, True, False), (True, False, True)],
    )
    replaced = _replaced(worlds, taken)
    yield RehearsalCheck(
        expected="the nodes that were not taken trained in each world after it",
        found=", ".join(replaced) + " did not" if replaced else f"they did, in {counted(len(worlds), 'world')}",
        passed=bool(worlds) and not replaced,
    )
    fences = [world.fence for world in worlds]
    yield RehearsalCheck(
        expected="each world has a higher number than the one before, which the names of its checkpoints have",
        found=", ".join(map(str, fences)) or "none",
        passed=bool(fences) and all(one < other for one, other in pairwise(fences)),
    )
    yield _sizes(evidence)
    if evidence.compared.steps and not evidence.compared.differ_from_the_start:
        differing = evidence.compared.differing
        yield RehearsalCheck(
            expected="while the number of ranks stayed, the checkpoints equal those of the run left alone, bit for bit",
            found=f"those of step {', '.join(map(str, differing))} differ"
            if differing
            else _compared(evidence.compared.steps),
            passed=not differing,
        )
    if evidence.samples is not None:
        doubled, missed = evidence.samples.doubled, evidence.samples.missed
        yield RehearsalCheck(
            expected="each sample was taken as often as in the run left alone",
            found=f"{doubled} too often, {missed} not",
            passed=not doubled and not missed,
        )
    yield _nothing_left(evidence.after)


def _sizes(evidence: NodesEvidence) -> RehearsalCheck:
    """Judge the sizes of the worlds. Where no smaller one is allowed, the nodes wait for the missing one."""
    sizes = [len(world.nodes) for world in evidence.worlds]
    found = ", then ".join(map(str, sizes)) + " nodes" if sizes else "no world"
    most, fewer = evidence.at_most, [each for each in evidence.taken if each.fewer]
    after = [len(world.nodes) for world in evidence.worlds if fewer and world.began_at > fewer[-1].at]
    if evidence.at_least == most:
        expected = f"all worlds have {most} nodes: the others waited for a missing one, and went on with the next"
        return RehearsalCheck(expected=expected, found=found, passed=bool(after) and set(sizes) == {most})
    whole = bool(after) and most in sizes[: len(sizes) - len(after)]
    return RehearsalCheck(
        expected=f"worlds of {most} nodes at first, of {most - 1} while there was no room, and of {most} at last",
        found=found,
        passed=whole and after[0] == most - 1 and after[-1] == most,
    )


def _compared(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return f"the one that both have, of step {steps[0]}"
    return f"all {len(steps)} that both have, of steps {steps[0]} to {steps[-1]}"


def _replaced(worlds: Sequence[RehearsedWorld], taken: Sequence[TakenNode]) -> list[str]:
    """Return the nodes that are missing in a world though they trained in the one before and were not taken."""
    return [
        node
        for before, after in pairwise(worlds)
        for node in before.nodes
        if node not in after.nodes and not any(each.instance_id == node and each.at < after.began_at for each in taken)
    ]


def _taken(each: TakenNode) -> str:
    how = "after a notice" if each.notice else "without notice"
    first = ", the first one" if each.held_lease else ""
    return f"{each.instance_id} {how}{first}{', for good' if each.fewer else ''}"


def _nothing_left(after: ResourcesOfRun) -> RehearsalCheck:
    kinds = {"fleet": after.fleets, "instance": after.instances, "volume": after.volumes, "snapshot": after.snapshots}
    return RehearsalCheck(
        expected="the fleet is gone, and nothing is left that is paid for",
        found=", ".join(counted(len(found), kind) for kind, found in kinds.items()),
        passed=not any(kinds.values()),
    )
