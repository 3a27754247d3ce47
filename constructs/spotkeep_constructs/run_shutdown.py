"""What CloudFormation deletes first when the deployment is destroyed: everything that still runs."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy
from constructs import Construct, IConstruct

from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.statements import allow

LONGEST_WAIT = Duration.hours(1)
"""The most CloudFormation waits for a custom resource. A stop takes minutes: two to save, and until the next pass."""


class RunShutdown(Construct):
    """A custom resource whose deletion stops the deployment's runs and ends its warm pools.

    Fleets and warm pools come with runs and are in no template. The functions that would end them go with the stack,
    so CloudFormation has to wait until they have. The controller answers it: no function is added.

    Attributes:
        resource: The custom resource.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        controller: JobFunction,
        needs: Sequence[IConstruct],
    ) -> None:
        """Place the resource.

        Args:
            scope: Parent construct.
            id: Construct id.
            controller: The function that stops what runs.
            needs: What runs are stopped, reconciled and notified with; it stays until nothing runs any more.
        """
        super().__init__(scope, id)
        # Whether the whole stack goes, or only this resource of it.
        allow(controller.role, actions=["cloudformation:DescribeStacks"], resources=[Aws.STACK_ID])
        self.resource = CustomResource(
            self,
            "Resource",
            resource_type="Custom::SpotkeepRunShutdown",
            service_token=controller.function.function_arn,
            service_timeout=LONGEST_WAIT,
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.resource.node.add_dependency(controller, *needs)
