"""The protocol against a cloud that makes trouble: real calls, real directories; waiting costs no time here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.fleet_records import FleetRecords
from spotkeep_agent.aws.volumes import RunVolumes
from spotkeep_agent.volume import actions as do
from spotkeep_agent.volume import protocol
from spotkeep_agent.volume.controller import VolumeController
from spotkeep_agent.volume.executor import Executor
from spotkeep_agent.volume.machine import MARK, DeviceLinks, DirectoryMachine
from spotkeep_agent.volume.protocol import FORCE_SECONDS, Leaving
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.record import INPUT_ERROR, MOST_SETBACKS, fleet_key, new_record
from tests.models.ec2 import instance_job
from tests.spotkeep_agent.cloud import CREDENTIALS_OF_THE_RUN, DEPLOYMENT, RUN, Cloud

ZONE, OTHER_ZONE = "us-east-1a", "us-east-1b"


class Hands:
    """One instance's part in the protocol, without the rest of an agent."""

    def __init__(self, cloud: Cloud, zone: str) -> None:
        self.instance = cloud.add(zone)
        id_, root = self.instance.id, self.instance.root
        self.waited: dict[str, float] = {}
        self.did: list[do.Action] = []
        self.when_waiting: Callable[[str], None] = lambda reason: None
        environment = {
            "AWS_ENDPOINT_URL": cloud.url,
            "AWS_ACCESS_KEY_ID": CREDENTIALS_OF_THE_RUN["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": CREDENTIALS_OF_THE_RUN["SecretAccessKey"],
        }
        calls = AwsCalls(region="us-east-1", environment=environment, sleep=lambda seconds: None)
        self.controller = VolumeController(
            instance=id_,
            zone=zone,
            executor=Executor(
                records=FleetRecords(calls, table="runs", run=RUN),
                volumes=RunVolumes(calls, deployment=DEPLOYMENT, run=RUN, instance=id_),
                machine=DirectoryMachine(mount_point=root / "ml", devices=DeviceLinks(root / "dev/disk/by-id")),
                has_second_tier=lambda: False,
            ),
            tell=self._tell,
            pause=lambda seconds: None,
        )

    def bring(self) -> Leaving | None:
        """Bring the volume here, or leave."""
        leaving = self.controller.bring(should_leave=lambda: None)
        return None if leaving is None else self.leave(leaving.why, failed=leaving.failed)

    def leave(self, why: str = "notice", *, failed: bool = False) -> Leaving:
        return self.controller.leave(why=why, failed=failed, seconds_left=lambda: 1.0)

    def tend(self) -> None:
        while self.controller.tend():
            pass

    def of(self, kind: type[do.Action]) -> list[do.Action]:
        return [action for action in self.did if isinstance(action, kind)]

    def _tell(self, action: do.Action, problem: str) -> None:
        self.did.append(action)
        if isinstance(action, do.Wait):
            self.waited[action.reason] = self.waited.get(action.reason, 0.0) + action.seconds
            self.when_waiting(action.reason)


@pytest.fixture
def cloud(cloud: Cloud) -> Cloud:
    cloud.open(new_record(run=RUN), job=instance_job(command=("train",), volume=VolumeSpec(size_gb=8)))
    return cloud


@pytest.fixture
def lost(cloud: Cloud) -> Hands:
    """An instance that had the volume, and is gone; something of the run is on it."""
    hands = Hands(cloud, ZONE)
    assert hands.bring() is None
    (hands.instance.root / "ml/data").write_text("durable")
    return hands


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> float:
    """Fewer rounds of the same waiting. Gives how long is waited for what may never come, in seconds."""
    monkeypatch.setattr(protocol, "LONGEST_WAIT_SECONDS", 120.0)
    return 120.0


def current(cloud: Cloud) -> str:
    volume = cloud.record.volume
    assert volume is not None
    return volume.id


def test_a_volume_that_sticks_to_a_lost_instance_is_taken_by_force_and_not_at_once(cloud: Cloud, lost: Hands) -> None:
    """EBS may leave a volume `busy` at a terminated instance; only the controller detaches it."""
    cloud.ec2.sticking = True
    lost.instance.power_off()
    after = Hands(cloud, ZONE)
    assert after.bring() is None
    assert after.waited["a volume that a lost instance has"] >= FORCE_SECONDS
    assert [(action.instance, action.force) for action in after.of(do.Detach)] == [(lost.instance.id, True)]  # type: ignore[attr-defined]
    assert (after.instance.root / "ml/data").read_text() == "durable"


@pytest.mark.parametrize("zone", [ZONE, OTHER_ZONE])
def test_a_volume_is_never_taken_by_force_from_an_instance_that_may_write(
    cloud: Cloud, lost: Hands, zone: str, short_patience: float
) -> None:
    """A shutdown that hangs: the instance is not gone yet, and a forced detach would cost what it writes."""
    lost.instance.ec2.state = "shutting-down"
    cloud.change(lambda record: replace(record, lease=None))
    after = Hands(cloud, zone)
    leaving = after.bring()
    assert leaving is not None
    assert leaving.failed
    assert sum(after.waited.values()) >= short_patience
    assert not after.of(do.Detach)
    assert not after.of(do.CreateSnapshot)
    assert cloud.ec2.volumes[current(cloud)].instance == lost.instance.id
    lost.instance.power_off()
    last = Hands(cloud, zone)
    assert last.bring() is None
    assert (last.instance.root / "ml/data").read_text() == "durable"


def test_detaching_that_takes_its_time_is_waited_for(cloud: Cloud, lost: Hands) -> None:
    lost.leave()
    volume = cloud.ec2.volumes[current(cloud)]
    volume.instance, volume.attachment, volume.state = lost.instance.id, "detaching", "in-use"
    after = Hands(cloud, ZONE)

    def let_go(reason: str) -> None:
        if after.waited[reason] > 200:
            cloud.ec2.releases(lost.instance.id)

    after.when_waiting = let_go
    assert after.bring() is None
    assert sum(after.waited.values()) > 200
    assert not after.of(do.Detach)


def test_snapshots_that_fail_again_and_again_end_the_attempt_and_not_the_volume(cloud: Cloud, lost: Hands) -> None:
    """The naive way deletes the old volume once a snapshot was asked for (trap 6)."""
    old = current(cloud)
    lost.instance.power_off()
    cloud.ec2.snapshot_state = "error"
    leaving = Hands(cloud, OTHER_ZONE).bring()
    assert leaving is not None
    assert leaving.failed
    assert "failed" in leaving.why
    assert current(cloud) == old
    assert old in cloud.ec2.volumes
    cloud.ec2.snapshot_state = "completed"
    last = Hands(cloud, OTHER_ZONE)
    assert last.bring() is None
    last.tend()
    assert list(cloud.ec2.volumes) == [current(cloud)]
    assert not cloud.ec2.snapshots
    assert (last.instance.root / "ml/data").read_text() == "durable"


def test_a_snapshot_of_hours_is_waited_for(cloud: Cloud, lost: Hands, short_patience: float) -> None:
    """EC2's own waiters give up after ten minutes; a large volume's snapshot takes longer."""
    lost.instance.power_off()
    cloud.ec2.snapshot_state = "pending"
    after = Hands(cloud, OTHER_ZONE)

    def complete(reason: str) -> None:
        if after.waited[reason] > 3 * short_patience:
            cloud.ec2.completes()

    after.when_waiting = complete
    assert after.bring() is None
    assert after.waited["the snapshot"] > 3 * short_patience


def test_a_damaged_file_system_costs_the_volume_and_not_the_run(cloud: Cloud, lost: Hands) -> None:
    """It is recorded and kept for a person; the next instance begins a new one."""
    lost.leave()
    damaged = current(cloud)
    (cloud.path(damaged) / MARK).write_text("half")
    leaving = Hands(cloud, ZONE).bring()
    assert leaving is not None
    assert leaving.failed
    volume = cloud.record.volume
    assert volume is not None
    assert "damaged" in (volume.damage or "")
    assert cloud.record.lease is None
    assert Hands(cloud, ZONE).bring() is None
    assert cloud.record.kept == (damaged,)
    assert damaged in cloud.ec2.volumes
    assert current(cloud) != damaged


def test_a_run_without_a_record_or_that_is_over_begins_nothing(cloud: Cloud) -> None:
    cloud.change(lambda record: replace(record, ended=True))
    leaving = Hands(cloud, ZONE).bring()
    assert leaving is not None
    assert not leaving.failed
    del cloud.dynamodb.items[fleet_key(RUN)]
    leaving = Hands(cloud, ZONE).bring()
    assert leaving is not None
    assert leaving.failed
    assert "no fleet record" in leaving.why
    assert not cloud.ec2.volumes


def test_instances_that_cannot_train_one_after_the_other_end_the_run(cloud: Cloud) -> None:
    """A fleet replaces an instance that leaves, for ever: what cannot work would bill for ever (I6)."""
    cloud.ec2.volume_state = "error"
    for number in range(MOST_SETBACKS):
        assert cloud.record.setbacks == number
        assert not cloud.record.training.over
        leaving = Hands(cloud, ZONE).bring()
        assert leaving is not None
        assert leaving.failed
    training = cloud.record.training
    assert training.state == INPUT_ERROR
    assert f"{MOST_SETBACKS} instances, one after the other, could not train" in (training.failure or "")
    assert "no usable volume" in (training.failure or "")
    after = Hands(cloud, ZONE).bring()
    assert after is not None
    assert not after.failed, "there is nothing left to do"


def test_a_notice_is_no_setback(cloud: Cloud, lost: Hands) -> None:
    cloud.change(lambda record: replace(record, setbacks=MOST_SETBACKS - 1))
    lost.leave()
    assert cloud.record.setbacks == MOST_SETBACKS - 1
    assert not cloud.record.training.over
