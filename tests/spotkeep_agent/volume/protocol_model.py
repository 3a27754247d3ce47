"""A model of everything around the volume protocol: EC2's volumes and snapshots, the record, the machines with agents.

A world is a value. `next_worlds` gives every world that one step of anything can lead to: an agent's next action, its
crash, the loss of its machine, a notice, a lost answer, a throttle, a listing that is late, a snapshot that completes
or fails, a lease that expires. A search of all of them has crashed the agent before and after each call and each
change of the system, in every state, with every other agent at any point of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from spotkeep_agent.ebs import EbsAttachment, EbsSnapshot, EbsVolume
from spotkeep_agent.volume import actions as do
from spotkeep_agent.volume.actions import Done, MachineVolumes, Refused, Result, Unavailable
from spotkeep_agent.volume.protocol import Situation, absorb, decide, leave
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.orphans import Resource, orphans
from spotkeep_fleet.record import LEASE_SECONDS, SNAPSHOT, CurrentVolume, FleetRecord, new_record
from tests.models.ec2 import instance_job

JOB = instance_job(command=("python", "train.py"), volume=VolumeSpec(size_gb=8))


@dataclass(frozen=True)
class Disk:
    """An EBS volume with what is on it: `content` counts the steps that the training made durable."""

    id: str
    zone: str
    operation: int | None
    snapshot: str | None = None
    state: str = "creating"
    content: int = 0
    filesystem: str = ""  # "", "half" when mkfs was cut off, "ext4"
    attachment: EbsAttachment | None = None


@dataclass(frozen=True)
class Snap:
    """An EBS snapshot: what was on the volume when it was asked for."""

    id: str
    volume: str
    operation: int | None
    state: str = "pending"
    content: int = 0
    filesystem: str = ""


@dataclass(frozen=True)
class Machine:
    """An instance. Its training may outlive its agent, until the next agent on it looks around."""

    id: str
    zone: str
    running: bool = True
    agent: Situation | None = None
    left: bool = False
    mounted: str | None = None
    training: bool = False


@dataclass(frozen=True)
class Budget:
    """How often each kind of mischief may still happen."""

    boots: int = 0
    agent_crashes: int = 0
    machine_losses: int = 0
    notices: int = 0
    expiries: int = 0
    lost_answers: int = 0
    throttles: int = 0
    stale_listings: int = 0
    failures: int = 0
    stuck_detaches: int = 0
    writes: int = 1


@dataclass(frozen=True)
class World:
    """Everything there is."""

    record: FleetRecord
    zones: tuple[str, ...]
    budget: Budget
    machines: tuple[Machine, ...] = ()
    disks: tuple[Disk, ...] = ()
    snaps: tuple[Snap, ...] = ()
    clock: float = 1000.0
    made: int = 0
    durable: int = 0

    def disk(self, id_: str | None) -> Disk | None:
        return next((disk for disk in self.disks if disk.id == id_), None)

    def with_disk(self, disk: Disk) -> World:
        return replace(self, disks=tuple(disk if old.id == disk.id else old for old in self.disks))

    def with_machine(self, machine: Machine) -> World:
        return replace(self, machines=tuple(machine if old.id == machine.id else old for old in self.machines))

    def spending(self, kind: str) -> World:
        return replace(self, budget=replace(self.budget, **{kind: getattr(self.budget, kind) - 1}))


def new_world(zones: tuple[str, ...], budget: Budget) -> World:
    return World(record=new_record(run="run"), zones=zones, budget=budget)


def boot(world: World, zone: str) -> World:
    id_ = f"i-{len(world.machines) + 1}"
    machine = Machine(id=id_, zone=zone, agent=Situation(instance=id_, zone=zone, job=JOB))
    return replace(world, machines=(*world.machines, machine))


def next_worlds(world: World) -> Iterator[tuple[str, World]]:
    """Give each next world with the step that leads there."""
    for machine in world.machines:
        if machine.running:
            yield from _steps_of_machine(world, machine)
    yield from _steps_of_ec2(world)
    budget = world.budget
    if budget.boots:
        for zone in world.zones:
            yield f"boot in {zone}", boot(world.spending("boots"), zone)
    lease = world.record.lease
    if budget.expiries and lease is not None and world.clock <= lease.expires_at:
        yield "the lease expires", replace(world, clock=lease.expires_at + 1).spending("expiries")


def _steps_of_machine(world: World, machine: Machine) -> Iterator[tuple[str, World]]:
    budget, agent = world.budget, machine.agent
    if agent is not None:
        action = decide(agent, now=_clock_of(world, agent))
        name = f"{machine.id} {action}"
        after, result = perform(world, machine.id, action)
        yield name, learn(after, machine.id, agent, action, result)
        is_call = not isinstance(action, (do.Wait, do.GiveUp, do.Ready, do.Idle, do.Leave, do.SurveyMachine))
        if is_call and budget.throttles and not isinstance(action, (do.Inspect, do.Format, do.Check, do.Mount)):
            yield f"{name}: throttled", learn(world.spending("throttles"), machine.id, agent, action, Unavailable())
        if is_call and budget.lost_answers and isinstance(result, Done) and _is_aws(action):
            yield (
                f"{name}: answer lost",
                learn(after.spending("lost_answers"), machine.id, agent, action, Unavailable()),
            )
        is_listing = isinstance(action, (do.DescribeVolumes, do.DescribeSnapshots))
        # A listing is late for seconds; the agent waits a minute before it believes that something is gone.
        if budget.stale_listings and is_listing and not agent.waiting.endswith("missing") and result.value:
            stale = learn(world.spending("stale_listings"), machine.id, agent, action, Done(result.value[:-1]))
            yield f"{name}: without the newest", stale
        if budget.notices and agent.leaving is None:
            noticed = replace(machine, agent=leave(agent, why="notice"), training=False)
            yield f"{machine.id} notice", world.spending("notices").with_machine(noticed)
        if budget.agent_crashes:
            crashed = world.spending("agent_crashes")
            yield f"{machine.id} agent crashes", crashed.with_machine(replace(machine, agent=None))
            if isinstance(action, do.Format):
                disk = crashed.disk(action.volume)
                assert disk is not None
                half = crashed.with_disk(replace(disk, filesystem="half"))
                yield f"{machine.id} agent crashes in mkfs", half.with_machine(replace(machine, agent=None))
    elif not machine.left:
        restarted = replace(machine, agent=Situation(instance=machine.id, zone=machine.zone, job=JOB))
        yield f"{machine.id} agent restarts", world.with_machine(restarted)
    if machine.training and budget.writes:
        yield f"{machine.id} trains", train(world, machine)
    if budget.machine_losses:
        lost = world.spending("machine_losses")
        yield f"{machine.id} is lost", lose(lost, machine)
        if budget.stuck_detaches:
            yield f"{machine.id} is lost, its volume stuck", lose(lost.spending("stuck_detaches"), machine, stuck=True)


def _clock_of(world: World, agent: Situation) -> float:
    """A holder's clock stands still: it never notices by itself that its lease has run out."""
    lease = agent.record.lease if agent.record is not None and agent.holds_lease else None
    return world.clock if lease is None else lease.expires_at - LEASE_SECONDS


