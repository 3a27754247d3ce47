"""What EC2's fleets and the agents say, brought to the controller through the queue of job events.

No rule listens to EC2's events of instances (state changes, interruption notices, rebalance recommendations): they
carry neither tags nor a fleet, so that a busy account's would all reach the queue. They are not needed either: a fleet
says which instance it launched, gave notice to and lost, an agent says that it trains and leaves, and the controller
asks every five minutes.
"""

from __future__ import annotations

from aws_cdk import aws_events as events
from constructs import Construct

from spotkeep_constructs.job_events import JobEvents
from spotkeep_constructs.run_role import AGENT_DETAIL_TYPE, AGENT_EVENT_SOURCE

DETAIL_TYPES = {
    "FleetChange": (
        "aws.ec2fleet",
        ("EC2 Fleet Error", "EC2 Fleet Information", "EC2 Fleet Instance Change", "EC2 Fleet State Change"),
    ),
    "Agent": (AGENT_EVENT_SOURCE, (AGENT_DETAIL_TYPE,)),
}
"""Source and detail types by the name of their rule.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-fleet-event-types.html
"""


class FleetEvents(Construct):
    """EventBridge rules on the default bus, and nothing else: queue, trigger and dead-letter queue are those of jobs.

    Attributes:
        rules: The rules.
    """

    def __init__(self, scope: Construct, id: str, *, job_events: JobEvents) -> None:  # noqa: A002
        """Place the rules.

        Args:
            scope: Parent construct.
            id: Construct id.
            job_events: Holds the controller's queue.
        """
        super().__init__(scope, id)
        self.rules = [
            events.Rule(
                self,
                name,
                description=f"{' and '.join(detail_types)} to the controller",
                event_pattern=events.EventPattern(source=[source], detail_type=list(detail_types)),
                targets=[job_events.target],
            )
            for name, (source, detail_types) in DETAIL_TYPES.items()
        ]
