"""A platform team's own app.

It has one stack with the team's network, key and bucket, and Spotkeep among them.
"""

from __future__ import annotations

from typing import Any

from aws_cdk import App, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from spotkeep_constructs.control_plane import SpotkeepControlPlane
from spotkeep_constructs.deployment_build import Project
from spotkeep_constructs.settings import Settings


class ResearchStack(Stack):
    def __init__(self, scope: Construct, id: str, *, project: Project | None = None, **kwargs: Any) -> None:  # noqa: A002
        super().__init__(scope, id, **kwargs)
        vpc = ec2.Vpc(
            self,
            "Vpc",
            nat_gateways=1,
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3),
                "DynamoDb": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.DYNAMODB),
            },
            flow_logs={
                "All": ec2.FlowLogOptions(
                    destination=ec2.FlowLogDestination.to_cloud_watch_logs(
                        logs.LogGroup(self, "FlowLogs", retention=logs.RetentionDays.ONE_MONTH)
                    )
                )
            },
        )
        key = kms.Key(self, "Key", enable_key_rotation=True)
        access_logs = s3.Bucket(
            self,
            "AccessLogs",
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            server_access_logs_prefix="own/",
        )
        bucket = s3.Bucket(
            self,
            "Checkpoints",
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            server_access_logs_bucket=access_logs,
            server_access_logs_prefix="checkpoints/",
            lifecycle_rules=[s3.LifecycleRule(noncurrent_version_expiration=Duration.days(7))],
        )

        spotkeep = SpotkeepControlPlane(
            self,
            "Spotkeep",
            settings=Settings(deployment="research", notify_emails=("research@example.com",)),
            vpc=vpc,
            bucket=bucket,
            key=key,
            project=project,
        )

        # A pipeline that launches runs and takes what they produce.
        pipeline = iam.Role(self, "Pipeline", assumed_by=iam.ServicePrincipal("codebuild.amazonaws.com"))
        spotkeep.grant_launch(pipeline)
        spotkeep.grant_read_runs(pipeline)
        spotkeep.grant_read_checkpoints(pipeline)


if __name__ == "__main__":
    app = App()
    ResearchStack(app, "Research")
    app.synth()
