"""Attacks on the deployed app, by who has a principal's credentials: each is denied, beside a call that is allowed.

What `tests/security` judges on synthesized templates is judged here on what is deployed, request by request.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_fleet.tags import DEPLOYMENT_TAG, OPERATION_TAG, RUN_TAG
from spotkeep_local.access.issued_credentials import AccessKey, Principal
from spotkeep_local.iam import evaluation
from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.evaluation import CallingPrincipal, Reason
from spotkeep_local.iam.policy import PolicyKind, read_policy

from .attackers import INSTANCE, OURS, THEIRS, Attackers, denied, session_with

if TYPE_CHECKING:
    from .conftest import DeployedApp

pytestmark = pytest.mark.long

CHECKPOINT = "checkpoints/step-1/manifest.json"
OTHER_ACCOUNT = "999999999999"
LOG_GROUP = "/spotkeep/spotkeep/instances"


@pytest.fixture(scope="module")
def attackers(deployed_app: DeployedApp) -> Attackers:
    found = Attackers(deployed_app)
    for key in (f"runs/{OURS}/{CHECKPOINT}", f"runs/{THEIRS}/{CHECKPOINT}", f"teams/vision/runs/{THEIRS}/{CHECKPOINT}"):
        found.put(key)
    return found


@pytest.fixture
def make_volume(deployed_app: DeployedApp) -> Callable[[str], str]:
    """Makes a volume of a run as an agent does, whose tags say which run's it is."""

    def make(run: str) -> str:
        tags = {DEPLOYMENT_TAG: "spotkeep", RUN_TAG: run, OPERATION_TAG: "1"}
        specification = {"ResourceType": "volume", "Tags": [{"Key": key, "Value": tags[key]} for key in tags]}
        ec2 = deployed_app.client("ec2")
        made = ec2.create_volume(
            AvailabilityZone="us-east-1a", Size=1, VolumeType="gp3", Encrypted=True, TagSpecifications=[specification]
        )
        ec2.get_waiter("volume_available").wait(VolumeIds=[made["VolumeId"]], WaiterConfig={"Delay": 1})
        return str(made["VolumeId"])

    return make


