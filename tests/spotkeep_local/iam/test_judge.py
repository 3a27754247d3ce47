"""Real clients of a local AWS meet its judge: what is deployed at the moment of a call decides about it."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from spotkeep_local.control import judging_time, permissions
from spotkeep_local.principals import AccessKey, Principal
from tests.models.granted import make_role

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.lifecycle import LocalAws


def statement(*actions: str, effect: str = "Allow", resource: Any = "*", **more: Any) -> dict[str, Any]:
    """A statement of a policy."""
    return {"Effect": effect, "Action": list(actions), "Resource": resource, **more}


def document(*statements: dict[str, Any]) -> str:
    """A policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def denied(call: Callable[[], Any]) -> ClientError:
    """The error of a call that must be denied."""
    with pytest.raises(ClientError) as refused:
        call()
    return refused.value


def code(error: ClientError) -> str:
    """AWS's error code."""
    return str(error.response["Error"]["Code"])


@pytest.fixture
def name() -> str:
    return f"judge-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def bucket(local_aws: LocalAws, name: str) -> str:
    s3 = local_aws.session().client("s3")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="runs/a/w.bin", Body=b"a")
    s3.put_object(Bucket=name, Key="runs/b/w.bin", Body=b"b")
    return name


@pytest.fixture
def assume(local_aws: LocalAws) -> Callable[..., Any]:
    def assume(role_arn: str, **given: Any) -> Callable[[str], Any]:
        answer = local_aws.session().client("sts").assume_role(RoleArn=role_arn, RoleSessionName="session", **given)
        keys, who = answer["Credentials"], answer["AssumedRoleUser"]
        key = AccessKey(
            access_key_id=keys["AccessKeyId"],
            secret_access_key=keys["SecretAccessKey"],
            session_token=keys["SessionToken"],
            principal=Principal(arn=who["Arn"], user_id=who["AssumedRoleId"], account_id=local_aws.account_id),
        )
        session = local_aws.session(key=key)
        return lambda service: session.client(service, config=Config(retries={"total_max_attempts": 1}))

    return assume


def put(local_aws: LocalAws, role: str, *statements: dict[str, Any]) -> None:
    """Give a role this policy, and no other."""
    local_aws.session().client("iam").put_role_policy(
        RoleName=role.rpartition("/")[2], PolicyName="granted", PolicyDocument=document(*statements)
    )


def drill(role: str, tags: dict[str, str]) -> dict[str, Any]:
    """A template of an experiment that finds no instance."""
    spot = {"resourceType": "aws:ec2:spot-instance", "resourceTags": {"is": "nowhere"}, "selectionMode": "ALL"}
    interrupt = {
        "actionId": "aws:ec2:send-spot-instance-interruptions",
        "parameters": {"durationBeforeInterruption": "PT2M"},
        "targets": {"SpotInstances": "instance"},
    }
    return {
        "description": "A drill",
        "roleArn": role,
        "stopConditions": [{"source": "none"}],
        "targets": {"instance": spot},
        "actions": {"interrupt": interrupt},
        "tags": tags,
    }


def test_a_developer_may_do_nothing_before_a_policy_says_so(local_aws: LocalAws, bucket: str) -> None:
    client = local_aws.session(key=local_aws.keys.developer).client
    error = denied(lambda: client("s3").get_object(Bucket=bucket, Key="runs/a/w.bin"))
    assert code(error) == "AccessDenied"
    assert error.response["Error"]["Message"] == (
        f"User: arn:aws:iam::000000000000:user/developer is not authorized to perform: s3:GetObject on resource: "
        f'"arn:aws:s3:::{bucket}/runs/a/w.bin" because no identity-based policy allows the s3:GetObject action'
    )
    assert code(denied(lambda: client("ec2").describe_instances())) == "UnauthorizedOperation"
    assert code(denied(lambda: client("sagemaker").list_training_jobs())) == "AccessDeniedException"
    assert client("sts").get_caller_identity()["Arn"].endswith(":user/developer")


def test_an_operation_that_the_judge_does_not_know_is_denied_and_named(local_aws: LocalAws) -> None:
    error = denied(lambda: local_aws.session().client("iam").list_groups())
    assert "does not know what AWS would decide: No rule says what ListGroups of iam asks for" in str(error)


def test_a_change_of_a_policy_counts_from_the_next_call(
    local_aws: LocalAws, bucket: str, name: str, assume: Any
) -> None:
    role = make_role(local_aws, name, actions=("s3:GetObject",))
    s3 = assume(role)("s3")
    assert s3.get_object(Bucket=bucket, Key="runs/a/w.bin")["Body"].read() == b"a"
    put(local_aws, role, statement("s3:GetObject", resource=f"arn:aws:s3:::{bucket}/runs/b/*"))
    assert code(denied(lambda: s3.get_object(Bucket=bucket, Key="runs/a/w.bin"))) == "AccessDenied"
    assert s3.get_object(Bucket=bucket, Key="runs/b/w.bin")["Body"].read() == b"b"


