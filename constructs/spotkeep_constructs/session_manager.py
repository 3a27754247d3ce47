"""Systems Manager's sessions as IAM sees them, with the permissions of the launcher and of an instance's agent.

Users have no such permission. The launcher opens a session for a person with rights on the run, as it stops and resumes
runs. No policy of IAM could do that, since a session's target names a training job by its name alone, which users
choose.
"""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import aws_iam as iam

from spotkeep_constructs.statements import allow, arn_for
from spotkeep_fleet.shells import COMMAND_DOCUMENT, TRAINING_JOB_TARGET
from spotkeep_fleet.tags import DEPLOYMENT_TAG, RUN_TAG

_CHANNELS = (
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)


def allow_agent(
    grantee: iam.IGrantable,
    *also: str,
    conditions: Mapping[str, Mapping[str, object]],
    bound: str,
) -> None:
    """Let Systems Manager's agent take sessions, and not the rest of AWS's managed policy for it.

    Source: "Create a custom IAM role for Session Manager". "Access a training container through AWS Systems Manager for
    remote debugging" (SageMaker).

    Args:
        grantee: The role of the instance or job that the agent runs on.
        *also: Further actions of the agent.
        conditions: The IAM conditions that limit them.
        bound: The same limit in words.
    """
    allow(
        grantee,
        actions=[*also, *_CHANNELS],
        resources=["*"],
        conditions=conditions,
        wildcard=f"Session Manager's channels are no IAM resources; {bound}",
    )


def allow_shells(grantee: iam.IGrantable, *, deployment: str, fleets: bool) -> None:
    """Let a principal open sessions in training jobs, and on the instances of a deployment's runs.

    Sources: "Start a session with a document by specifying the session documents in IAM policies", "Restrict access
    based on tags" (Systems Manager user guide). For training jobs, "Access a training container through AWS Systems
    Manager for remote debugging" (SageMaker).

    Args:
        grantee: The role of the function that opens them.
        deployment: Value of the tag `spotkeep:deployment`.
        fleets: True when runs have EC2 instances.
    """
    allow(
        grantee,
        actions=["ssm:StartSession"],
        resources=["*"],
        conditions={"StringLike": {"ssm:resourceTag/aws:ssmmessages:target-id": f"{TRAINING_JOB_TARGET}:*"}},
        wildcard="AWS documents no resource for training jobs; the target is one that asked for sessions.",
    )
    allow(
        grantee,
        actions=["ssm:StartSession"],
        resources=[arn_for(grantee, "ssm", "document", COMMAND_DOCUMENT, account="")],
    )
    if fleets:
        allow(
            grantee,
            actions=["ssm:StartSession"],
            resources=[arn_for(grantee, "ec2", "instance")],
            conditions={
                "StringEquals": {f"ssm:resourceTag/{DEPLOYMENT_TAG}": deployment},
                "Null": {f"ssm:resourceTag/{RUN_TAG}": "false"},
            },
            wildcard="Instances come with a run, later; the tags bind them to runs of this deployment.",
        )
