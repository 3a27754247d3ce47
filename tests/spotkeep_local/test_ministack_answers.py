"""Each answer of ministack to a call of the rehearsals is held to botocore's model: `tests.answers` reads every one."""

from __future__ import annotations

import io
import json
import re
import time
import uuid
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import answers
from tests.spotkeep_local.test_operations import EC2, FIS, PRICING, SAGEMAKER, SERVICE_QUOTAS

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).parent / "iam" / "rehearsed_calls.txt"
OURS = {
    "sagemaker": SAGEMAKER, "ec2": EC2, "fis": FIS, "pricing": PRICING, "service-quotas": SERVICE_QUOTAS
}  # fmt: skip
BY_ADDRESS = {("lambda", "InvokeFunctionUrl")}
"""What is called by an address, without a model."""
TEMPLATE = json.dumps(
    {
        "Parameters": {"Value": {"Type": "String", "Default": "a"}},
        "Resources": {
            "Parameter": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": {"Ref": "Value"}}},
            "Network": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}},
            "Endpoint": {
                "Type": "AWS::EC2::VPCEndpoint",
                "Properties": {"VpcId": {"Ref": "Network"}, "ServiceName": "com.amazonaws.us-east-1.s3"},
            },
        },
        "Outputs": {"Name": {"Value": {"Ref": "Parameter"}, "Export": {"Name": "answers-name"}}},
    }
)


def rehearsed() -> set[tuple[str, str]]:
    """The service and operation of each rehearsed call that ministack answers."""
    rows = [line.split("|") for line in CALLS.read_text().splitlines() if not line.startswith("#")]
    called = {(service.strip(), operation.strip()) for _, service, operation, _ in rows} - BY_ADDRESS
    return {(service, operation) for service, operation in called if operation not in OURS.get(service, {})}


