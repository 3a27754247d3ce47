"""The grants that no rehearsal uses and that stay: each with its reason, and a test or a page of AWS that shows it.

A grant is one action of one statement of a role or of the users' policy. What neither a rehearsal uses nor this list
names is needed by nothing, and is taken out of `constructs/`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spotkeep_cli.rehearsal.permissions import readable_name
from spotkeep_local.principals import DEVELOPER

USERS: Final = DEVELOPER
"""Who has the users' policy on the local AWS."""


@dataclass(frozen=True, kw_only=True)
class KeptGrant:
    """Grants that stay for one reason.

    Attributes:
        roles: The roles by the names of their constructs, without their stack; `USERS` for the users' policy.
        actions: As they are written in the policies.
        reason: Who needs them, and when; one sentence.
        shown_by: A test, as pytest names it, or a page of AWS's documents.
    """

    roles: tuple[str, ...]
    actions: tuple[str, ...]
    reason: str
    shown_by: str


_ENCRYPTED_BUCKET: Final = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html"
_LAUNCHING: Final = ("LauncherRole", "ControllerRole")

KEPT: Final = (
    KeptGrant(
        roles=("LauncherRole", "ControllerRole", "CredentialsFunctionRole"),
        actions=("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
        reason="Lambda sends the function's traces in its role.",
        shown_by="https://docs.aws.amazon.com/lambda/latest/dg/services-xray.html",
    ),
    KeptGrant(
        roles=("LauncherRole", "ControllerRole", "CredentialsFunctionRole"),
        actions=("sqs:SendMessage",),
        reason="Lambda keeps an asynchronous invocation that failed after its retries in the function's queue.",
        shown_by="https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-retain-records.html",
    ),
    KeptGrant(
        roles=("ReconciliationRole", "PoolSchedulesRole", "ScheduledLaunchesRole"),
        actions=("sqs:SendMessage",),
        reason="Scheduler keeps an invocation that failed after its retries in the schedule's dead-letter queue.",
        shown_by="https://docs.aws.amazon.com/scheduler/latest/UserGuide/configuring-schedule-dlq.html",
    ),
    KeptGrant(
        roles=("ReconciliationRole",),
        actions=("lambda:InvokeFunction",),
        reason="Scheduler invokes the controller in this role every five minutes: a rehearsal may be shorter.",
        shown_by="https://docs.aws.amazon.com/scheduler/latest/UserGuide/setting-up.html#setting-up-execution-role",
    ),
    KeptGrant(
        roles=("CredentialsFunctionRole",),
        actions=("sts:AssumeRole", "sts:TagSession"),
        reason="Within one account the run role's trust policy is enough; the function's own names it and no other.",
        shown_by="tests/security/test_instance_binding.py::test_the_function_itself_assumes_only_the_role_of_a_run",
    ),
    KeptGrant(
        roles=("LauncherRole", "ControllerRole", "ExecutionRole", "RunRole", "InstanceRole", USERS),
        actions=("kms:Decrypt", "kms:GenerateDataKey"),
        reason="S3, SNS and SQS use the deployment's keys for the caller, to read and to write what they encrypt.",
        shown_by=_ENCRYPTED_BUCKET,
    ),
    KeptGrant(
        roles=("ExecutionRole",),
        actions=("kms:Encrypt",),
        reason="SageMaker asks for it in the job's role where a job's output names a key, which S3 itself does not.",
        shown_by="https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_OutputDataConfig.html",
    ),
    KeptGrant(
        roles=("InstanceRole",),
        actions=(
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
        ),
        reason="SSM's agent on the instance opens a person's session, which is the way onto it.",
        shown_by="https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html",
    ),
    KeptGrant(
        roles=("RunRole",),
        actions=("ec2:CreateVolume",),
        reason="A run may begin on a snapshot that a user brings, which carries no run's tag.",
        shown_by="tests/infrastructure/test_fleet_permissions.py::TestInstances::"
        "test_make_volumes_and_snapshots_that_are_tagged_and_encrypted",
    ),
    KeptGrant(
        roles=("RunRole", "ExecutionRole"),
        actions=("s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"),
        reason="The parts of an upload that was interrupted are listed, and the upload is given up.",
        shown_by="https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html",
    ),
    KeptGrant(
        roles=("ExecutionRole",),
        actions=(
            "cloudwatch:PutMetricData",
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetAuthorizationToken",
            "ecr:GetDownloadUrlForLayer",
            "logs:DescribeLogStreams",
            "s3:GetBucketLocation",
        ),
        reason="SageMaker pulls the image, finds the bucket, and writes log and metrics in the job's role.",
        shown_by="https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-roles.html#sagemaker-roles-createtrainingjob-perms",
    ),
    KeptGrant(
        roles=("RunRole",),
        actions=(
            "ecr:BatchCheckLayerAvailability",
            "ecr:BatchGetImage",
            "ecr:GetAuthorizationToken",
            "ecr:GetDownloadUrlForLayer",
        ),
        reason="The agent logs in to Amazon ECR, and docker pulls the image of a job that names one.",
        shown_by="tests/end_to_end/test_containers.py::test_a_run_in_a_container_is_interrupted_and_goes_on_to_its_end",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=(
            "sagemaker:AddTags",
            "sagemaker:CreateTrainingJob",
            "iam:PassRole",
        ),
        reason="The controller launches the next fallback of a run, and completes a launch that was cut short.",
        shown_by="tests/end_to_end/test_ladder.py::test_no_capacity_on_spot_and_the_run_completes_on_demand",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=(
            "ec2:CreateFleet",
            "ec2:CreateLaunchTemplateVersion",
            "ec2:CreateTags",
            "ec2:DescribeImages",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeLaunchTemplateVersions",
            "ec2:DescribeRouteTables",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcEndpoints",
            "ec2:RunInstances",
            "s3:GetObject",
            "s3:PutObject",
        ),
        reason="The controller completes a launch of a fleet that was cut short, and keeps the bundle that it needs.",
        shown_by="tests/controller/test_full_pass.py::"
        "test_a_launch_that_was_cut_short_is_completed_but_not_while_its_launcher_may_live",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("ec2:DescribePlacementGroups",),
        reason="Where too few nodes come, the controller asks for them in the placement group of the next subnet.",
        shown_by="tests/spotkeep_jobs/backends/ec2/test_places.py::"
        "test_nodes_of_a_cluster_are_in_the_group_that_the_deployment_has_for_their_subnet",
    ),
    KeptGrant(
        roles=_LAUNCHING,
        actions=("sagemaker:StopTrainingJob",),
        reason="A user stops a run by the launcher; the controller leaves a fallback, and stops orphaned jobs.",
        shown_by="tests/end_to_end/test_tensorboard.py::test_a_managed_spot_job_that_is_stopped_saves_and_goes_on_in_the_same_folder",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("sagemaker:ListTrainingJobs", "sagemaker:Search"),
        reason="The controller's pass, every five minutes, finds jobs and pools that wait; a rehearsal may be shorter.",
        shown_by="tests/end_to_end/test_other_clients.py::test_a_pass_finds_it_where_every_event_is_lost",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("sagemaker:UpdateTrainingJob",),
        reason="The controller ends a pool that is idle for longer than the deployment allows.",
        shown_by="tests/spotkeep_jobs/pools/test_pool_reconciler.py::TestBounded::"
        "test_i6_a_pool_that_is_idle_too_long_is_ended_and_notified",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("sagemaker:ListTags", "s3:ListBucket"),
        reason="The hourly search for orphans reads whose a job is, and which runs have objects.",
        shown_by="tests/spotkeep_jobs/orphans/test_collector.py::"
        "test_a_job_that_no_run_knows_is_stopped_and_a_strangers_is_not",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("ec2:DeleteSnapshot", "ec2:DeleteVolume"),
        reason="The controller deletes volumes and snapshots that agents made and no live run has.",
        shown_by="tests/spotkeep_jobs/backends/ec2/test_jobs.py::test_orphans_are_deleted_and_nothing_else",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("cloudformation:DescribeStacks",),
        reason="When its stack is deleted, the controller asks whether that is so before it stops runs.",
        shown_by="tests/end_to_end/test_destroy.py::test_what_runs_and_what_waits_is_stopped_before_the_functions_that_could",
    ),
    KeptGrant(
        roles=("ControllerRole",),
        actions=("dynamodb:Scan",),
        reason="Before the controller answers that nothing runs any more it reads the whole table: an index is behind.",
        shown_by="tests/spotkeep_jobs/stack_deletion/test_shutdown.py::test_a_run_that_no_index_shows_yet_is_not_missed",
    ),
    KeptGrant(
        roles=_LAUNCHING,
        actions=("ec2:GetConsoleOutput",),
        reason="What an instance printed that gave up before it trained goes into its run's record.",
        shown_by="tests/spotkeep_jobs/backends/ec2/test_history.py::"
        "test_the_console_tells_why_an_instance_gave_up_before_it_could_tell_the_record",
    ),
    KeptGrant(
        roles=("LauncherRole",),
        actions=(
            "ec2:DeleteFleets",
            "ec2:DeleteLaunchTemplateVersions",
            "ec2:DescribeFleetHistory",
            "ec2:DescribeFleets",
            "ec2:DescribeInstances",
            "ec2:DescribeVolumes",
            "ec2:TerminateInstances",
        ),
        reason="A user's stop of a run on a fleet is done by the launcher, and so is the end of a refused launch.",
        shown_by="tests/end_to_end/test_tensorboard.py::test_a_run_on_an_instance_that_is_stopped_saves_first",
    ),
    KeptGrant(
        roles=_LAUNCHING,
        actions=("ec2:DescribeSnapshots", "ec2:DescribeVolumes"),
        reason="A launch judges the snapshot or volume that a job begins on.",
        shown_by="tests/spotkeep_jobs/backends/ec2/test_checks.py::"
        "test_a_snapshot_without_the_deployments_tag_is_refused_with_the_command_that_tags_it",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=(
            "ec2:DescribeAvailabilityZones",
            "ec2:DescribeSpotPriceHistory",
            "ec2:GetSpotPlacementScores",
        ),
        reason="`spotkeep plan` reads the market.",
        shown_by="tests/spotkeep_cli/commands/test_job_files_plan.py::test_without_traces_the_account_is_asked",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=(
            "ec2:DescribeFleets",
            "ec2:DescribeSnapshots",
            "ec2:DescribeVolumes",
            "iam:GetRole",
            "s3:ListBucket",
            "sagemaker:DescribeTrainingJob",
            "sagemaker:ListTags",
            "sagemaker:ListTrainingJobs",
            "servicequotas:ListServiceQuotas",
        ),
        reason="`spotkeep doctor --account` finds orphans, missing service roles and quotas.",
        shown_by="tests/spotkeep_cli/account/test_check.py::test_jobs_of_others_are_passed_over",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=("lambda:InvokeFunction",),
        reason="The command line calls the launcher's URL; with `verify_callers` off, people may invoke it directly.",
        shown_by="tests/security/test_callers.py::TestWhoCalls::test_one_domain_of_trust_keeps_direct_invocations",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=("s3:ListBucketVersions",),
        reason="`spotkeep savings` reads what older versions of runs' objects cost.",
        shown_by="tests/spotkeep_cli/commands/test_savings.py::test_pools_and_storage_have_columns",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=("s3:GetObject",),
        reason="`spotkeep checkpoints` reads checkpoints and models of runs.",
        shown_by="tests/spotkeep_cli/commands/test_checkpoints.py::test_what_it_prints",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=("s3:AbortMultipartUpload",),
        reason="boto3 gives up a large upload of a source that failed on the way.",
        shown_by="https://docs.aws.amazon.com/AmazonS3/latest/userguide/mpuoverview.html",
    ),
    KeptGrant(
        roles=(USERS,),
        actions=("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage"),
        reason="`spotkeep notifications replay` takes refused notifications out of their queue.",
        shown_by="tests/spotkeep_cli/aws/test_deployment_dead_letters.py::test_all_of_many_are_taken_and_what_is_not_ours_is_left",
    ),
)


def kept_for(identity: str, action: str) -> KeptGrant | None:
    """Return why a grant that nothing used stays; None where there is no reason.

    Args:
        identity: The name of the role, or of the user who has the users' policy.
        action: As it is written in the policy.
    """
    role = readable_name(identity).rpartition("-")[2]
    return next((kept for kept in KEPT if role in kept.roles and action in kept.actions), None)
