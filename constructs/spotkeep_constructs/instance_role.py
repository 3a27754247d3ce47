"""The role of EC2 instances before they have the credentials of their run: fetch the agent, ask for those, a shell.

One role serves the instances of all runs: code of any run may do what it allows, once it has its credentials. What
belongs to one run is in the run role's permissions (`run_role`).
"""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.checkpoint_bucket import CheckpointBucket
from spotkeep_constructs.job_function import JobFunction
from spotkeep_constructs.session_manager import allow_agent
from spotkeep_constructs.statements import arn_for, deny

NEVER = (
    "ec2:CreateFleet",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateLaunchTemplateVersion",
    "ec2:DeleteFleets",
    "ec2:ModifyFleet",
    "ec2:RequestSpotFleet",
    "ec2:RequestSpotInstances",
    "ec2:RunInstances",
    "ec2:StartInstances",
    "ec2:TerminateInstances",
    "iam:*",
    "sagemaker:CreateTrainingJob",
    "sts:AssumeRole",
)
"""Denied whatever is ever attached to an instance's roles: it cancels no fleet, launches nothing, assumes no role."""

INVOCATIONS = ("lambda:InvokeFunction", "lambda:InvokeFunctionUrl")
"""Denied as well, but for the one function that an instance asks for the credentials of its run."""


class InstanceRole(Construct):
    """The instances' role.

    Attributes:
        role: The role.
    """

    def __init__(self, scope: Construct, id: str, *, checkpoints: CheckpointBucket) -> None:  # noqa: A002
        """Place the role.

        Args:
            scope: Parent construct.
            id: Construct id.
            checkpoints: The bucket whose `bundles/` instances boot.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            description="Spotkeep's EC2 instances boot with it, and ask for the credentials of their run",
        )
        checkpoints.grant_fetch_bundles(self.role)
        self._allow_session_manager()
        deny(self.role, actions=NEVER, resources=["*"])

    def let_ask(self, function: JobFunction) -> None:
        """Let instances ask for the credentials of their run, and invoke nothing else.

        Args:
            function: The function that gives them.
        """
        function.grant_invoke(self.role)
        deny(self.role, actions=INVOCATIONS, all_but=[function.function.function_arn])

    def _allow_session_manager(self) -> None:
        allow_agent(
            self.role,
            "ssm:UpdateInstanceInformation",
            conditions={"ArnLike": {"ec2:SourceInstanceARN": arn_for(self.role, "ec2", "instance")}},
            bound="the condition binds the calls to this account's instances.",
        )
