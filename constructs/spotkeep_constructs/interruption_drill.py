"""The experiment with which a team proves that its real runs survive: AWS takes one spot instance away, for real.

AWS Fault Injection Service bills an experiment by the minute of its action; the template itself costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import Aws, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_fis as fis
from aws_cdk import aws_iam as iam
from constructs import Construct

from spotkeep_constructs.statements import allow, allow_regional, arn_for
from spotkeep_fleet.tags import DEPLOYMENT_TAG, DRILL_TAG, DRILL_VALUE, RUN_TAG

NOTICE = "PT2M"
"""From the start to the interruption: two minutes is AWS's notice, and the least that FIS takes."""


class InterruptionDrill(Construct):
    """An FIS experiment template that interrupts the one spot instance which carries the drill's tag.

    What an experiment means is fixed in its template, so `spotkeep drill` tags the instance that it means and starts
    this one. No instance with the tag: the experiment fails, and nothing is taken away. An alarm of the functions stops
    it: no drill takes capacity away from runs that no function reconciles.

    Source: "Use Spot Instance interruptions" and "aws:ec2:send-spot-instance-interruptions", AWS FIS user guide.

    Attributes:
        template: The experiment template.
        role: What FIS acts with.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,  # noqa: A002
        *,
        deployment: str,
        stop_alarms: Sequence[cloudwatch.IAlarm],
    ) -> None:
        """Place the template.

        Args:
            scope: Parent construct.
            id: Construct id.
            deployment: Value of the tag `spotkeep:deployment`.
            stop_alarms: While one of them rings no experiment starts, and one that runs stops; five at most.
        """
        super().__init__(scope, id)
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal(
                "fis.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": Aws.ACCOUNT_ID},
                    "ArnLike": {
                        "aws:SourceArn": Stack.of(self).format_arn(
                            service="fis", resource="experiment", resource_name="*"
                        )
                    },
                },
            ),
            description="A drill takes an instance away with it",
        )
        allow(
            self.role,
            actions=["ec2:SendSpotInstanceInterruptions"],
            resources=[arn_for(self.role, "ec2", "instance")],
            conditions={
                "StringEquals": {
                    f"aws:ResourceTag/{DEPLOYMENT_TAG}": deployment,
                    f"aws:ResourceTag/{DRILL_TAG}": DRILL_VALUE,
                },
                "Null": {f"aws:ResourceTag/{RUN_TAG}": "false"},
            },
            wildcard="The instance that is meant carries the drill's tag; which one that is, is known later.",
        )
        allow_regional(self.role, "ec2:DescribeInstances")
        self.template = fis.CfnExperimentTemplate(
            self,
            "Template",
            description="Spotkeep drill: interrupts the spot instance that carries the drill's tag",
            role_arn=self.role.role_arn,
            targets={
                "Instance": fis.CfnExperimentTemplate.ExperimentTemplateTargetProperty(
                    resource_type="aws:ec2:spot-instance",
                    selection_mode="COUNT(1)",
                    resource_tags={DEPLOYMENT_TAG: deployment, DRILL_TAG: DRILL_VALUE},
                    filters=[
                        fis.CfnExperimentTemplate.ExperimentTemplateTargetFilterProperty(
                            path="State.Name", values=["running"]
                        )
                    ],
                )
            },
            actions={
                "Interrupt": fis.CfnExperimentTemplate.ExperimentTemplateActionProperty(
                    action_id="aws:ec2:send-spot-instance-interruptions",
                    parameters={"durationBeforeInterruption": NOTICE},
                    targets={"SpotInstances": "Instance"},
                )
            },
            stop_conditions=[
                fis.CfnExperimentTemplate.ExperimentTemplateStopConditionProperty(
                    source="aws:cloudwatch:alarm", value=alarm.alarm_arn
                )
                for alarm in stop_alarms
            ],
            tags={"Name": f"{deployment}-drill", DEPLOYMENT_TAG: deployment},
        )
        # FIS refuses a template whose role may not do what it says yet.
        self.template.node.add_dependency(self.role)