def test_a_denied_call_takes_no_effect(local_aws: LocalAws, bucket: str, name: str, assume: Any) -> None:
    s3 = assume(make_role(local_aws, name, actions=("s3:GetObject",)))("s3")
    denied(lambda: s3.put_object(Bucket=bucket, Key="runs/a/w.bin", Body=b"x" * 200_000))
    denied(lambda: s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": "runs/a/w.bin"}]}))
    assert s3.get_object(Bucket=bucket, Key="runs/a/w.bin")["Body"].read() == b"a"


def test_session_tags_fill_policy_variables(local_aws: LocalAws, bucket: str, name: str, assume: Any) -> None:
    role = make_role(local_aws, name)
    own = statement("s3:GetObject", resource=f"arn:aws:s3:::{bucket}/runs/${{aws:PrincipalTag/run}}/*")
    put(local_aws, role, own)
    s3 = assume(role, Tags=[{"Key": "run", "Value": "a"}])("s3")
    assert s3.get_object(Bucket=bucket, Key="runs/a/w.bin")["Body"].read() == b"a"
    denied(lambda: s3.get_object(Bucket=bucket, Key="runs/b/w.bin"))


def test_a_session_policy_bounds_the_session(local_aws: LocalAws, bucket: str, name: str, assume: Any) -> None:
    only_b = document(statement("s3:GetObject", resource=f"arn:aws:s3:::{bucket}/runs/b/*"))
    s3 = assume(make_role(local_aws, name), Policy=only_b)("s3")
    assert s3.get_object(Bucket=bucket, Key="runs/b/w.bin")["Body"].read() == b"b"
    assert "no session policy allows" in str(denied(lambda: s3.get_object(Bucket=bucket, Key="runs/a/w.bin")))


def test_tags_bind_a_drill_to_templates_and_experiments_of_a_deployment(
    local_aws: LocalAws, name: str, assume: Any
) -> None:
    role = make_role(local_aws, name)
    tagged = {"StringEquals": {"aws:ResourceTag/deployment": name}}
    requested = {"StringEquals": {"aws:RequestTag/deployment": name}}
    put(
        local_aws,
        role,
        statement("fis:StartExperiment", resource="arn:aws:fis:*:*:experiment-template/*", Condition=tagged),
        statement(
            "fis:StartExperiment", "fis:TagResource", resource="arn:aws:fis:*:*:experiment/*", Condition=requested
        ),
        statement("fis:GetExperiment", resource="*", Condition=tagged),
    )
    own, others = (
        local_aws.session().client("fis").create_experiment_template(**drill(role, tags))["experimentTemplate"]["id"]
        for tags in ({"deployment": name}, {"deployment": "other"})
    )
    fis, tags = assume(role)("fis"), {"deployment": name}
    started = fis.start_experiment(experimentTemplateId=own, tags=tags)["experiment"]["id"]
    assert fis.get_experiment(id=started)["experiment"]["experimentTemplateId"] == own
    assert f"experiment-template/{others}" in str(
        denied(lambda: fis.start_experiment(experimentTemplateId=others, tags=tags))
    )
    assert "experiment/*" in str(denied(lambda: fis.start_experiment(experimentTemplateId=own)))


def test_a_service_job_is_submitted_with_its_training_jobs_role_and_terminated_by_its_tags(
    local_aws: LocalAws, name: str, assume: Any
) -> None:
    """Batch creates the training job: the caller needs no sagemaker:CreateTrainingJob."""
    administrator = local_aws.session().client("batch")
    administrator.create_service_environment(
        serviceEnvironmentName=name,
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=[{"maxCapacity": 0, "capacityUnit": "NUM_INSTANCES"}],
    )
    order = [{"order": 1, "serviceEnvironment": name}]
    queue = administrator.create_job_queue(
        jobQueueName=name, jobQueueType="SAGEMAKER_TRAINING", priority=1, serviceEnvironmentOrder=order
    )["jobQueueArn"]
    role, training = make_role(local_aws, name), f"arn:aws:iam::{local_aws.account_id}:role/training"
    jobs = "arn:aws:batch:*:*:service-job/*"
    submitting = (
        statement("batch:SubmitServiceJob", resource=queue),
        statement(
            *("batch:SubmitServiceJob", "batch:TagResource"),
            resource=jobs,
            Condition={"StringEquals": {"aws:RequestTag/deployment": name}},
        ),
        statement(
            "batch:TerminateServiceJob",
            resource=jobs,
            Condition={"StringEquals": {"aws:ResourceTag/deployment": name}},
        ),
    )
    passing = statement(
        "iam:PassRole",
        resource=training,
        Condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
    )
    batch = assume(role)("batch")

    def submit(client: Any, tags: dict[str, str]) -> str:
        return str(
            client.submit_service_job(
                jobName="digits",
                jobQueue=name,
                serviceJobType="SAGEMAKER_TRAINING",
                serviceRequestPayload=json.dumps({"RoleArn": training}),
                tags=tags,
            )["jobId"]
        )

    put(local_aws, role, *submitting)
    assert "iam:PassRole" in str(denied(lambda: submit(batch, {"deployment": name})))
    put(local_aws, role, *submitting, passing)
    assert "service-job/*" in str(denied(lambda: submit(batch, {"deployment": "other"})))
    own, others = submit(batch, {"deployment": name}), submit(administrator, {"deployment": "other"})
    batch.terminate_service_job(jobId=own, reason="not needed")
    assert "batch:TerminateServiceJob" in str(
        denied(lambda: batch.terminate_service_job(jobId=others, reason="not mine"))
    )


def test_a_bucket_policy_that_denies_is_over_every_allow(
    local_aws: LocalAws, bucket: str, name: str, assume: Any
) -> None:
    of_a = statement("s3:GetObject", effect="Deny", resource=f"arn:aws:s3:::{bucket}/runs/a/*", Principal="*")
    local_aws.session().client("s3").put_bucket_policy(Bucket=bucket, Policy=document(of_a))
    s3 = assume(make_role(local_aws, name))("s3")
    assert "with an explicit deny in a resource-based policy" in str(
        denied(lambda: s3.get_object(Bucket=bucket, Key="runs/a/w.bin"))
    )
    assert s3.get_object(Bucket=bucket, Key="runs/b/w.bin")["Body"].read() == b"b"


def test_a_role_is_assumed_only_by_whom_it_trusts(local_aws: LocalAws, name: str, assume: Any) -> None:
    role = make_role(local_aws, name, service="sagemaker.amazonaws.com")
    assert "because no role trust policy allows the sts:AssumeRole action" in str(denied(lambda: assume(role)))


def test_the_session_of_a_role_that_is_gone_is_denied(local_aws: LocalAws, name: str, assume: Any) -> None:
    client = assume(make_role(local_aws, name))
    iam = local_aws.session().client("iam")
    iam.delete_role_policy(RoleName=name, PolicyName="granted")
    iam.delete_role(RoleName=name)
    assert "IAM has no arn:aws:sts" in str(denied(lambda: client("sagemaker").list_training_jobs()))


def test_a_policy_that_cannot_be_read_denies_and_says_why(
    local_aws: LocalAws, bucket: str, name: str, assume: Any
) -> None:
    role = make_role(local_aws, name)
    put(local_aws, role, statement("s3:GetObject", Condition={"StringResembles": {"aws:userid": "x"}}))
    error = denied(lambda: assume(role)("s3").get_object(Bucket=bucket, Key="runs/a/w.bin"))
    assert "StringResembles" in str(error)
    report = next(report for report in permissions(local_aws) if report.name == name)
    assert len(report.problems) == 1
    assert "the condition operator `StringResembles` is not known" in report.problems[0]


def test_the_time_of_judging_grows_with_each_call(local_aws: LocalAws) -> None:
    before = judging_time(local_aws)
    local_aws.session().client("sts").get_caller_identity()
    after = judging_time(local_aws)
    assert after.calls > before.calls
    assert after.seconds > before.seconds
    assert after.slowest_seconds > 0


def test_what_was_judged_is_reported_with_what_nothing_used(
    local_aws: LocalAws, bucket: str, name: str, assume: Any
) -> None:
    s3 = assume(make_role(local_aws, name, actions=("s3:GetObject", "s3:DeleteObject")))("s3")
    for _ in range(3):
        s3.get_object(Bucket=bucket, Key="runs/a/w.bin")
    denied(lambda: s3.put_object(Bucket=bucket, Key="runs/a/w.bin", Body=b""))
    report = next(report for report in permissions(local_aws) if report.name == name)
    [got] = report.granted
    assert (got.operation, got.action, got.times) == ("s3.GetObject", "s3:GetObject", 3)
    assert got.statements == (f"{name}/granted#0",)
    assert got.example == f"arn:aws:s3:::{bucket}/runs/a/w.bin"
    [refused] = report.denied
    assert (refused.action, refused.reason) == ("s3:PutObject", "no identity policy allows it")
    assert [(grant.action, grant.statement) for grant in report.unused] == [("s3:DeleteObject", f"{name}/granted#0")]
