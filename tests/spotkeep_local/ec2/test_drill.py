"""A drill by boto3: a template, an experiment, and a spot instance that gets its notice and is interrupted."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from tests.models.granted import make_role

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

    from .conftest import Ec2, Events

pytestmark = pytest.mark.long

INTERRUPT = "aws:ec2:send-spot-instance-interruptions"
ROLE = "arn:aws:iam::000000000000:role/fis-drill"


@pytest.fixture(scope="session")
def fis(local_aws: LocalAws) -> Any:
    may = ("ec2:DescribeInstances", "ec2:SendSpotInstanceInterruptions")
    assert make_role(local_aws, "fis-drill", actions=may, service="fis.amazonaws.com") == ROLE
    return local_aws.session().client("fis")


def template(run: str, **changes: Any) -> dict[str, Any]:
    return {
        "clientToken": uuid.uuid4().hex,
        "description": f"Interrupt {run}",
        "roleArn": ROLE,
        "stopConditions": [{"source": "none"}],
        "targets": {
            "run": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceTags": {"spotkeep:run": run},
                "filters": [{"path": "State.Name", "values": ["running"]}],
                "selectionMode": "ALL",
            }
        },
        "actions": {
            "interrupt": {
                "actionId": INTERRUPT,
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": "run"},
            }
        },
        **changes,
    }


@pytest.fixture
def run(ec2: Ec2) -> str:
    """A run with one spot instance, beside an instance of another run."""
    name = f"run-{uuid.uuid4().hex[:8]}"
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotkeep:run", "Value": name}]}]
    for tag_specifications in (tags, []):
        fleet = ec2.fleet(ec2.template(TagSpecifications=tag_specifications))
        ec2.running(fleet)
    return name


def instances_of(ec2: Ec2, run: str) -> list[str]:
    asked = [{"Name": "tag:spotkeep:run", "Values": [run]}]
    return [r["Instances"][0]["InstanceId"] for r in ec2.client.describe_instances(Filters=asked)["Reservations"]]


def start(fis: Any, template_id: str) -> str:
    made = fis.start_experiment(clientToken=uuid.uuid4().hex, experimentTemplateId=template_id)
    return str(made["experiment"]["id"])


def state(fis: Any, experiment: str) -> dict[str, str]:
    found = fis.get_experiment(id=experiment)["experiment"]["state"]
    return {"status": found["status"], "reason": found["reason"]}


def test_a_drill_interrupts_the_instances_of_one_run(ec2: Ec2, events: Events, fis: Any, run: str) -> None:
    (instance,) = instances_of(ec2, run)
    made = fis.create_experiment_template(**template(run))["experimentTemplate"]
    experiment = start(fis, made["id"])
    events.wait_for("EC2 Instance Rebalance Recommendation", instance_id=instance)
    events.wait_for("EC2 Spot Instance Interruption Warning", instance_id=instance)
    ec2.wait_until(lambda: state(fis, experiment)["status"] == "completed")
    ec2.wait_for_state(instance, "terminated")
    assert ec2.instance(instance)["StateReason"]["Code"] == "Server.SpotInstanceTermination"
    warned = {e["detail"]["instance-id"] for e in events.seen if e["detail-type"].endswith("Interruption Warning")}
    assert warned == {instance}


def test_a_drill_does_nothing_that_its_role_does_not_let_fis_do_or_while_an_alarm_rings(
    ec2: Ec2, local_aws: LocalAws, fis: Any, run: str
) -> None:
    def ended(**changes: Any) -> dict[str, Any]:
        made = fis.create_experiment_template(**template(run, **changes))["experimentTemplate"]
        experiment = start(fis, made["id"])
        ec2.wait_until(lambda: state(fis, experiment)["status"] in ("completed", "failed", "stopped"))
        assert all(ec2.state(instance) == "running" for instance in instances_of(ec2, run))
        return dict(fis.get_experiment(id=experiment)["experiment"]["state"])

    for service, actions, missing in (
        ("fis.amazonaws.com", ("ec2:DescribeInstances",), "ec2:SendSpotInstanceInterruptions"),
        ("fis.amazonaws.com", ("ec2:SendSpotInstanceInterruptions",), "ec2:DescribeInstances"),
        ("ec2.amazonaws.com", ("ec2:*",), "ec2:DescribeInstances"),
    ):
        failed = ended(roleArn=make_role(local_aws, f"drill-{uuid.uuid4().hex[:8]}", actions=actions, service=service))
        assert (failed["status"], failed["error"]["code"]) == ("failed", "AuthorizationFailure")
        assert missing in failed["reason"]

    cloudwatch = local_aws.session().client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName="stop-the-drill",
        MetricName="Errors",
        Namespace="Test",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
        Statistic="Sum",
    )
    cloudwatch.set_alarm_state(AlarmName="stop-the-drill", StateValue="ALARM", StateReason="now")
    arn = cloudwatch.describe_alarms(AlarmNames=["stop-the-drill"])["MetricAlarms"][0]["AlarmArn"]
    stopped = ended(stopConditions=[{"source": "aws:cloudwatch:alarm", "value": arn}])
    assert stopped["status"] == "stopped"


def test_a_template_that_cannot_be_names_every_problem(fis: Any) -> None:
    broken = template("x", stopConditions=[{"source": "aws:cloudwatch:alarm"}])
    broken["targets"]["run"]["selectionMode"] = "SOME"
    broken["actions"]["interrupt"]["parameters"] = {"durationBeforeInterruption": "PT1M"}
    with pytest.raises(ClientError) as refused:
        fis.create_experiment_template(**broken)
    message = refused.value.response["Error"]["Message"]
    for problem in ("needs the alarm's ARN", "selectionMode must be", "durationBeforeInterruption must be"):
        assert problem in message


def test_what_does_not_exist(fis: Any) -> None:
    with pytest.raises(fis.exceptions.ResourceNotFoundException):
        fis.get_experiment(id="EXP0")
    with pytest.raises(fis.exceptions.ResourceNotFoundException):
        start(fis, "EXT0")


STACK = {
    "Parameters": {"Notice": {"Type": "String", "Default": "PT2M"}},
    "Resources": {
        "Drill": {
            "Type": "AWS::FIS::ExperimentTemplate",
            "Properties": {
                "Description": "Interrupt one",
                "RoleArn": ROLE,
                "StopConditions": [{"Source": "none"}],
                "Tags": {"Name": "drill"},
                "Targets": {
                    "SpotOfRun": {
                        "ResourceType": "aws:ec2:spot-instance",
                        "ResourceTags": {"Deployment": "spotkeep"},
                        "SelectionMode": "COUNT(1)",
                        "Filters": [{"Path": "State.Name", "Values": ["running"]}],
                    }
                },
                "Actions": {
                    "Interrupt": {
                        "ActionId": INTERRUPT,
                        "Parameters": {"durationBeforeInterruption": {"Ref": "Notice"}},
                        "Targets": {"SpotInstances": "SpotOfRun"},
                    }
                },
            },
        },
    },
    "Outputs": {
        "DrillId": {"Value": {"Fn::GetAtt": ["Drill", "Id"]}},
    },
}


def test_a_stack_makes_changes_and_deletes_a_drill(ec2: Ec2, local_aws: LocalAws, fis: Any) -> None:
    cloudformation = local_aws.session().client("cloudformation")
    name = f"stack-{uuid.uuid4().hex[:8]}"

    def drill_of(status: str) -> str:
        def settled() -> Any:
            stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
            assert "ROLLBACK" not in stack["StackStatus"], stack
            return stack if stack["StackStatus"] == status else None

        return str(ec2.wait_until(settled)["Outputs"][0]["OutputValue"])

    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(STACK))
    drill = drill_of("CREATE_COMPLETE")
    experiment = start(fis, drill)
    ec2.wait_until(lambda: state(fis, experiment)["status"] == "failed")
    assert state(fis, experiment)["reason"] == "Target resolution returned empty set"
    changed = [{"ParameterKey": "Notice", "ParameterValue": "PT3M"}]
    cloudformation.update_stack(StackName=name, UsePreviousTemplate=True, Parameters=changed)
    assert drill_of("UPDATE_COMPLETE") == drill
    cloudformation.delete_stack(StackName=name)

    def deleted() -> bool:
        try:
            start(fis, drill)
        except fis.exceptions.ResourceNotFoundException:
            return True
        return False

    ec2.wait_until(deleted)
