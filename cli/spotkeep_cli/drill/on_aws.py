"""Carries a drill out.

It tags the instance, starts the deployed experiment, and describes EC2 and the fleet record.

Source: StartExperiment and GetExperiment, AWS FIS API reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws.calls import translated_aws_errors
from spotkeep_cli.drill.recovery import DrillState, Phase, Recovery, absorb
from spotkeep_cli.errors import RefusedError
from spotkeep_fleet.record import FAILED, INPUT_ERROR
from spotkeep_fleet.tags import DEPLOYMENT_TAG, DRILL_TAG, DRILL_VALUE, RUN_TAG
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from spotkeep_cli.aws.deployment import DeploymentClient

_LIVE = ("pending", "running")


@dataclass(frozen=True, kw_only=True)
class DrillTarget:
    """The instance that a drill takes away.

    Attributes:
        instance: Its id.
        zone: Its zone.
        others: The other instances of the run, which are its other nodes.
    """

    instance: str
    zone: str
    others: frozenset[str]


class Drill:
    """A drill on one run, whose instance AWS takes away on purpose.

    Args:
        deployment: The run's deployment.
        run: The run's id.
    """

    def __init__(self, deployment: DeploymentClient, *, run: str) -> None:
        self._connection = deployment.connection
        self._options = deployment.options
        self._run = run
        self._ec2, self._fis = deployment.client("ec2"), deployment.client("fis")
        self._records = FleetTable(
            deployment.client("dynamodb"), table_name=deployment.connection.run_table, retention_days=1
        )
        self._experiment: str | None = None

    def target(self) -> DrillTarget:
        """Return the spot instance that holds the run, or leads its nodes.

        Raises:
            RefusedError: The deployment has no drills, or the run has no such instance.
        """
        if not self._connection.drill_template_id:
            raise RefusedError(
                "this deployment has no drills", hint="deploy it with them: cdk deploy --all -c drills=true"
            )
        with translated_aws_errors(f"describing the instances of {self._run}", options=self._options):
            record = self._records.record(self._run)
            found = {each["InstanceId"]: each for each in self._instances()}
        holder = found.get(record.lease.holder) if record is not None and record.lease is not None else None
        if holder is None or holder["State"]["Name"] != "running":
            raise RefusedError(
                f"no instance works on {self._run} now",
                hint=f"a drill needs one that trains: {self._options.command} describe {self._run}",
            )
        if holder.get("InstanceLifecycle") != "spot":
            raise RefusedError(
                f"{holder['InstanceId']} is no spot instance: EC2 does not take it away",
                hint="drill a run that is on spot",
            )
        live = (each for each, instance in found.items() if instance["State"]["Name"] in _LIVE)
        return DrillTarget(
            instance=holder["InstanceId"],
            zone=holder["Placement"]["AvailabilityZone"],
            others=frozenset(each for each in live if each != holder["InstanceId"]),
        )

    def start(self, instance: str, *, token: str) -> str:
        """Start the experiment on an instance, and give its id."""
        with translated_aws_errors("starting the experiment", options=self._options):
            self._ec2.create_tags(Resources=[instance], Tags=[{"Key": DRILL_TAG, "Value": DRILL_VALUE}])
            try:
                started = self._fis.start_experiment(
                    clientToken=token,
                    experimentTemplateId=self._connection.drill_template_id,
                    tags={DEPLOYMENT_TAG: self._connection.deployment, RUN_TAG: self._run},
                )
            except Exception:
                self.spare(instance)
                raise
        self._experiment = str(started["experiment"]["id"])
        return self._experiment

    def spare(self, instance: str) -> None:
        """Take the drill's tag away, so that no later experiment means this instance."""
        with translated_aws_errors("taking the drill's tag away", options=self._options):
            self._ec2.delete_tags(Resources=[instance], Tags=[{"Key": DRILL_TAG}])

    def describe(self, *, at: float) -> DrillState:
        """Describe the experiment, the run's instances and its fleet record."""
        with translated_aws_errors(f"describing {self._run}", options=self._options):
            state = self._fis.get_experiment(id=self._experiment)["experiment"]["state"]
            instances = self._instances()
            # Read last: what it says is never older than what EC2 says.
            record = self._records.record(self._run)
        training = record.training if record is not None else None
        durable = (
            [step for step in (training.durable_step, training.uploaded_step) if step is not None] if training else []
        )
        return DrillState(
            at=at,
            experiment=str(state["status"]),
            reason=str(state.get("reason", "")),
            instances={
                each["InstanceId"]: each["Placement"]["AvailabilityZone"]
                for each in instances
                if each["State"]["Name"] in _LIVE
            },
            holder=record.lease.holder if record is not None and record.lease is not None else None,
            step=training.step if training else None,
            durable_step=max(durable, default=None),
            over=training.over if training else False,
            failed=training.state in (FAILED, INPUT_ERROR) if training else False,
            nodes=len(record.world) if record is not None and record.nodes else None,
        )

    def _instances(self) -> list[dict[str, Any]]:
        filters = [
            {"Name": f"tag:{DEPLOYMENT_TAG}", "Values": [self._connection.deployment]},
            {"Name": f"tag:{RUN_TAG}", "Values": [self._run]},
        ]
        pages = self._ec2.get_paginator("describe_instances").paginate(Filters=filters)
        return [
            instance for page in pages for reservation in page["Reservations"] for instance in reservation["Instances"]
        ]


def carry_out(
    hands: Drill,
    *,
    run: str,
    target: DrillTarget,
    token: str,
    clock: Callable[[], datetime],
    pause: Callable[[], None],
    within_seconds: float,
    on_phase: Callable[[Recovery, Phase], None] = lambda _recovery, _phase: None,
) -> Recovery:
    """Take a run's instance away, and follow the run until it trains again or the time is over.

    Args:
        hands: The drill.
        run: The run's id.
        target: The instance to take.
        token: An idempotency token for the experiment.
        clock: Returns the time.
        pause: Waits between two descriptions.
        within_seconds: The longest wait, in seconds.
        on_phase: Called with each phase that was reached.
    """
    began = clock().timestamp()
    hands.start(target.instance, token=token)
    recovery = Recovery(
        run=run, began_at=began, instance=target.instance, zone=target.zone, seen={}, others=target.others
    )
    while not recovery.ended and clock().timestamp() - began < within_seconds:
        before = set(recovery.seen)
        recovery = absorb(recovery, hands.describe(at=clock().timestamp()))
        for phase in Phase:
            if phase in recovery.seen and phase not in before:
                on_phase(recovery, phase)
        if not recovery.ended:
            pause()
    if Phase.GONE not in recovery.seen:
        hands.spare(target.instance)
    return recovery