def train(world: World, machine: Machine) -> World:
    """One durable step."""
    disk = world.disk(machine.mounted)
    assert disk is not None
    assert disk.attachment is not None
    assert disk.attachment.instance == machine.id
    assert disk.content == world.durable, "the training did not begin where the last one ended"
    written = world.with_disk(replace(disk, content=disk.content + 1))
    return replace(written.spending("writes"), durable=world.durable + 1)


def lose(world: World, machine: Machine, *, stuck: bool = False) -> World:
    """The power goes off."""
    world = world.with_machine(replace(machine, running=False, agent=None, mounted=None, training=False))
    for disk in world.disks:
        if disk.attachment is not None and disk.attachment.instance == machine.id:
            state = EbsAttachment(machine.id, "busy") if stuck else None
            world = world.with_disk(replace(disk, attachment=state, state="in-use" if stuck else "available"))
    return world


def _steps_of_ec2(world: World) -> Iterator[tuple[str, World]]:
    for disk in world.disks:
        if disk.state == "creating":
            yield f"{disk.id} available", world.with_disk(replace(disk, state="available"))
            if world.budget.failures:
                yield f"{disk.id} error", world.spending("failures").with_disk(replace(disk, state="error"))
        if disk.attachment is not None and disk.attachment.state == "detaching":
            yield f"{disk.id} detached", world.with_disk(replace(disk, attachment=None, state="available"))
    for snap in world.snaps:
        if snap.state == "pending":
            yield f"{snap.id} completed", _with_snap(world, replace(snap, state="completed"))
            if world.budget.failures:
                yield f"{snap.id} error", _with_snap(world.spending("failures"), replace(snap, state="error"))