class Calls:
    """Makes the calls, a method a service."""

    def __init__(self, local: LocalAws) -> None:
        self._local = local
        self.name = f"answers-{uuid.uuid4().hex[:8]}"

    def client(self, service: str) -> Any:
        return self._local.session().client(service)

    def s3(self) -> None:
        s3, at = self.client("s3"), {"Bucket": self.name, "Key": "a b/ü.pt"}
        s3.create_bucket(Bucket=self.name)
        s3.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        s3.put_object(**at, Body=b"data", Metadata={"a": "b"}, ChecksumAlgorithm="CRC32")
        s3.copy_object(
            Bucket=self.name, Key="copy", CopySource=at, TaggingDirective="REPLACE", MetadataDirective="COPY"
        )
        s3.get_object(**at, Range="bytes=0-1")["Body"].read()
        s3.head_object(**at)
        s3.list_objects_v2(Bucket=self.name, Prefix="a", MaxKeys=1)
        s3.list_objects_v2(Bucket=self.name, Delimiter="/")
        s3.list_object_versions(Bucket=self.name)
        s3.get_bucket_location(Bucket=self.name)
        s3.put_bucket_encryption(
            Bucket=self.name,
            ServerSideEncryptionConfiguration={
                "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}]
            },
        )
        s3.get_bucket_encryption(Bucket=self.name)
        upload = s3.create_multipart_upload(**at, ChecksumAlgorithm="SHA256")["UploadId"]
        part = s3.upload_part(**at, PartNumber=1, UploadId=upload, Body=b"part", ChecksumAlgorithm="SHA256")
        s3.list_multipart_uploads(Bucket=self.name, Prefix="a")
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        s3.complete_multipart_upload(**at, UploadId=upload, MultipartUpload={"Parts": parts})
        s3.delete_object(**at)
        s3.delete_objects(Bucket=self.name, Delete={"Objects": [{"Key": "copy"}]})

    def dynamodb(self) -> None:
        dynamodb = self.client("dynamodb")
        keys = [("pk", "HASH"), ("sk", "RANGE")]
        dynamodb.create_table(
            TableName=self.name,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        key = {"pk": {"S": "run#a"}, "sk": {"S": "item"}}
        item = {**key, "number": {"N": "1.5"}, "many": {"SS": ["a"]}, "tree": {"M": {"a": {"L": [{"NULL": True}]}}}}
        dynamodb.put_item(TableName=self.name, Item=item, ConditionExpression="attribute_not_exists(pk)")
        dynamodb.get_item(TableName=self.name, Key=key, ConsistentRead=True)
        dynamodb.query(
            TableName=self.name, KeyConditionExpression="pk = :p", ExpressionAttributeValues={":p": {"S": "run#a"}}
        )
        for _ in ("it is lost", "it is asked for again"):
            dynamodb.transact_write_items(
                TransactItems=[{"Put": {"TableName": self.name, "Item": {**item, "written": {"N": "1.50"}}}}],
                ClientRequestToken=self.name,
            )
        dynamodb.delete_table(TableName=self.name)

    def ec2(self) -> None:
        ec2 = self.client("ec2")
        template = ec2.create_launch_template(
            LaunchTemplateName=self.name,
            LaunchTemplateData={
                "ImageId": "ami-1",
                "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "b"}]}],
                "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8, "Encrypted": True}}],
                "MetadataOptions": {"HttpTokens": "required"},
                "InstanceMarketOptions": {"MarketType": "spot"},
            },
        )["LaunchTemplate"]["LaunchTemplateId"]
        ec2.create_launch_template_version(
            LaunchTemplateId=template,
            SourceVersion="1",
            VersionDescription="a run's",
            LaunchTemplateData={"UserData": "YQ=="},
        )
        ec2.describe_launch_template_versions(LaunchTemplateId=template)
        ec2.describe_availability_zones()
        subnets = ec2.describe_subnets()["Subnets"]
        ec2.describe_subnets(SubnetIds=[subnets[0]["SubnetId"]])
        vpc = [{"Name": "vpc-id", "Values": [subnets[0]["VpcId"]]}]
        ec2.describe_route_tables(Filters=vpc)
        ec2.describe_images(Filters=[{"Name": "architecture", "Values": ["x86_64"]}])

    def logs(self) -> None:
        logs, stream = self.client("logs"), {"logGroupName": self.name, "logStreamName": "a"}
        logs.create_log_group(logGroupName=self.name)
        logs.create_log_stream(**stream)
        logs.put_log_events(**stream, logEvents=[{"timestamp": round(time.time() * 1000), "message": "words"}])
        logs.describe_log_streams(logGroupName=self.name, logStreamNamePrefix="a")
        logs.filter_log_events(logGroupName=self.name, logStreamNames=["a"], filterPattern='"words"')
        logs.get_log_events(**stream, startFromHead=True)
        logs.delete_log_stream(**stream)

    def messages(self) -> None:
        sqs, sns, events = self.client("sqs"), self.client("sns"), self.client("events")
        queue = sqs.create_queue(QueueName=self.name)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        topic = sns.create_topic(Name=self.name)["TopicArn"]
        subscription = sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, ReturnSubscriptionArn=True)
        sns.publish(
            TopicArn=topic,
            Subject="a subject",
            Message='{"default": "words"}',
            MessageStructure="json",
            MessageAttributes={"a": {"DataType": "String", "StringValue": "b"}},
        )
        sns.unsubscribe(SubscriptionArn=subscription["SubscriptionArn"])
        sqs.send_message(QueueUrl=queue, MessageBody="words")
        [message] = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=1, WaitTimeSeconds=1)["Messages"]
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        sqs.delete_queue(QueueUrl=queue)
        events.put_events(Entries=[{"Source": "spotkeep", "DetailType": "a", "Detail": "{}"}])

    def functions(self) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as written:
            written.writestr("module.py", "def handler(event, context):\n    return event\n")
        role = f"arn:aws:iam::000000000000:role/{self.name}"
        trust = {"Service": "lambda.amazonaws.com", "AWS": "arn:aws:iam::000000000000:root"}
        statements = [
            {"Effect": "Allow", "Principal": {kind: who}, "Action": "sts:AssumeRole"} for kind, who in trust.items()
        ]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        self.client("iam").create_role(RoleName=self.name, AssumeRolePolicyDocument=document)
        self.client("lambda").create_function(
            FunctionName=self.name,
            Runtime="python3.13",
            Handler="module.handler",
            Role=role,
            Code={"ZipFile": archive.getvalue()},
        )
        self.client("lambda").invoke(FunctionName=self.name, Payload=b'{"a": 1}')["Payload"].read()
        scheduler = self.client("scheduler")
        scheduler.create_schedule(
            Name=self.name,
            ScheduleExpression="at(2099-01-01T00:00:00)",
            FlexibleTimeWindow={"Mode": "OFF"},
            ActionAfterCompletion="DELETE",
            Target={"Arn": f"arn:aws:lambda:us-east-1:000000000000:function:{self.name}", "RoleArn": role},
        )
        scheduler.delete_schedule(Name=self.name)
        sts = self.client("sts")
        sts.get_caller_identity()
        sts.assume_role(RoleArn=role, RoleSessionName="answers")

    def stacks(self) -> None:
        stacks, stack = self.client("cloudformation"), {"StackName": self.name}
        change = {**stack, "ChangeSetName": "cdk"}
        stacks.create_change_set(
            **change,
            ChangeSetType="CREATE",
            TemplateBody=TEMPLATE,
            Parameters=[{"ParameterKey": "Value", "ParameterValue": "b"}],
            Tags=[{"Key": "a", "Value": "b"}],
        )
        stacks.describe_change_set(**change, IncludePropertyValues=True)
        stacks.execute_change_set(**change)
        stacks.get_waiter("stack_create_complete").wait(**stack, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        stacks.describe_stack_events(**stack)
        assert self.client("ec2").describe_vpc_endpoints()["VpcEndpoints"]
        stacks.get_template(**stack, TemplateStage="Original")
        stacks.create_change_set(**stack, ChangeSetName="second", ChangeSetType="UPDATE", TemplateBody=TEMPLATE)
        stacks.delete_change_set(**stack, ChangeSetName="second")
        name = stacks.describe_stacks(**stack)["Stacks"][0]["Outputs"][0]["OutputValue"]
        self.client("ssm").get_parameter(Name=name, WithDecryption=True)
        stacks.delete_stack(**stack)


def test_every_call_of_the_rehearsals_that_ministack_answers_is_held_to_its_model(local_aws: LocalAws) -> None:
    calls = Calls(local_aws)
    for call in (
        calls.s3, calls.dynamodb, calls.ec2, calls.logs, calls.messages, calls.functions, calls.stacks
    ):  # fmt: skip
        call()
    assert rehearsed() <= answers.checked


def test_the_docs_list_each_known_difference() -> None:
    section = (ROOT / "docs/local-aws.md").read_text().partition("### Answers")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    documented = {name for operations, *_ in rows for name in re.findall(r"`(\w+)`", operations)}
    assert documented == {operation.partition(" ")[2] for operation in answers.KNOWN_DIFFERENCES}


def test_no_known_difference_is_of_a_service_of_ours() -> None:
    named = {tuple(each.split()) for each in answers.KNOWN_DIFFERENCES}
    assert not [(service, operation) for service, operation in named if operation in OURS.get(service, {})]