class TestAJob:
    """With the credentials of its execution role, which all jobs of a team share: IAM knows no key for the job."""

    def test_reads_the_checkpoints_of_its_team_and_none_of_an_isolated_team(self, attackers: Attackers) -> None:
        s3 = attackers.job.client("s3")
        assert s3.get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")["Body"].read() == b"theirs"
        with denied("s3:GetObject"):
            s3.get_object(Bucket=attackers.bucket, Key=f"teams/vision/runs/{THEIRS}/{CHECKPOINT}")
        with denied("s3:ListBucket"):
            s3.list_objects_v2(Bucket=attackers.bucket, Prefix="teams/")

    def test_reads_no_other_bucket(self, attackers: Attackers) -> None:
        logs = attackers.resource("CheckpointsAccessLogs")
        attackers.app.client("s3").put_object(Bucket=logs, Key="log", Body=b"")
        with denied("s3:GetObject"):
            attackers.job.client("s3").get_object(Bucket=logs, Key="log")

    def test_writes_results_and_nothing_that_another_run_executes(self, attackers: Attackers) -> None:
        s3 = attackers.job.client("s3")
        s3.put_object(Bucket=attackers.bucket, Key=f"runs/{OURS}/checkpoints/step-2/data", Body=b"")
        for key in ("bundles/0/spotkeep.pyz", f"runs/{THEIRS}/source/0.tar.gz", "elsewhere"):
            with denied("s3:PutObject"):
                s3.put_object(Bucket=attackers.bucket, Key=key, Body=b"")
            with denied("s3:DeleteObject"):
                s3.delete_object(Bucket=attackers.bucket, Key=key)

    def test_neither_reads_nor_writes_the_run_table(self, attackers: Attackers) -> None:
        dynamodb = attackers.job.client("dynamodb")
        with denied("dynamodb:GetItem"):
            dynamodb.get_item(**attackers.item(f"run#{OURS}"))
        with denied("dynamodb:PutItem"):
            dynamodb.put_item(TableName=attackers.table, Item=attackers.item(f"run#{OURS}")["Key"])

    def test_launches_nothing_and_takes_no_other_role(self, attackers: Attackers) -> None:
        with denied("sagemaker:CreateTrainingJob"):
            attackers.job.client("sagemaker").create_training_job(
                **attackers.job_request(role=attackers.role_arn("ExecutionRole"))
            )
        with denied("lambda:InvokeFunction"):
            attackers.job.client("lambda").invoke(FunctionName="spotkeep-launcher", Payload=b"{}")
        for role in ("RunRole", "LauncherRole", "ControllerRole", "ExecutionRole"):
            with denied("sts:AssumeRole"):
                attackers.job.client("sts").assume_role(RoleArn=attackers.role_arn(role), RoleSessionName="job")

    def test_that_runs_has_these_credentials_in_its_process(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        script = (
            "import json, os, time\n"
            "names = ('AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY', 'AWS_SESSION_TOKEN')\n"
            "print('HAS', json.dumps([os.environ[name] for name in names]), flush=True)\n"
            "time.sleep(600)\n"
        )
        run = f"leak-{uuid.uuid4().hex[:8]}"
        source = deployed_app.upload_source(run, {"leak.py": script})
        deployed_app.launch(
            name="leak", run=run, command="python3 leak.py", source=source, instance_type="ml.m5.xlarge", max_run="10m"
        )
        printed = self._printed(deployed_app, run)
        names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
        stolen = session_with(deployed_app, dict(zip(names, printed, strict=True)))
        role = attackers.resource("ExecutionRole")
        assert stolen.client("sts").get_caller_identity()["Arn"].endswith(f":assumed-role/{role}/SageMaker")
        stolen.client("s3").get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
        with denied("s3:PutObject"):
            stolen.client("s3").put_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/source/0.tar.gz", Body=b"")
        deployed_app.invoke("launcher", {"action": "stop", "run": run})
        deployed_app.wait_until_ended(run, passes=True)
        with pytest.raises(ClientError) as refused:
            stolen.client("s3").get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
        assert refused.value.response["Error"]["Code"] == "InvalidAccessKeyId"

    def _printed(self, app: DeployedApp, run: str) -> list[str]:
        logs = app.client("logs")
        for _ in range(600):
            try:
                found = logs.filter_log_events(
                    logGroupName="/aws/sagemaker/TrainingJobs", logStreamNamePrefix=f"{run}-"
                )["events"]
            except logs.exceptions.ResourceNotFoundException:
                found = []
            if said := [each["message"] for each in found if each["message"].startswith("HAS ")]:
                return list(json.loads(said[0].removeprefix("HAS ")))
            time.sleep(0.2)
        raise AssertionError(f"{run} has not printed its credentials")


class TestAnInstance:
    """With a session of the run role for the run `ours`, as the function instance_credentials gives it."""

    def test_writes_its_own_checkpoints_and_none_of_another_run(self, attackers: Attackers) -> None:
        s3 = attackers.instance.client("s3")
        s3.put_object(Bucket=attackers.bucket, Key=f"runs/{OURS}/checkpoints/step-3/data", Body=b"")
        with denied("s3:PutObject"):
            s3.put_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}", Body=b"")
        with denied("s3:DeleteObject"):
            s3.delete_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")

    def test_reads_the_runs_of_its_team_and_none_of_an_isolated_team(self, attackers: Attackers) -> None:
        s3 = attackers.instance.client("s3")
        s3.get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
        with denied("s3:GetObject"):
            s3.get_object(Bucket=attackers.bucket, Key=f"teams/vision/runs/{THEIRS}/{CHECKPOINT}")

    def test_deletes_its_own_volume_and_none_of_another_run(
        self, attackers: Attackers, make_volume: Callable[[str], str]
    ) -> None:
        ec2, theirs = attackers.instance.client("ec2"), make_volume(THEIRS)
        with denied("ec2:DeleteVolume"):
            ec2.delete_volume(VolumeId=theirs)
        ec2.delete_volume(VolumeId=make_volume(OURS))

    def test_detaches_no_volume_of_another_run(self, attackers: Attackers, make_volume: Callable[[str], str]) -> None:
        ec2 = attackers.instance.client("ec2")
        with denied("ec2:DetachVolume"):
            ec2.detach_volume(VolumeId=make_volume(THEIRS))
        # Allowed, and then there is nothing to detach.
        with pytest.raises(ClientError) as refused:
            ec2.detach_volume(VolumeId=make_volume(OURS))
        assert refused.value.response["Error"]["Code"] == "IncorrectState"

    def test_reads_and_writes_its_own_fleet_record_and_no_other_item(self, attackers: Attackers) -> None:
        dynamodb = attackers.instance.client("dynamodb")
        for partition in (f"fleet#{OURS}", f"fleet-job#{OURS}"):
            dynamodb.get_item(**attackers.item(partition))
        dynamodb.put_item(TableName=attackers.table, Item=attackers.item(f"fleet#{OURS}")["Key"])
        for partition in (f"fleet#{THEIRS}", f"fleet-job#{THEIRS}", f"run#{THEIRS}", f"run#{OURS}"):
            with denied("dynamodb:GetItem"):
                dynamodb.get_item(**attackers.item(partition))
        for partition in (f"fleet#{THEIRS}", f"fleet-job#{THEIRS}", f"fleet-job#{OURS}", f"run#{OURS}"):
            with denied("dynamodb:PutItem"):
                dynamodb.put_item(TableName=attackers.table, Item=attackers.item(partition)["Key"])

    def test_writes_the_log_of_its_attempt_and_of_no_other(self, attackers: Attackers) -> None:
        logs = attackers.instance.client("logs")
        logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=f"{OURS}-1/algo-1-ec2")
        for stream in (f"{THEIRS}-1/algo-1-ec2", f"{OURS}-2/algo-1-ec2"):
            with denied("logs:CreateLogStream"):
                logs.create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)
            with denied("logs:PutLogEvents"):
                logs.put_log_events(
                    logGroupName=LOG_GROUP, logStreamName=stream, logEvents=[{"timestamp": 1, "message": "false"}]
                )

    def test_takes_no_session_of_another_run(self, attackers: Attackers) -> None:
        sts = attackers.instance.client("sts")
        assert f"/{attackers.resource('RunRole')}/" in sts.get_caller_identity()["Arn"]
        with denied("sts:AssumeRole", because="explicit deny"):
            sts.assume_role(
                RoleArn=attackers.role_arn("RunRole"),
                RoleSessionName="other",
                Tags=[{"Key": "run", "Value": THEIRS}],
            )

    def test_invokes_no_function(self, attackers: Attackers) -> None:
        for function in ("spotkeep-launcher", "spotkeep-controller"):
            with denied("lambda:InvokeFunction", because="explicit deny"):
                attackers.instance.client("lambda").invoke(FunctionName=function, Payload=b"{}")