def _with_snap(world: World, snap: Snap) -> World:
    return replace(world, snaps=tuple(snap if old.id == snap.id else old for old in world.snaps))


def learn(world: World, id_: str, agent: Situation, action: do.Action, result: Result) -> World:
    """Give an agent the answer."""
    machine = next(machine for machine in world.machines if machine.id == id_)
    if isinstance(action, do.Leave):
        return world.with_machine(replace(machine, agent=None, left=True, training=False))
    after = absorb(agent, action, result)
    if after.leaving is not None:
        machine = replace(machine, training=False)  # the agent ends it before anything else
    world = world.with_machine(replace(machine, agent=after))
    if not (world.budget.agent_crashes or world.budget.notices):
        return _settle(world, id_, after)
    return world


def _settle(world: World, id_: str, agent: Situation) -> World:
    """Take the steps that touch nothing but the agent's own view: no other step can tell whether they were taken."""
    while True:
        action = decide(agent, now=_clock_of(world, agent))
        if not isinstance(action, (do.Wait, do.GiveUp, do.SurveyMachine, do.Inspect, do.Check)):
            return world
        world, result = perform(world, id_, action)
        agent = absorb(agent, action, result)
        machine = next(machine for machine in world.machines if machine.id == id_)
        training = machine.training and agent.leaving is None
        world = world.with_machine(replace(machine, agent=agent, training=training))


def _is_aws(action: do.Action) -> bool:
    aws = (do.WriteRecord, do.CreateSnapshot, do.CreateVolume, do.Attach, do.Detach, do.DeleteVolume, do.DeleteSnapshot)
    return isinstance(action, aws)


