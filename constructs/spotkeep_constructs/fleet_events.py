"""What EC2 and the agents say of instances and fleets, brought to the tracker through the queue of job events.

A warning of an interruption and a recommendation to rebalance carry no tags and no fleet, so no rule can tell whose
instance is meant: every one of the account reaches the queue. The tracker asks EC2 for the instance's tags before
anything acts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import aws_events as events
from constructs import Construct

from spotkeep_constructs.instance_role import AGENT_DETAIL_TYPE, AGENT_EVENT_SOURCE
from spotkeep_constructs.job_events import JobEvents


@dataclass(frozen=True)
class _Pattern:
    source: str
    detail_types: Sequence[str]
    detail: Mapping[str, Sequence[str]] = field(default_factory=dict)


PATTERNS = {
    "SpotNotice": _Pattern(
        "aws.ec2", ("EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation")
    ),
    "InstanceState": _Pattern(
        "aws.ec2",
        ("EC2 Instance State-change Notification",),
        # Not "pending" and "stopping", which nothing follows from.
        {"state": ("running", "shutting-down", "stopped", "terminated")},
    ),
    "FleetChange": _Pattern(
        "aws.ec2fleet",
        ("EC2 Fleet Error", "EC2 Fleet Information", "EC2 Fleet Instance Change", "EC2 Fleet State Change"),
    ),
    "Agent": _Pattern(AGENT_EVENT_SOURCE, (AGENT_DETAIL_TYPE,)),
}
"""Sources: "Monitor Amazon EC2 using EventBridge", "EC2 Fleet event types" and "Spot Instance interruption notices"."""


class FleetEvents(Construct):
    """EventBridge rules on the default bus, and nothing else: queue, trigger and dead-letter queue are those of jobs.

    Attributes:
        rules: The rules.
    """

    def __init__(self, scope: Construct, id: str, *, job_events: JobEvents) -> None:  # noqa: A002
        """Places the rules.

        Args:
            scope: Parent construct.
            id: Construct id.
            job_events: Holds the tracker's queue.
        """
        super().__init__(scope, id)
        self.rules = [
            events.Rule(
                self,
                name,
                description=f"{' and '.join(pattern.detail_types)} to the tracker",
                event_pattern=events.EventPattern(
                    source=[pattern.source],
                    detail_type=list(pattern.detail_types),
                    detail={name: list(values) for name, values in pattern.detail.items()} or None,
                ),
                targets=[job_events.target],
            )
            for name, pattern in PATTERNS.items()
        ]