class TestAUser:
    """The developer, with the users' policy."""

    @pytest.fixture
    def may_create_jobs(self, deployed_app: DeployedApp) -> Any:
        """Another policy of theirs lets the user create training jobs, as many accounts do."""
        actions = ["sagemaker:CreateTrainingJob", "sagemaker:AddTags"]
        document = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": actions, "Resource": "*"}}
        user = {"UserName": "developer", "PolicyName": "jobs"}
        iam = deployed_app.client("iam")
        iam.put_user_policy(**user, PolicyDocument=json.dumps(document))
        yield
        iam.delete_user_policy(**user)

    def test_starts_no_job_but_through_the_launcher(self, attackers: Attackers) -> None:
        answer = attackers.user.client("lambda").invoke(FunctionName="spotkeep-launcher", Payload=b"{}")
        assert not json.loads(answer["Payload"].read())["ok"], "it refuses an empty document, itself"
        with denied("sagemaker:CreateTrainingJob"):
            attackers.user.client("sagemaker").create_training_job(
                **attackers.job_request(role=attackers.role_arn("ExecutionRole"))
            )

    @pytest.mark.usefixtures("may_create_jobs")
    @pytest.mark.parametrize("role", ["ExecutionRole", "LauncherRole", "ControllerRole", "RunRole"])
    def test_who_may_create_jobs_passes_none_of_our_roles(self, attackers: Attackers, role: str) -> None:
        with denied("iam:PassRole", of="sagemaker"):
            attackers.user.client("sagemaker").create_training_job(
                **attackers.job_request(role=attackers.role_arn(role))
            )

    @pytest.mark.usefixtures("may_create_jobs")
    def test_who_may_create_jobs_keeps_no_pool_longer_than_the_deployment_allows(self, attackers: Attackers) -> None:
        sagemaker, role = attackers.user.client("sagemaker"), attackers.role_arn("ExecutionRole")
        with denied("sagemaker:CreateTrainingJob", because="explicit deny in an identity-based policy"):
            sagemaker.create_training_job(**attackers.job_request(role=role, keep_alive_seconds=86_400))
        # A short one is denied for its role alone.
        with denied("iam:PassRole", of="sagemaker"):
            sagemaker.create_training_job(**attackers.job_request(role=role, keep_alive_seconds=60))

    def test_reads_checkpoints_and_uploads_sources_and_changes_no_result(self, attackers: Attackers) -> None:
        s3 = attackers.user.client("s3")
        s3.get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
        s3.put_object(Bucket=attackers.bucket, Key=f"runs/{OURS}/source/0.tar.gz", Body=b"")
        for key in (f"runs/{THEIRS}/{CHECKPOINT}", f"runs/{THEIRS}/output/model.tar.gz", "bundles/0/spotkeep.pyz"):
            with denied("s3:PutObject"):
                s3.put_object(Bucket=attackers.bucket, Key=key, Body=b"")
            with denied("s3:DeleteObject"):
                s3.delete_object(Bucket=attackers.bucket, Key=key)

    def test_reads_the_run_table_and_writes_nothing_into_it(self, attackers: Attackers) -> None:
        dynamodb, item = attackers.user.client("dynamodb"), attackers.item(f"run#{THEIRS}")
        dynamodb.get_item(**item)
        with denied("dynamodb:PutItem"):
            dynamodb.put_item(TableName=attackers.table, Item=item["Key"])
        with denied("dynamodb:DeleteItem"):
            dynamodb.delete_item(**item)

    @pytest.mark.parametrize("function", ["spotkeep-launcher", "spotkeep-controller", "spotkeep-instance_credentials"])
    def test_neither_reads_a_functions_environment_nor_replaces_its_code(
        self, attackers: Attackers, function: str
    ) -> None:
        functions = attackers.user.client("lambda")
        with denied("lambda:GetFunctionConfiguration"):
            functions.get_function_configuration(FunctionName=function)
        with denied("lambda:GetFunction"):
            functions.get_function(FunctionName=function)
        with denied("lambda:UpdateFunctionCode"):
            functions.update_function_code(FunctionName=function, ZipFile=b"PK")

    @pytest.mark.parametrize("function", ["spotkeep-controller", "spotkeep-instance_credentials"])
    def test_invokes_no_function_but_the_launcher(self, attackers: Attackers, function: str) -> None:
        with denied("lambda:InvokeFunction"):
            attackers.user.client("lambda").invoke(FunctionName=function, Payload=b"{}")

    def test_gives_themselves_no_policy(self, attackers: Attackers) -> None:
        iam = attackers.user.client("iam")
        iam.get_role(RoleName="AWSServiceRoleForEC2Fleet")
        with denied("iam:AttachUserPolicy"):
            iam.attach_user_policy(UserName="developer", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")
        with denied("iam:PutUserPolicy"):
            iam.put_user_policy(UserName="developer", PolicyName="all", PolicyDocument="{}")
        with denied("iam:UpdateAssumeRolePolicy"):
            iam.update_assume_role_policy(RoleName=attackers.resource("RunRole"), PolicyDocument="{}")

    def test_starts_no_session_but_through_the_launcher(self, attackers: Attackers) -> None:
        for target in (INSTANCE, "sagemaker-training-job:theirs-1_algo-1"):
            with denied("ssm:StartSession"):
                attackers.user.client("ssm").start_session(Target=target)

    def test_takes_no_role(self, attackers: Attackers) -> None:
        for role in ("RunRole", "LauncherRole", "ControllerRole", "ExecutionRole"):
            with denied("sts:AssumeRole"):
                attackers.user.client("sts").assume_role(RoleArn=attackers.role_arn(role), RoleSessionName="me")


@pytest.mark.parametrize("function", ["launcher", "controller"])
class TestAFunctionsCredentials:
    """A session of the launcher's or the controller's role that has leaked, used from elsewhere."""

    def test_neither_read_nor_delete_a_checkpoint(self, attackers: Attackers, function: str) -> None:
        s3 = getattr(attackers, function).client("s3")
        with denied("s3:GetObject"):
            s3.get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
        with denied("s3:DeleteObject"):
            s3.delete_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")

    def test_start_jobs_with_the_deployments_tag_and_role_alone(self, attackers: Attackers, function: str) -> None:
        sagemaker = getattr(attackers, function).client("sagemaker")
        own, other = attackers.role_arn("ExecutionRole"), attackers.role_arn("ControllerRole")
        with denied("sagemaker:CreateTrainingJob"):
            sagemaker.create_training_job(**attackers.job_request(role=own, tagged=False))
        with denied("sagemaker:CreateTrainingJob"):
            sagemaker.create_training_job(**attackers.job_request(role=own, keep_alive_seconds=86_400))
        # The job is allowed here, its role is not.
        with denied("iam:PassRole", of="sagemaker"):
            sagemaker.create_training_job(**attackers.job_request(role=other))

    def test_start_no_fleet_without_the_deployments_tag(self, attackers: Attackers, function: str) -> None:
        template = {"LaunchTemplateId": attackers.app.connection["launch_template_id"], "Version": "1"}
        with denied("ec2:CreateFleet"):
            getattr(attackers, function).client("ec2").create_fleet(
                LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template}],
                TargetCapacitySpecification={"TotalTargetCapacity": 1},
            )

    def test_start_no_session_on_an_instance_of_no_run(self, attackers: Attackers, function: str) -> None:
        with denied("ssm:StartSession"):
            getattr(attackers, function).client("ssm").start_session(Target=INSTANCE)

    def test_change_no_policy_and_take_no_role(self, attackers: Attackers, function: str) -> None:
        session = getattr(attackers, function)
        session.client("dynamodb").get_item(**attackers.item(f"run#{OURS}"))
        role = attackers.resource("LauncherRole")
        with denied("iam:PutRolePolicy"):
            session.client("iam").put_role_policy(RoleName=role, PolicyName="all", PolicyDocument="{}")
        with denied("iam:AttachRolePolicy"):
            session.client("iam").attach_role_policy(
                RoleName=role, PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess"
            )
        with denied("iam:UpdateAssumeRolePolicy"):
            session.client("iam").update_assume_role_policy(RoleName=role, PolicyDocument="{}")
        with denied("sts:AssumeRole"):
            session.client("sts").assume_role(RoleArn=attackers.role_arn("RunRole"), RoleSessionName="function")
        with denied("lambda:UpdateFunctionCode"):
            session.client("lambda").update_function_code(FunctionName="spotkeep-launcher", ZipFile=b"PK")