def perform(world: World, id_: str, action: do.Action) -> tuple[World, Result]:
    """Carry one action out, as EC2 and the machine would."""
    machine = next(machine for machine in world.machines if machine.id == id_)
    if isinstance(action, do.ReadRecord):
        return world, Done(world.record)
    if isinstance(action, do.WriteRecord):
        if action.record.version != world.record.version:
            return world, Refused("Conflict")
        return replace(world, record=action.record.next_version()), Done()
    if isinstance(action, do.SurveyMachine):
        devices = tuple(d.id for d in world.disks if d.attachment and d.attachment.instance == id_)
        return world.with_machine(replace(machine, training=False)), Done(MachineVolumes(machine.mounted, devices))
    if isinstance(action, do.DescribeVolumes):
        return world, Done(tuple(_shown(disk) for disk in world.disks))
    if isinstance(action, do.DescribeSnapshots):
        found = [s for s in world.snaps if s.id == action.id or (action.id is None and s.operation == action.operation)]
        return world, Done(tuple(EbsSnapshot(s.id, s.state, s.volume, 8, s.operation) for s in found))
    if isinstance(action, do.DescribeInstances):
        states = {machine.id: "running" if machine.running else "terminated" for machine in world.machines}
        return world, Done(tuple((id_, states[id_]) for id_ in action.ids))
    if isinstance(action, do.CreateSnapshot):
        return _create_snapshot(world, action)
    if isinstance(action, do.CreateVolume):
        return _create_volume(world, action)
    if isinstance(action, do.DeleteSnapshot):
        return replace(world, snaps=tuple(s for s in world.snaps if s.id != action.snapshot)), Done()
    if isinstance(action, (do.Wait, do.GiveUp, do.Idle, do.Leave)):
        return world, Done()
    if isinstance(action, do.Ready):
        assert machine.mounted == action.volume
        return world.with_machine(replace(machine, training=True)), Done()
    if isinstance(action, do.ReadSecondTier):
        return world, Done(value=False)
    if isinstance(action, do.DeleteVolume):
        disk = world.disk(action.volume)
        if disk is not None and disk.attachment is not None:
            return world, Refused("VolumeInUse")
        return replace(world, disks=tuple(d for d in world.disks if d.id != action.volume)), Done()
    return _with_volume(world, machine, action)


def _with_volume(world: World, machine: Machine, action: do.Action) -> tuple[World, Result]:
    if isinstance(action, do.Unmount):
        assert machine.mounted == action.volume
        return world.with_machine(replace(machine, mounted=None, training=False)), Done()
    disk = world.disk(action.volume)  # type: ignore[union-attr]
    if disk is None:
        return world, Refused("InvalidVolume.NotFound")
    here = disk.attachment is not None and disk.attachment.instance == machine.id
    if isinstance(action, do.Attach):
        assert disk.zone == machine.zone
        if disk.state != "available":
            return world, Refused("VolumeInUse")
        attached = replace(disk, state="in-use", attachment=EbsAttachment(machine.id, "attached"))
        return world.with_disk(attached), Done()
    if isinstance(action, do.Detach):
        assert machine.mounted != action.volume, "detached while it is mounted"
        if disk.attachment is None or disk.attachment.instance != action.instance:
            return world, Refused("IncorrectState")
        owner = next(machine for machine in world.machines if machine.id == action.instance)
        if owner.id != machine.id:
            assert action.force
            assert not owner.running, "taken from an instance that is alive"
            return world.with_disk(replace(disk, state="available", attachment=None)), Done()
        return world.with_disk(replace(disk, attachment=EbsAttachment(machine.id, "detaching"))), Done()
    if not here:
        return world, Refused("NoDevice", "the device is not there")
    if isinstance(action, do.Inspect):
        return world, Done(disk.filesystem)
    if isinstance(action, do.Format):
        assert not disk.filesystem, "formatted what has a file system"
        assert disk.snapshot is None
        return world.with_disk(replace(disk, filesystem="ext4")), Done()
    if isinstance(action, do.Check):
        return world, Refused("Damaged", "bad superblock") if disk.filesystem == "half" else Done()
    assert isinstance(action, do.Mount)
    assert disk.filesystem == "ext4"
    return world.with_machine(replace(machine, mounted=disk.id)), Done()


def _create_snapshot(world: World, action: do.CreateSnapshot) -> tuple[World, Result]:
    disk = world.disk(action.volume)
    if disk is None:
        return world, Refused("InvalidVolume.NotFound")
    made = Snap(
        id=f"snap-{world.made + 1}",
        volume=disk.id,
        operation=action.operation,
        content=disk.content,
        filesystem=disk.filesystem,
    )
    return replace(world, snaps=(*world.snaps, made), made=world.made + 1), Done(made.id)


