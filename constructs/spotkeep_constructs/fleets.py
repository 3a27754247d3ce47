"""EC2 fleets as IAM sees them, with the permissions to launch, follow and end them and to clear away their remains.

It creates nothing. A fleet comes from the launcher with a run, and goes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow, allow_regional, arn_for, together
from spotkeep_fleet.service_roles import DRILL_SERVICE_ROLES, FLEET_SERVICE_ROLES
from spotkeep_fleet.tags import DEPLOYMENT_TAG, DRILL_TAG, DRILL_VALUE, OPERATION_TAG, RUN_TAG

_MADE_LATER = "Fleets and what they launch come with a run, later; the conditions bind them to this deployment."


def service_role_arns(grantee: iam.IGrantable, roles: Mapping[str, str]) -> list[str]:
    """Return the ARNs of service-linked roles of the account.

    Args:
        grantee: A role or managed policy of the account.
        roles: Their names, by the service.
    """
    return [
        arn_for(grantee, "iam", "role", f"aws-service-role/{service}/{name}", region="")
        for service, name in roles.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Fleets:
    """The fleets of one deployment.

    The launcher launches a fleet from a version of the deployed launch template that the attempt has of its own. Only a
    template can tag the instances of a fleet of type `maintain`. EC2 asks IAM for `ec2:CreateFleet`. Of the same caller
    it asks for `ec2:RunInstances` on everything the first instances need. EC2's service-linked role launches later
    replacements. So `RunInstances` is limited to that one template, to its subnets, to the deployment's security groups
    and placement groups. The request cannot exchange the image that the template names.

    Source: "EC2 Fleet prerequisites" and "Example: Work with launch templates", Amazon EC2 user guide. "Actions,
    resources, and condition keys for Amazon EC2", service authorization reference.

    Attributes:
        deployment: Value of the tag `spotkeep:deployment`.
    """

    deployment: str

    def grant_launch(
        self,
        grantee: iam.IGrantable,
        *,
        launch_template_id: str,
        instance_role: iam.IRole,
        subnet_ids: Sequence[str],
        security_group_ids: Sequence[str],
        placement_groups: Sequence[str],
    ) -> iam.Grant:
        """Let a principal launch fleets of this deployment, and describe EC2's resources before a launch.

        Args:
            grantee: The role of a function that launches.
            launch_template_id: The deployed launch template, the only one to launch from.
            instance_role: The role of the instances, the only role that may be passed, to EC2 alone.
            subnet_ids: The subnets in which instances may be launched.
            security_group_ids: The security groups of the instances.
            placement_groups: The names of the placement groups in which instances may be launched.
        """
        arn = partial(arn_for, grantee, "ec2")
        template, fleets = arn("launch-template", launch_template_id), arn("fleet")
        launched = [arn(kind) for kind in ("instance", "network-interface", "volume")]
        network = [
            *(arn("subnet", subnet_id) for subnet_id in subnet_ids),
            *(arn("security-group", group_id) for group_id in security_group_ids),
        ]
        placed = [arn("placement-group", name) for name in placement_groups]
        images = arn("image", account="")
        from_the_template = {"ArnEquals": {"ec2:LaunchTemplate": template}}
        return together(
            allow(
                grantee,
                actions=["ec2:CreateLaunchTemplateVersion", "ec2:DeleteLaunchTemplateVersions"],
                resources=[template],
            ),
            self._allow(grantee, "CreateFleet", [fleets], self._of_a_run("aws:RequestTag")),
            # EC2 asks for each of these as RunInstances, too: what binds them stands there. A managed policy has no
            # room for the long names of placement groups twice.
            self._allow(grantee, "CreateFleet", [template, *launched, *network, arn("placement-group"), images]),
            self._allow(grantee, "RunInstances", [template]),
            self._allow(grantee, "RunInstances", [*launched, *network, *placed], from_the_template),
            self._allow(
                grantee,
                "RunInstances",
                [images],
                from_the_template | {"Bool": {"ec2:IsLaunchTemplateResource": "true"}},
            ),
            self._allow(
                grantee,
                "CreateTags",
                [fleets, arn("instance"), arn("volume")],
                {
                    "StringEquals": {
                        "ec2:CreateAction": ["CreateFleet", "RunInstances"],
                        f"aws:RequestTag/{DEPLOYMENT_TAG}": self.deployment,
                    }
                },
            ),
            allow(
                grantee,
                actions=["iam:PassRole"],
                resources=[instance_role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
            ),
            allow_regional(
                grantee,
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:DescribePlacementGroups",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcEndpoints",
            ),
            self.grant_reconcile(grantee),
        )

    def grant_reconcile(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal see fleets, their instances and volumes, and end those of this deployment.

        Args:
            grantee: The role of a function that reconciles runs.
        """
        instances, of_a_run = [arn_for(grantee, "ec2", "instance")], self._of_a_run("aws:ResourceTag")
        fleets = [arn_for(grantee, "ec2", "fleet")]
        return together(
            allow_regional(
                grantee,
                "ec2:DescribeFleetHistory",
                "ec2:DescribeFleets",
                "ec2:DescribeInstances",
                "ec2:DescribeSnapshots",
                "ec2:DescribeSpotPriceHistory",
                "ec2:DescribeVolumes",
            ),
            self._allow(grantee, "DeleteFleets", fleets, self._of_the_deployment("aws:ResourceTag")),
            self._allow(grantee, "TerminateInstances", instances, of_a_run),
            self._allow(grantee, "GetConsoleOutput", instances, of_a_run),
        )

    def grant_delete_orphans(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal delete volumes and snapshots that agents of this deployment made, and no others.

        Args:
            grantee: The role of the function that removes orphans.
        """
        made_by_an_agent = self._of_a_run("aws:ResourceTag", OPERATION_TAG)
        return together(
            self._allow(grantee, "DeleteVolume", [arn_for(grantee, "ec2", "volume")], made_by_an_agent),
            self._allow(grantee, "DeleteSnapshot", [arn_for(grantee, "ec2", "snapshot", account="")], made_by_an_agent),
        )

    def grant_check_service_roles(self, grantee: iam.IGrantable, *, drills: bool) -> iam.Grant:
        """Let a principal check that the account has the service-linked roles that fleets need.

        Args:
            grantee: The users' policy.
            drills: True to include the role that a drill needs.
        """
        roles = FLEET_SERVICE_ROLES | (DRILL_SERVICE_ROLES if drills else {})
        return allow(grantee, actions=["iam:GetRole"], resources=service_role_arns(grantee, roles))

    def grant_drill(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal take a spot instance of this deployment away through the deployed experiment template.

        Args:
            grantee: The users' policy.
        """
        templates, experiments = (arn_for(grantee, "fis", kind) for kind in ("experiment-template", "experiment"))
        instances = [arn_for(grantee, "ec2", "instance")]
        tagged, of_a_run = self._of_the_deployment("aws:ResourceTag"), self._of_a_run("aws:ResourceTag")
        named_later = "Experiments are named when they start; the tag binds them to this deployment."
        return together(
            allow(
                grantee,
                actions=["fis:StartExperiment"],
                resources=[templates],
                conditions=tagged,
                wildcard="FIS names templates; the tag binds it to those of this deployment.",
            ),
            allow(
                grantee,
                actions=["fis:StartExperiment", "fis:TagResource"],
                resources=[experiments],
                conditions=self._of_the_deployment("aws:RequestTag"),
                wildcard=named_later,
            ),
            allow(
                grantee,
                actions=["fis:GetExperiment", "fis:StopExperiment"],
                resources=[experiments],
                conditions=tagged,
                wildcard=named_later,
            ),
            self._allow(
                grantee,
                "CreateTags",
                instances,
                {
                    **of_a_run,
                    "ForAllValues:StringEquals": {"aws:TagKeys": [DRILL_TAG]},
                    "StringEqualsIfExists": {f"aws:RequestTag/{DRILL_TAG}": DRILL_VALUE},
                },
            ),
            self._allow(
                grantee,
                "DeleteTags",
                instances,
                {**of_a_run, "ForAllValues:StringEquals": {"aws:TagKeys": [DRILL_TAG]}},
            ),
            allow_regional(grantee, "ec2:DescribeInstances"),
        )

    @staticmethod
    def _allow(
        grantee: iam.IGrantable,
        action: str,
        resources: Sequence[str],
        conditions: Mapping[str, Mapping[str, object]] | None = None,
    ) -> iam.Grant:
        return allow(
            grantee, actions=[f"ec2:{action}"], resources=resources, conditions=conditions, wildcard=_MADE_LATER
        )

    def _of_the_deployment(self, key: str) -> dict[str, dict[str, object]]:
        return {"StringEquals": {f"{key}/{DEPLOYMENT_TAG}": self.deployment}}

    def _of_a_run(self, key: str, *also: str) -> dict[str, dict[str, object]]:
        present: dict[str, object] = {f"{key}/{name}": "false" for name in (RUN_TAG, *also)}
        return {**self._of_the_deployment(key), "Null": present}