def test_the_credentials_function_takes_the_run_role_for_a_run_and_does_nothing_else(attackers: Attackers) -> None:
    session = attackers.credentials_function
    assert attackers.instance.client("sts").get_caller_identity()["Arn"].endswith("/i-0aaaaaaaaaaaaaaa1")
    with denied("sts:AssumeRole"):
        session.client("sts").assume_role(RoleArn=attackers.role_arn("RunRole"), RoleSessionName="without-a-run")
    with denied("s3:GetObject"):
        session.client("s3").get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
    with denied("dynamodb:GetItem"):
        session.client("dynamodb").get_item(**attackers.item(f"fleet#{THEIRS}"))


class TestAConfusedDeputy:
    """A service that acts for another account, or for something that is not ours, on what is deployed."""

    def allows(self, document: Any, action: str, resource: str, *, service: str, source: str, account: str) -> bool:
        """Decide by the deployed policy of a resource alone, as AWS decides about a service."""
        found = json.loads(document) if isinstance(document, str) else document
        trust = action == "sts:AssumeRole"
        policy = read_policy(found, name=resource, kind=PolicyKind.TRUST if trust else PolicyKind.RESOURCE)
        context = {"aws:sourcearn": (source,), "aws:sourceaccount": (account,), "aws:securetransport": ("true",)}
        decision = evaluation.Question(
            authorization=Authorization(action=action, resource=resource, context=context),
            caller=CallingPrincipal.service(service),
            policies=evaluation.Policies(identity=(), resource=policy, resource_account="000000000000"),
        ).decided()
        assert decision.reason is not Reason.UNKNOWN, decision.unknown
        return decision.allowed

    def test_events_of_our_rules_alone_reach_the_queue(self, deployed_app: DeployedApp, attackers: Attackers) -> None:
        url, account = attackers.resource("JobEventsQueue"), deployed_app.local.account_id
        policy = deployed_app.client("sqs").get_queue_attributes(
            QueueUrl=deployed_app.local.on_this_port(url), AttributeNames=["Policy", "QueueArn"]
        )["Attributes"]
        rule = f"arn:aws:events:us-east-1:{account}:rule/{attackers.resource('JobEventsTrainingJob')}"

        def may(service: str, source: str) -> bool:
            owner = source.split(":")[4]
            return self.allows(
                policy["Policy"], "sqs:SendMessage", policy["QueueArn"], service=service, source=source, account=owner
            )

        assert may("events.amazonaws.com", rule)
        assert not may("events.amazonaws.com", rule.replace(account, OTHER_ACCOUNT))
        assert not may("events.amazonaws.com", f"arn:aws:events:us-east-1:{account}:rule/another")
        assert not may("sns.amazonaws.com", f"arn:aws:sns:us-east-1:{account}:another")
        assert not may("scheduler.amazonaws.com", f"arn:aws:scheduler:us-east-1:{account}:schedule/default/another")

    def test_alarms_of_this_account_alone_reach_the_operations_topic(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        topic, account = attackers.resource("NotificationsTopicsOperations"), deployed_app.local.account_id
        policy = deployed_app.client("sns").get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"]

        def may(service: str, owner: str) -> bool:
            source = f"arn:aws:cloudwatch:us-east-1:{owner}:alarm:errors"
            return self.allows(policy, "sns:Publish", topic, service=service, source=source, account=owner)

        assert may("cloudwatch.amazonaws.com", account)
        assert not may("cloudwatch.amazonaws.com", OTHER_ACCOUNT)
        assert not may("events.amazonaws.com", account)

    def test_notifications_topic_takes_nothing_of_any_service(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        topic, account = attackers.resource("NotificationsTopicsNotifications"), deployed_app.local.account_id
        policy = deployed_app.client("sns").get_topic_attributes(TopicArn=topic)["Attributes"]["Policy"]
        for service in ("cloudwatch.amazonaws.com", "events.amazonaws.com", "s3.amazonaws.com"):
            source = f"arn:aws:cloudwatch:us-east-1:{account}:alarm:errors"
            assert not self.allows(policy, "sns:Publish", topic, service=service, source=source, account=account)

    @pytest.mark.parametrize(
        ("role", "service", "source"),
        [
            ("ExecutionRole", "sagemaker", "sagemaker:us-east-1:{account}:training-job/a"),
            ("PoolSchedulesRole", "scheduler", "scheduler:us-east-1:{account}:schedule-group/spotkeep-pools"),
            ("ScheduledLaunchesRole", "scheduler", "scheduler:us-east-1:{account}:schedule-group/spotkeep-launches"),
            ("MonitoringDrillRole", "fis", "fis:us-east-1:{account}:experiment/EXP1"),
            ("ReconciliationRole", "scheduler", "scheduler:us-east-1:{account}:schedule-group/default"),
        ],
    )
    def test_a_service_takes_a_role_for_this_account_alone(
        self, deployed_app: DeployedApp, attackers: Attackers, role: str, service: str, source: str
    ) -> None:
        found = deployed_app.client("iam").get_role(RoleName=attackers.resource(role))["Role"]

        def may(account: str) -> bool:
            return self.allows(
                found["AssumeRolePolicyDocument"],
                "sts:AssumeRole",
                found["Arn"],
                service=f"{service}.amazonaws.com",
                source="arn:aws:" + source.format(account=account),
                account=account,
            )

        assert may(deployed_app.local.account_id)
        assert not may(OTHER_ACCOUNT)

    def test_a_rule_of_this_account_that_is_not_ours_delivers_to_its_own_queue_and_not_to_ours(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        events, sqs = deployed_app.client("events"), deployed_app.client("sqs")
        name, account = "not-ours", deployed_app.local.account_id
        rule = events.put_rule(Name=name, EventPattern=json.dumps({"source": ["attack"]}))["RuleArn"]
        own = f"arn:aws:sqs:us-east-1:{account}:{name}"
        ours = f"arn:aws:sqs:us-east-1:{account}:{attackers.resource('JobEventsQueue').rpartition('/')[2]}"
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": own,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        url = sqs.create_queue(QueueName=name, Attributes={"Policy": policy})["QueueUrl"]
        events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": ours}, {"Id": "2", "Arn": own}])
        events.put_events(Entries=[{"Source": "attack", "DetailType": "false", "Detail": "{}"}])
        assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)["Messages"]
        said = (deployed_app.state_dir / "server.log").read_text()
        assert f"denied: events.amazonaws.com may not sqs:SendMessage on {ours}:" in said
        assert f"sqs:SendMessage on {own}:" not in said
        events.remove_targets(Rule=name, Ids=["1", "2"])
        events.delete_rule(Name=name)


class TestCredentialsOfNoPrincipal:
    @pytest.mark.parametrize(
        ("service", "call", "code"),
        [
            ("s3", lambda client: client.list_buckets(), "InvalidAccessKeyId"),
            ("dynamodb", lambda client: client.list_tables(), "UnrecognizedClientException"),
            ("ec2", lambda client: client.describe_volumes(), "AuthFailure"),
            ("sts", lambda client: client.get_caller_identity(), "InvalidClientTokenId"),
        ],
    )
    def test_an_unknown_key_is_refused_by_every_service(
        self, deployed_app: DeployedApp, service: str, call: Callable[[Any], Any], code: str
    ) -> None:
        call(deployed_app.client(service))
        unknown = AccessKey(
            access_key_id="AKIAIOSFODNN7EXAMPLE",
            secret_access_key="unknown",
            principal=Principal(arn="", user_id="", account_id=""),
        )
        with pytest.raises(ClientError) as refused:
            call(deployed_app.local.session(key=unknown).client(service))
        assert refused.value.response["Error"]["Code"] == code

    def test_a_session_of_a_deleted_role_may_nothing(self, deployed_app: DeployedApp) -> None:
        iam, name = deployed_app.client("iam"), f"gone-{uuid.uuid4().hex[:8]}"
        people = {"AWS": deployed_app.local.keys.administrator.principal.arn}
        trust = {"Effect": "Allow", "Principal": people, "Action": "sts:AssumeRole"}
        role = iam.create_role(
            RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
        )["Role"]["Arn"]
        listing = {"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [listing]})
        iam.put_role_policy(RoleName=name, PolicyName="listing", PolicyDocument=document)
        given = deployed_app.client("sts").assume_role(RoleArn=role, RoleSessionName="late")["Credentials"]
        s3 = session_with(deployed_app, given).client("s3")
        s3.list_buckets()
        iam.delete_role_policy(RoleName=name, PolicyName="listing")
        with denied("s3:ListAllMyBuckets"):
            s3.list_buckets()
        iam.delete_role(RoleName=name)
        with pytest.raises(ClientError, match=f"IAM has no .*{name}"):
            s3.list_buckets()