def _create_volume(world: World, action: do.CreateVolume) -> tuple[World, Result]:
    for disk in world.disks:
        if disk.operation == action.operation:  # the idempotency token
            return world, Done(disk.id)
    snap = next((snap for snap in world.snaps if snap.id == action.snapshot), None)
    if action.snapshot is not None and (snap is None or snap.state != "completed"):
        return world, Refused("IncorrectState")
    made = Disk(
        id=f"vol-{world.made + 1}",
        zone=action.zone,
        operation=action.operation,
        snapshot=action.snapshot,
        content=snap.content if snap else 0,
        filesystem=snap.filesystem if snap else "",
    )
    return replace(world, disks=(*world.disks, made), made=world.made + 1), Done(made.id)


def _shown(disk: Disk) -> EbsVolume:
    attachments = () if disk.attachment is None else (disk.attachment,)
    return EbsVolume(disk.id, disk.zone, disk.state, 8, attachments, disk.snapshot, disk.operation)


# What must hold


def check(world: World) -> None:
    """The promises, in every world."""
    training = [machine for machine in world.machines if machine.training]
    assert len(training) <= 1, "two instances train (I1)"
    record = world.record
    named = {each.id for each in record.retired if each.kind == SNAPSHOT}
    if record.move is not None and record.move.snapshot is not None:
        named.add(record.move.snapshot)
    assert {stored.id for stored in record.snapshots} == named, "a snapshot that is there is not on the bill (I8)"
    current = record.volume
    for machine in training:
        assert current is not None
        assert machine.mounted == current.id, "an instance trains on what is not the current volume (I1, I5)"
    if current is None:
        assert world.durable == 0
        return
    disk = world.disk(current.id)
    assert disk is not None, "the current volume was deleted (I5)"
    assert disk.content == world.durable, "the current volume is not the newest (I3)"
    mounted = [machine.id for machine in world.machines if machine.mounted is not None]
    for machine in world.machines:
        if machine.mounted is not None:
            disk = world.disk(machine.mounted)
            assert disk is not None
            assert disk.attachment is not None
            assert disk.attachment.instance == machine.id, f"mounted without being attached: {mounted}"


def complete(world: World, zone: str, *, most_steps: int = 400) -> World:
    """What one more instance makes of it, when all others are gone and nothing goes wrong any more."""
    for machine in world.machines:
        if machine.running:
            world = lose(world, machine)
    world = boot(replace(world, budget=Budget()), zone)
    id_ = world.machines[-1].id
    for _ in range(most_steps):
        for _, settled in iter(lambda w=world: next(iter(_steps_of_ec2(w)), ("", None)), ("", None)):
            world = settled
            break
        machine = world.machines[-1]
        assert machine.agent is not None, "the last instance left"
        action = decide(machine.agent, now=world.clock)
        after, result = perform(world, id_, action)
        world = learn(after, id_, machine.agent, action, result)
        check(world)
        if isinstance(action, do.Idle):
            return without_orphans(world)
    raise AssertionError(
        f"the last instance does not come to train: {decide(world.machines[-1].agent, now=world.clock)}"
    )


def without_orphans(world: World) -> World:
    """Delete what the controller's next pass would."""
    resources = tuple(
        Resource("volume", disk.id, disk.operation, disk.attachment is not None) for disk in world.disks
    ) + tuple(Resource("snapshot", snap.id, snap.operation) for snap in world.snaps)
    gone = {found.id for found in orphans(world.record, resources)}
    return replace(
        world,
        disks=tuple(disk for disk in world.disks if disk.id not in gone),
        snaps=tuple(snap for snap in world.snaps if snap.id not in gone),
    )


def world_with_volume(zones: tuple[str, ...], budget: Budget) -> World:
    """A run that has trained before: its volume is in the first zone, attached nowhere."""
    volume = CurrentVolume(id="vol-1", zone=zones[0], size_gb=8)
    record = replace(new_record(run="run", volume=volume), operations=1)
    disk = Disk(id="vol-1", zone=zones[0], operation=1, state="available", content=1, filesystem="ext4")
    return World(record=record, zones=zones, budget=budget, disks=(disk,), made=1, durable=1)
