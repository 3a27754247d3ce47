"""Attacks on the deployed app, by who has a principal's credentials: each is denied, beside a call that is allowed.

What `tests/security` judges on synthesized templates is judged here on what is deployed, request by request.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_fleet.tags import DEPLOYMENT_TAG, OPERATION_TAG, RUN_TAG
from spotkeep_local.iam import evaluation
from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.evaluation import CallingPrincipal, Reason
from spotkeep_local.iam.policy import PolicyKind, read_policy

from .attackers import INSTANCE, OURS, THEIRS, Attackers, denied, session_with
from .conftest import until

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


Clients = Callable[[str], Any]
"""The clients of one principal, by service."""
Request = Callable[[Attackers, Clients], Any]


def get(key: str) -> Request:
    return lambda on, aws: aws("s3").get_object(Bucket=on.bucket, Key=key)


def put(key: str) -> Request:
    return lambda on, aws: aws("s3").put_object(Bucket=on.bucket, Key=key, Body=b"")


def delete(key: str) -> Request:
    return lambda on, aws: aws("s3").delete_object(Bucket=on.bucket, Key=key)


def read_item(partition: str) -> Request:
    return lambda on, aws: aws("dynamodb").get_item(**on.item(partition))


def write_item(partition: str) -> Request:
    return lambda on, aws: aws("dynamodb").put_item(TableName=on.table, Item=on.item(partition)["Key"])


def create_job(role: str = "ExecutionRole", **request: Any) -> Request:
    return lambda on, aws: aws("sagemaker").create_training_job(**on.job_request(role=on.role_arn(role), **request))


def take(role: str, **session: Any) -> Request:
    return lambda on, aws: aws("sts").assume_role(RoleArn=on.role_arn(role), RoleSessionName="attack", **session)


def invoke(function: str) -> Request:
    return lambda _on, aws: aws("lambda").invoke(FunctionName=f"spotkeep-{function}", Payload=b"{}")


def replace_code(function: str) -> Request:
    return lambda _on, aws: aws("lambda").update_function_code(FunctionName=f"spotkeep-{function}", ZipFile=b"PK")


def read_environment(_on: Attackers, aws: Clients) -> Any:
    return aws("lambda").get_function_configuration(FunctionName="spotkeep-launcher")


def open_session(target: str) -> Request:
    return lambda _on, aws: aws("ssm").start_session(Target=target)


def write_log(stream: str) -> Request:
    return lambda _on, aws: aws("logs").create_log_stream(logGroupName=LOG_GROUP, logStreamName=stream)


def create_untagged_fleet(on: Attackers, aws: Clients) -> Any:
    template = {"LaunchTemplateId": on.app.connection["launch_template_id"], "Version": "1"}
    return aws("ec2").create_fleet(
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": template}],
        TargetCapacitySpecification={"TotalTargetCapacity": 1},
    )


def change_a_role(on: Attackers, aws: Clients) -> Any:
    return aws("iam").put_role_policy(RoleName=on.resource("LauncherRole"), PolicyName="all", PolicyDocument="{}")


def change_a_trust(on: Attackers, aws: Clients) -> Any:
    return aws("iam").update_assume_role_policy(RoleName=on.resource("RunRole"), PolicyDocument="{}")


def attach_to_oneself(_on: Attackers, aws: Clients) -> Any:
    return aws("iam").attach_user_policy(UserName="developer", PolicyArn="arn:aws:iam::aws:policy/AdministratorAccess")


THEIR_CHECKPOINT, ISOLATED = f"runs/{THEIRS}/{CHECKPOINT}", f"teams/vision/runs/{THEIRS}/{CHECKPOINT}"
BUNDLE = "bundles/0/spotkeep.pyz"
OUR_ROLES = ("ExecutionRole", "LauncherRole", "ControllerRole", "RunRole")

ALLOWED: dict[str, list[Request]] = {
    "job": [get(THEIR_CHECKPOINT), put(f"runs/{OURS}/checkpoints/step-2/data")],
    "instance": [
        get(THEIR_CHECKPOINT), put(f"runs/{OURS}/checkpoints/step-3/data"), read_item(f"fleet#{OURS}"),
        read_item(f"fleet-job#{OURS}"), write_item(f"fleet#{OURS}"), write_log(f"{OURS}-1/algo-1-ec2"),
    ],
    "user": [
        get(THEIR_CHECKPOINT), put(f"sources/{OURS}/0.tar.gz"), read_item(f"run#{THEIRS}"), invoke("launcher"),
    ],
    "launcher": [read_item(f"run#{OURS}")],
    "controller": [read_item(f"run#{OURS}")],
    "credentials_function": [lambda on, _aws: on.instance],
}  # fmt: skip
"""What each principal may do: that it is denied the rest is not for want of a key."""

OF_A_LEAKED_SESSION: list[tuple[str, Request]] = [
    ("s3:GetObject", get(THEIR_CHECKPOINT)),
    ("s3:DeleteObject", delete(THEIR_CHECKPOINT)),
    ("sagemaker:CreateTrainingJob", create_job(tagged=False)),
    ("sagemaker:CreateTrainingJob", create_job(keep_alive_seconds=86_400)),
    ("iam:PassRole", create_job("ControllerRole")),
    ("ec2:CreateFleet", create_untagged_fleet),
    ("ssm:StartSession", open_session(INSTANCE)),
    ("iam:PutRolePolicy", change_a_role),
    ("iam:UpdateAssumeRolePolicy", change_a_trust),
    ("sts:AssumeRole", take("RunRole")),
    ("lambda:UpdateFunctionCode", replace_code("launcher")),
]
"""Of the launcher's or the controller's role, used from elsewhere."""
ATTACKS: dict[str, list[tuple[str, Request]]] = {
    "job": [
        # Its execution role is shared by all jobs of a team: IAM knows no key for the job.
        ("s3:GetObject", get(ISOLATED)),
        ("s3:ListBucket", lambda on, aws: aws("s3").list_objects_v2(Bucket=on.bucket, Prefix="teams/")),
        ("s3:ListBucket", lambda on, aws: aws("s3").list_objects_v2(Bucket=on.resource("CheckpointsAccessLogs"))),
        *(("s3:PutObject", put(key)) for key in (BUNDLE, f"sources/{THEIRS}/0.tar.gz", "elsewhere")),
        ("s3:DeleteObject", delete(f"sources/{THEIRS}/0.tar.gz")),
        ("dynamodb:GetItem", read_item(f"run#{OURS}")),
        ("dynamodb:PutItem", write_item(f"run#{OURS}")),
        ("sagemaker:CreateTrainingJob", create_job()),
        ("lambda:InvokeFunction", invoke("launcher")),
        ("sts:AssumeRole", take("RunRole")),
    ],
    "instance": [
        # With a session of the run role for the run `ours`, as the function instance_credentials gives it.
        ("s3:PutObject", put(THEIR_CHECKPOINT)),
        ("s3:DeleteObject", delete(THEIR_CHECKPOINT)),
        ("s3:GetObject", get(ISOLATED)),
        *(("dynamodb:GetItem", read_item(item)) for item in (f"fleet#{THEIRS}", f"run#{OURS}")),
        *(("dynamodb:PutItem", write_item(item)) for item in (f"fleet#{THEIRS}", f"fleet-job#{OURS}")),
        *(("logs:CreateLogStream", write_log(f"{of}/algo-1-ec2")) for of in (f"{THEIRS}-1", f"{OURS}-2")),
    ],
    "user": [
        ("sagemaker:CreateTrainingJob", create_job()),
        *(("s3:PutObject", put(key)) for key in (THEIR_CHECKPOINT, f"runs/{THEIRS}/output/model.tar.gz", BUNDLE)),
        ("s3:DeleteObject", delete(THEIR_CHECKPOINT)),
        ("dynamodb:PutItem", write_item(f"run#{THEIRS}")),
        ("dynamodb:DeleteItem", lambda on, aws: aws("dynamodb").delete_item(**on.item(f"run#{THEIRS}"))),
        ("lambda:GetFunctionConfiguration", read_environment),
        ("lambda:UpdateFunctionCode", replace_code("launcher")),
        *(("lambda:InvokeFunction", invoke(name)) for name in ("controller", "instance_credentials")),
        ("iam:AttachUserPolicy", attach_to_oneself),
        ("iam:UpdateAssumeRolePolicy", change_a_trust),
        *(("ssm:StartSession", open_session(to)) for to in (INSTANCE, "sagemaker-training-job:theirs-1_algo-1")),
        *(("sts:AssumeRole", take(role)) for role in OUR_ROLES),
    ],
    "launcher": OF_A_LEAKED_SESSION,
    "controller": OF_A_LEAKED_SESSION,
    "credentials_function": [
        ("sts:AssumeRole", take("RunRole")),
        ("s3:GetObject", get(THEIR_CHECKPOINT)),
        ("dynamodb:GetItem", read_item(f"fleet#{THEIRS}")),
    ],
}
"""What each principal is denied."""


@pytest.mark.parametrize("principal", ALLOWED)
def test_what_a_principal_is_for_is_allowed(attackers: Attackers, principal: str) -> None:
    for call in ALLOWED[principal]:
        call(attackers, attackers.clients_of(principal))


@pytest.mark.parametrize("principal", ATTACKS)
def test_every_attack_of_a_principal_is_denied(attackers: Attackers, principal: str) -> None:
    for action, request in ATTACKS[principal]:
        with denied(action, of="sagemaker" if action == "iam:PassRole" else None):
            request(attackers, attackers.clients_of(principal))


def test_an_instance_takes_no_session_of_another_run_and_invokes_no_function_whatever_else_it_may(
    attackers: Attackers,
) -> None:
    instance = attackers.clients_of("instance")
    with denied("sts:AssumeRole", because="explicit deny"):
        take("RunRole", Tags=[{"Key": "run", "Value": THEIRS}])(attackers, instance)
    for function in ("launcher", "controller"):
        with denied("lambda:InvokeFunction", because="explicit deny"):
            invoke(function)(attackers, instance)


def test_an_instance_touches_its_own_volume_and_none_of_another_run(
    attackers: Attackers, make_volume: Callable[[str], str]
) -> None:
    ec2, ours, theirs = attackers.instance.client("ec2"), make_volume(OURS), make_volume(THEIRS)
    with denied("ec2:DeleteVolume"):
        ec2.delete_volume(VolumeId=theirs)
    with denied("ec2:DetachVolume"):
        ec2.detach_volume(VolumeId=theirs)
    # Allowed, and then there is nothing to detach.
    with pytest.raises(ClientError) as refused:
        ec2.detach_volume(VolumeId=ours)
    assert refused.value.response["Error"]["Code"] == "IncorrectState"
    ec2.delete_volume(VolumeId=ours)


def test_a_user_who_may_create_jobs_passes_none_of_our_roles_and_keeps_no_pool_too_long(attackers: Attackers) -> None:
    """Another policy of theirs lets the user create training jobs, as many accounts do."""
    actions = ["sagemaker:CreateTrainingJob", "sagemaker:AddTags"]
    document = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": actions, "Resource": "*"}}
    iam, theirs = attackers.app.client("iam"), {"UserName": "developer", "PolicyName": "jobs"}
    user = attackers.clients_of("user")
    iam.put_user_policy(**theirs, PolicyDocument=json.dumps(document))
    try:
        for role in OUR_ROLES:
            with denied("iam:PassRole", of="sagemaker"):
                create_job(role)(attackers, user)
        with denied("sagemaker:CreateTrainingJob", because="explicit deny in an identity-based policy"):
            create_job(keep_alive_seconds=86_400)(attackers, user)
    finally:
        iam.delete_user_policy(**theirs)


def printed_by(app: DeployedApp, run: str) -> list[str]:
    logs, group = app.client("logs"), "/aws/sagemaker/TrainingJobs"
    try:
        found = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=f"{run}-")["events"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    said = [each["message"] for each in found if each["message"].startswith("HAS ")]
    return list(json.loads(said[0].removeprefix("HAS "))) if said else []


def test_a_job_has_these_credentials_in_its_process_and_they_end_with_it(
    deployed_app: DeployedApp, attackers: Attackers
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
    printed = until(lambda: printed_by(deployed_app, run), lambda: "its credentials")
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    stolen = session_with(deployed_app, dict(zip(names, printed, strict=True)))
    role = attackers.resource("ExecutionRole")
    assert stolen.client("sts").get_caller_identity()["Arn"].endswith(f":assumed-role/{role}/SageMaker")
    stolen.client("s3").get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
    with denied("s3:PutObject"):
        stolen.client("s3").put_object(Bucket=attackers.bucket, Key=f"sources/{THEIRS}/0.tar.gz", Body=b"")
    deployed_app.invoke("launcher", {"action": "stop", "run": run})
    deployed_app.wait_until_ended(run, passes=True)
    with pytest.raises(ClientError) as refused:
        stolen.client("s3").get_object(Bucket=attackers.bucket, Key=f"runs/{THEIRS}/{CHECKPOINT}")
    assert refused.value.response["Error"]["Code"] == "InvalidAccessKeyId"


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

    def test_alarms_of_this_account_alone_reach_the_operations_topic_and_no_service_the_other(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        account = deployed_app.local.account_id

        def may(service: str, owner: str, topic: str = "NotificationsTopicsOperations") -> bool:
            arn = attackers.resource(topic)
            policy = deployed_app.client("sns").get_topic_attributes(TopicArn=arn)["Attributes"]["Policy"]
            source = f"arn:aws:cloudwatch:us-east-1:{owner}:alarm:errors"
            return self.allows(policy, "sns:Publish", arn, service=service, source=source, account=owner)

        assert may("cloudwatch.amazonaws.com", account)
        assert not may("cloudwatch.amazonaws.com", OTHER_ACCOUNT)
        assert not may("events.amazonaws.com", account)
        for service in ("cloudwatch.amazonaws.com", "events.amazonaws.com", "s3.amazonaws.com"):
            assert not may(service, account, "NotificationsTopicsNotifications")

    def test_a_service_takes_a_role_for_this_account_alone(
        self, deployed_app: DeployedApp, attackers: Attackers
    ) -> None:
        own = deployed_app.local.account_id
        for role, service, of in (
            ("ExecutionRole", "sagemaker", "training-job/a"),
            ("PoolSchedulesRole", "scheduler", "schedule-group/spotkeep-pools"),
            ("ScheduledLaunchesRole", "scheduler", "schedule-group/spotkeep-launches"),
            ("MonitoringDrillRole", "fis", "experiment/EXP1"),
            ("ReconciliationRole", "scheduler", "schedule-group/default"),
        ):
            found = deployed_app.client("iam").get_role(RoleName=attackers.resource(role))["Role"]
            for account in (own, OTHER_ACCOUNT):
                source = f"arn:aws:{service}:us-east-1:{account}:{of}"
                taken = self.allows(
                    found["AssumeRolePolicyDocument"], "sts:AssumeRole", found["Arn"],
                    service=f"{service}.amazonaws.com", source=source, account=account,
                )  # fmt: skip
                assert taken is (account == own), (role, account)

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


def test_a_session_of_a_deleted_role_may_nothing(deployed_app: DeployedApp) -> None:
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
