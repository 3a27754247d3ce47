"""SageMaker's state changes, brought to the tracker."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from constructs import Construct

from spotkeep_constructs.job_function import JobFunction

DETAIL_TYPES = {
    "TrainingJob": "SageMaker Training Job State Change",
    "TuningJob": "SageMaker HyperParameter Tuning Job State Change",
}
DELIVERY_ATTEMPTS = 10
LONGEST_DELIVERY = Duration.hours(4)


class JobEvents(Construct):
    """One EventBridge rule for training jobs and one for tuning jobs, on the default bus.

    An event that cannot be delivered for hours waits in the tracker's dead-letter queue; the reconciler will have seen
    the job's state by then, so the queue is for people to learn from, not for the run to be saved by.

    Attributes:
        rules: The rules.
    """

    def __init__(self, scope: Construct, id: str, *, tracker: JobFunction) -> None:  # noqa: A002
        """Places the rules.

        Args:
            scope: Parent construct.
            id: Construct id.
            tracker: The function that takes the events.
        """
        super().__init__(scope, id)
        self.rules = [
            events.Rule(
                self,
                name,
                description=f"{detail_type} to the tracker",
                event_pattern=events.EventPattern(source=["aws.sagemaker"], detail_type=[detail_type]),
                targets=[
                    targets.LambdaFunction(
                        tracker.function,
                        dead_letter_queue=tracker.failures,
                        retry_attempts=DELIVERY_ATTEMPTS,
                        max_event_age=LONGEST_DELIVERY,
                    )
                ],
            )
            for name, detail_type in DETAIL_TYPES.items()
        ]
