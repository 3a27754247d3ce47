"""Carries out the protocol's actions, by calls to AWS and changes of this machine."""

from __future__ import annotations

from typing import Any, Callable

from spotkeep.errors import CheckpointError
from spotkeep_agent.aws.fleet_records import FleetRecords, RecordChangedError
from spotkeep_agent.aws.volumes import RunVolumes
from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError, DamagedFilesystemError, VolumeError
from spotkeep_agent.volume.actions import Done, Refused, Result, Unavailable
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.instance_job import VolumeSpec

from . import actions as do
from .machine import VolumeMachine


class Executor:
    """The AWS services and the machine that actions change.

    Args:
        records: The job and the fleet record.
        volumes: The run's volumes in EC2.
        machine: This machine's devices and mounts.
        has_second_tier: The function that returns True when S3 holds a whole checkpoint.
    """

    def __init__(
        self,
        *,
        records: FleetRecords,
        volumes: RunVolumes,
        machine: VolumeMachine,
        has_second_tier: Callable[[], bool],
    ) -> None:
        self._records = records
        self._volumes = volumes
        self._machine = machine
        self._has_second_tier = has_second_tier

    def perform(self, action: do.Action, spec: VolumeSpec | None) -> Result:
        """Carry out one action, and give its result.

        Args:
            action: The action.
            spec: The properties of the run's volumes, or None before the job is read.
        """
        try:
            return Done(self._perform(action, spec))
        except RecordChangedError:
            return Refused("Conflict", "another writer changed the record")
        except DamagedFilesystemError as error:
            return Refused("Damaged", str(error))
        except VolumeError as error:
            return Refused("Volume", str(error))
        except DocumentError as error:
            return Refused("Record", str(error))
        except AwsCallRefusedError as error:
            return Refused(error.code, str(error))
        except (AwsUnavailableError, CheckpointError) as error:
            return Unavailable(str(error))

    def _perform(self, action: do.Action, spec: VolumeSpec | None) -> Any:
        machine, volumes = self._machine, self._volumes
        if isinstance(action, do.ReadJob):
            return self._records.job()
        if isinstance(action, do.ReadRecord):
            return self._records.read()
        if isinstance(action, do.WriteRecord):
            return self._records.write(action.record)
        if isinstance(action, do.SurveyMachine):
            return machine.survey()
        if isinstance(action, do.DescribeVolumes):
            return volumes.volumes(action.ids)
        if isinstance(action, do.DescribeSnapshots):
            return volumes.snapshots(id_=action.id, operation=action.operation)
        if isinstance(action, do.DescribeInstances):
            return volumes.instances(action.ids)
        if isinstance(action, do.ReadSecondTier):
            return self._has_second_tier()
        if isinstance(action, do.CreateSnapshot):
            tags = None if spec is None else spec.tags
            return volumes.create_snapshot(action.volume, operation=action.operation, tags=tags)
        if isinstance(action, do.CreateVolume):
            assert spec is not None  # noqa: S101 - the job was read before
            return volumes.create_volume(
                spec, zone=action.zone, operation=action.operation, size_gb=action.size_gb, snapshot=action.snapshot
            )
        if isinstance(action, do.DeleteSnapshot):
            return volumes.delete_snapshot(action.snapshot)
        if isinstance(action, do.Unmount):
            return machine.unmount()
        return self._with_volume(action)

    def _with_volume(self, action: do.Action) -> Any:
        machine, volumes = self._machine, self._volumes
        if isinstance(action, do.Attach):
            return volumes.attach(action.volume)
        if isinstance(action, do.Detach):
            return volumes.detach(action.volume, instance=action.instance, force=action.force)
        if isinstance(action, do.DeleteVolume):
            return volumes.delete_volume(action.volume)
        if isinstance(action, do.Inspect):
            return machine.inspect(action.volume)
        if isinstance(action, do.Format):
            return machine.format(action.volume)
        if isinstance(action, do.Check):
            return machine.check(action.volume)
        if isinstance(action, do.Mount):
            return machine.mount(action.volume)
        return None  # Ready, Idle, GiveUp, Leave, Wait: nothing outside changes
