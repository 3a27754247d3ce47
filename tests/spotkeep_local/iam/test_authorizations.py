"""What each operation asks for: AWS documents all of it, and it is all that AWS asks for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from spotkeep_local.iam.authorization import Authorization, Call, EncryptionKey, UnknownCall
from spotkeep_local.iam.authorizations import OPERATIONS, authorizations_of
from spotkeep_local.iam.reference import Reference
from tests.models.aws_requests import CALLS
from tests.models.iam_account import ACCOUNT_ID, KEY, REGION, ROLE, IamAccount

REHEARSED = Path(__file__).with_name("rehearsed_calls.txt")
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT_ID}:table/table"
TEMPLATE = {
    "ImageId": "ami-1",
    "IamInstanceProfile": {"Arn": f"arn:aws:iam::{ACCOUNT_ID}:instance-profile/p"},
    "NetworkInterfaces": [{"Groups": ["sg-1"]}],
    "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "a"}]}],
}


class Everything(dict[str, Any]):
    """Has the same value for every key."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value."""
        return self.value


FULL = IamAccount(
    tags_by_arn=Everything({"spotkeep:run": "a"}),
    encrypted=("arn:",),
    partition_keys={TABLE: "pk", f"{TABLE}/index/by-state": "state"},
    template=TEMPLATE,
)
EMPTY = IamAccount(template={"ImageId": "ami-1"})


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def asked(service: str, operation: str, account: IamAccount = EMPTY, /, **parameters: Any) -> tuple[Authorization, ...]:
    """What a call asks for."""
    found = authorizations_of(Call(service=service, operation=operation, parameters=parameters), account=account)
    assert not isinstance(found, UnknownCall), found
    return found


def names(authorizations: tuple[Authorization, ...]) -> list[tuple[str, str]]:
    """Actions and resources."""
    return [(each.action, each.resource) for each in authorizations]


@pytest.mark.parametrize("account", [FULL, EMPTY], ids=["all there", "nothing there"])
@pytest.mark.parametrize("service", CALLS)
def test_aws_documents_what_is_asked_for(reference: Reference, service: str, account: IamAccount) -> None:
    for operation, parameters in CALLS[service].items():
        found = asked(service, operation, account, **parameters)
        assert found or (service, operation) == ("sts", "GetCallerIdentity")
        for each in found:
            assert reference.problem_of(each) is None, operation
            assert each.multivalued <= each.context.keys()
            assert all(each.context.values()), "a key without a value is not in a request"


def test_the_keys_that_the_deployed_policies_use_are_in_the_request() -> None:
    # A key that is never there would let `ForAllValues` and `...IfExists` through.
    used = {
        ("cloudwatch:PutMetricData", "cloudwatch:namespace"),
        ("dynamodb:GetItem", "dynamodb:leadingkeys"),
        ("dynamodb:PutItem", "dynamodb:leadingkeys"),
        ("ec2:AttachVolume", "aws:resourcetag/spotkeep:run"),
        ("ec2:CreateFleet", "aws:requesttag/spotkeep:run"),
        ("ec2:CreateSnapshot", "aws:requesttag/spotkeep:run"),
        ("ec2:CreateSnapshot", "aws:resourcetag/spotkeep:run"),
        ("ec2:CreateTags", "aws:tagkeys"),
        ("ec2:CreateTags", "ec2:createaction"),
        ("ec2:CreateVolume", "aws:requesttag/spotkeep:run"),
        ("ec2:CreateVolume", "aws:resourcetag/spotkeep:run"),
        ("ec2:CreateVolume", "ec2:encrypted"),
        ("ec2:DeleteFleets", "aws:resourcetag/spotkeep:run"),
        ("ec2:DeleteTags", "aws:tagkeys"),
        ("ec2:RunInstances", "ec2:islaunchtemplateresource"),
        ("ec2:RunInstances", "ec2:launchtemplate"),
        ("ec2:TerminateInstances", "aws:resourcetag/spotkeep:run"),
        ("events:PutEvents", "events:detail-type"),
        ("events:PutEvents", "events:source"),
        ("fis:StartExperiment", "aws:requesttag/a"),
        ("fis:StartExperiment", "aws:resourcetag/spotkeep:run"),
        ("iam:PassRole", "iam:passedtoservice"),
        ("kms:CreateGrant", "kms:grantisforawsresource"),
        ("kms:CreateGrant", "kms:viaservice"),
        ("kms:Decrypt", "kms:viaservice"),
        ("kms:GenerateDataKey", "kms:viaservice"),
        ("lambda:InvokeFunction", "lambda:invokedviafunctionurl"),
        ("lambda:InvokeFunctionUrl", "lambda:functionurlauthtype"),
        ("s3:ListBucket", "s3:prefix"),
        ("s3:ListBucketVersions", "s3:prefix"),
        ("sagemaker:AddTags", "sagemaker:taggingaction"),
        ("sagemaker:CreateTrainingJob", "aws:requesttag/spotkeep:run"),
        ("sagemaker:CreateTrainingJob", "sagemaker:keepaliveperiod"),
        ("sagemaker:StopTrainingJob", "aws:resourcetag/spotkeep:run"),
        ("sagemaker:UpdateTrainingJob", "sagemaker:keepaliveperiod"),
        ("ssm:StartSession", "ssm:resourcetag/spotkeep:run"),
        ("sts:AssumeRole", "aws:tagkeys"),
        ("sts:TagSession", "aws:requesttag/spotkeep:run"),
    }
    in_requests = {
        (each.action, key)
        for service, operations in CALLS.items()
        for operation, parameters in operations.items()
        for each in asked(service, operation, FULL, **parameters)
        for key in each.context
    }
    assert used <= in_requests


def test_every_call_of_the_rehearsals_has_a_rule() -> None:
    rows = [
        [part.strip() for part in line.split("|")]
        for line in REHEARSED.read_text().splitlines()
        if not line.startswith("#")
    ]
    assert len({caller for caller, *_ in rows}) > 5
    for _, service, operation, *_ in rows:
        assert operation in OPERATIONS[service], f"{service} {operation}"


@pytest.mark.parametrize(
    "call",
    [
        Call(service="glacier", operation="ListVaults", parameters={}),
        Call(service="s3", operation="RestoreObject", parameters={"Bucket": "b", "Key": "k"}),
        Call(service="s3", operation="DeleteObjects", parameters={"Bucket": "b"}),
        Call(service="s3", operation="CopyObject", parameters={"Bucket": "b", "Key": "k", "CopySource": "nowhere"}),
        Call(service="s3", operation="PutObject", parameters={"Bucket": "b", "Key": "k", "SSEKMSKeyId": "missing"}),
        Call(service="dynamodb", operation="TransactWriteItems", parameters={"TransactItems": [{"Other": {}}]}),
        Call(service="dynamodb", operation="GetItem", parameters={"TableName": "t", "Key": 3}),
        Call(service="dynamodb", operation="BatchGetItem", parameters={"RequestItems": [1]}),
        Call(service="ec2", operation="CreateTags", parameters={"Resources": ["x-1"], "Tags": []}),
        Call(service="lambda", operation="InvokeFunctionUrl", parameters={"UrlId": "missing"}),
    ],
    ids=lambda call: f"{call.service}.{call.operation}",
)
def test_what_cannot_be_decided_is_named(call: Call) -> None:
    account = dataclasses.replace(FULL, partition_keys=Everything("pk"))
    found = authorizations_of(call, account=account)
    assert isinstance(found, UnknownCall)
    assert (found.service, found.operation) == (call.service, call.operation)
    assert found.reason


class TestS3:
    def test_an_object_is_read_with_one_permission_and_with_its_key(self) -> None:
        account = IamAccount(encrypted=("arn:aws:s3:::b/x",))
        reading, decrypting = asked("s3", "HeadObject", account, Bucket="b", Key="x")
        assert (reading.action, reading.resource) == ("s3:GetObject", "arn:aws:s3:::b/x")
        assert (decrypting.action, decrypting.resource) == ("kms:Decrypt", KEY.arn)
        assert decrypting.context["kms:viaservice"] == (f"s3.{REGION}.amazonaws.com",)
        assert decrypting.context["kms:encryptioncontext:aws:s3:arn"] == ("arn:aws:s3:::b/x",)

    def test_the_key_of_a_bucket_binds_data_to_the_bucket(self) -> None:
        key = EncryptionKey(arn=KEY.arn, for_the_bucket=True)
        account = IamAccount(encrypted=("arn:aws:s3:::b",), key=key)
        _, encrypting = asked("s3", "PutObject", account, Bucket="b", Key="x/y")
        assert encrypting.action == "kms:GenerateDataKey"
        assert encrypting.context["kms:encryptioncontext:aws:s3:arn"] == ("arn:aws:s3:::b",)

    def test_an_upload_in_parts_decrypts_too(self) -> None:
        account, given = IamAccount(encrypted=("arn:aws:s3:::b",)), {"Bucket": "b", "Key": "x", "UploadId": "u"}
        assert [each.action for each in asked("s3", "CreateMultipartUpload", account, **given)] == [
            "s3:PutObject",
            "kms:GenerateDataKey",
        ]
        assert [each.action for each in asked("s3", "UploadPart", account, **given)] == ["s3:PutObject", "kms:Decrypt"]
        assert [each.action for each in asked("s3", "CompleteMultipartUpload", account, **given)] == ["s3:PutObject"]

    def test_a_version_is_another_action(self) -> None:
        found = [
            asked("s3", operation, Bucket="b", Key="x", VersionId="3")[0]
            for operation in ("GetObject", "DeleteObject", "GetObjectTagging")
        ]
        assert [each.action for each in found] == [
            "s3:GetObjectVersion",
            "s3:DeleteObjectVersion",
            "s3:GetObjectVersionTagging",
        ]
        assert {each.context["s3:versionid"] for each in found} == {("3",)}

    def test_a_copy_reads_and_writes(self) -> None:
        account = IamAccount(tags_by_arn={"arn:aws:s3:::from/a b": {"k": "v"}})
        given = {"Bucket": "to", "Key": "y", "CopySource": "/from/a%20b"}
        assert names(asked("s3", "CopyObject", account, **given)) == [
            ("s3:GetObject", "arn:aws:s3:::from/a b"),
            ("s3:GetObjectTagging", "arn:aws:s3:::from/a b"),
            ("s3:PutObjectTagging", "arn:aws:s3:::to/y"),
            ("s3:PutObject", "arn:aws:s3:::to/y"),
        ]
        without_tags = asked("s3", "CopyObject", account, **given, TaggingDirective="REPLACE")
        assert [each.action for each in without_tags] == ["s3:GetObject", "s3:PutObject"]

    def test_each_key_is_deleted_on_its_own(self) -> None:
        assert names(asked("s3", "DeleteObjects", **CALLS["s3"]["DeleteObjects"])) == [
            ("s3:DeleteObject", "arn:aws:s3:::bucket/a <&> b"),
            ("s3:DeleteObjectVersion", "arn:aws:s3:::bucket/c"),
        ]

    def test_a_listing_names_its_prefix_only_where_it_has_one(self) -> None:
        (with_prefix,) = asked("s3", "ListObjectsV2", Bucket="b", Prefix="runs/")
        (with_empty,) = asked("s3", "ListObjectsV2", Bucket="b", Prefix="")
        (without,) = asked("s3", "ListObjectsV2", Bucket="b")
        assert with_prefix.context == {"s3:prefix": ("runs/",)}
        assert with_empty.context == {"s3:prefix": ("",)}
        assert without.context == {}

    def test_what_tags_and_locks_an_object_needs_more_than_writing(self) -> None:
        found = asked("s3", "PutObject", **CALLS["s3"]["PutObject"])
        assert [each.action for each in found] == [
            "s3:PutObject",
            "s3:PutObjectTagging",
            "s3:PutObjectAcl",
            "s3:PutObjectRetention",
            "s3:PutObjectLegalHold",
        ]

    def test_reading_what_is_not_there_asks_for_listing_it(self) -> None:
        account = IamAccount(encrypted=("arn:aws:s3:::b",), missing_objects=frozenset({"arn:aws:s3:::b/runs/x"}))
        reading, listing = asked("s3", "HeadObject", account, Bucket="b", Key="runs/x")
        assert reading.action == "s3:GetObject"
        assert (listing.action, listing.resource) == ("s3:ListBucket", "arn:aws:s3:::b")
        assert listing.context == {"s3:prefix": ("runs/x",)}


class TestDynamoDb:
    ACCOUNT = IamAccount(partition_keys={TABLE: "pk", f"{TABLE}/index/by-state": "state"})

    def test_an_item_names_its_partition(self) -> None:
        (found,) = asked("dynamodb", "GetItem", self.ACCOUNT, **CALLS["dynamodb"]["GetItem"])
        assert (found.action, found.resource) == ("dynamodb:GetItem", TABLE)
        assert found.context["dynamodb:leadingkeys"] == ("run#a",)
        assert found.context["dynamodb:select"] == ("ALL_ATTRIBUTES",)

    def test_a_transaction_asks_for_each_part(self) -> None:
        given = CALLS["dynamodb"]["TransactWriteItems"]
        found = asked("dynamodb", "TransactWriteItems", self.ACCOUNT, **given)
        assert [each.action for each in found] == [
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
        ]
        assert {each.context["dynamodb:leadingkeys"] for each in found} == {("run#a",)}
        assert [each.context.get("dynamodb:enclosingoperation") for each in found] == [
            None,
            *[("TransactWriteItems",)] * 3,
        ]

    def test_a_query_of_an_index_asks_for_the_index_by_its_own_key(self) -> None:
        (found,) = asked("dynamodb", "Query", self.ACCOUNT, **CALLS["dynamodb"]["Query"])
        assert found.resource == f"{TABLE}/index/by-state"
        assert found.context["dynamodb:leadingkeys"] == ("Running",)
        assert found.context["dynamodb:attributes"] == ("state", "sk")

    def test_a_query_whose_partition_is_hidden_is_not_decided(self) -> None:
        call = Call(
            service="dynamodb",
            operation="Query",
            parameters={
                **CALLS["dynamodb"]["Query"],
                "IndexName": None,
                "KeyConditionExpression": "begins_with(pk, :s)",
            },
        )
        found = authorizations_of(call, account=self.ACCOUNT)
        assert isinstance(found, UnknownCall)

    @pytest.mark.parametrize(
        ("expression", "names_given", "attributes"),
        [
            ("SET #a.b[0].c = if_not_exists(x.y, :v) + :d REMOVE z", {"#a": "first"}, ["first", "x", "z"]),
            ("ADD counter :v DELETE colours :c", {}, ["counter", "colours"]),
        ],
    )
    def test_an_update_names_the_attributes_of_the_top_level(
        self, expression: str, names_given: dict[str, str], attributes: list[str]
    ) -> None:
        (found,) = asked(
            "dynamodb",
            "UpdateItem",
            self.ACCOUNT,
            TableName="table",
            Key={"pk": {"S": "a"}},
            UpdateExpression=expression,
            ExpressionAttributeNames=names_given,
        )
        assert found.context["dynamodb:attributes"] == ("pk", *attributes)


class TestTrainingJobs:
    def test_a_job_needs_its_tags_its_role_and_its_volumes_key(self) -> None:
        found = asked("sagemaker", "CreateTrainingJob", **CALLS["sagemaker"]["CreateTrainingJob"])
        job = f"arn:aws:sagemaker:{REGION}:{ACCOUNT_ID}:training-job/digits-1"
        assert names(found) == [
            ("sagemaker:CreateTrainingJob", job),
            ("sagemaker:AddTags", job),
            ("iam:PassRole", ROLE),
            ("kms:DescribeKey", KEY.arn),
            ("kms:CreateGrant", KEY.arn),
        ]
        creating, tagging, passing, _, granting = found
        assert creating.context["sagemaker:keepaliveperiod"] == ("600",)
        assert creating.context["sagemaker:instancetypes"] == ("ml.m5.large",)
        assert creating.context["sagemaker:networkisolation"] == ("false",)
        assert creating.context["aws:requesttag/spotkeep:run"] == ("a",)
        assert creating.context["aws:tagkeys"] == ("spotkeep:run", "Name")
        assert tagging.context["sagemaker:taggingaction"] == ("CreateTrainingJob",)
        assert passing.context["iam:passedtoservice"] == ("sagemaker.amazonaws.com",)
        assert granting.context["kms:grantisforawsresource"] == ("true",)

    def test_a_job_that_is_there_brings_its_tags(self) -> None:
        job = f"arn:aws:sagemaker:{REGION}:{ACCOUNT_ID}:training-job/digits-1"
        account = IamAccount(tags_by_arn={job: {"team": "a"}})
        (found,) = asked("sagemaker", "StopTrainingJob", account, TrainingJobName="Digits-1")
        assert found.context == {"aws:resourcetag/team": ("a",), "sagemaker:resourcetag/team": ("a",)}


class TestEc2:
    ACCOUNT = IamAccount(template=TEMPLATE)

    def test_a_fleet_asks_for_all_that_it_launches(self) -> None:
        found = asked("ec2", "CreateFleet", self.ACCOUNT, **CALLS["ec2"]["CreateFleet"])
        prefix = f"arn:aws:ec2:{REGION}:{ACCOUNT_ID}:"
        made = {prefix + name for name in ("launch-template/lt-1", "instance/*", "volume/*")}
        image = f"arn:aws:ec2:{REGION}::image/ami-1"
        given = {image, prefix + "subnet/subnet-1", prefix + "subnet/subnet-2"}
        for_run = {prefix + name for name in ("network-interface/*", "security-group/sg-1")}
        assert {each.resource for each in found if each.action == "ec2:CreateFleet"} == made | given | {
            prefix + "fleet/*"
        }
        running = [each for each in found if each.action == "ec2:RunInstances"]
        assert {each.resource for each in running} == made | given | for_run
        assert {each.context["ec2:launchtemplate"] for each in running} == {(prefix + "launch-template/lt-1",)}
        own = {each.resource: each.context["ec2:islaunchtemplateresource"] for each in running}
        assert own[image] == ("true",)
        assert own[prefix + "subnet/subnet-1"] == ("false",)
        types = {each.context["ec2:instancetype"] for each in running if each.resource.endswith("instance/*")}
        assert types == {("m5.large",), ("m6i.large",)}
        tagging = {
            (each.resource, each.context["ec2:createaction"]) for each in found if each.action == "ec2:CreateTags"
        }
        assert tagging == {(prefix + "fleet/*", ("CreateFleet",)), (prefix + "instance/*", ("RunInstances",))}
        (passing,) = (each for each in found if each.action == "iam:PassRole")
        assert (passing.resource, passing.context) == (ROLE, {"iam:passedtoservice": ("ec2.amazonaws.com",)})

    def test_a_fleet_asks_for_the_groups_of_all_its_interfaces_and_for_its_placement_group(self) -> None:
        interfaces = [{"DeviceIndex": 0, "Groups": ["sg-1", "sg-2"]}, {"DeviceIndex": 1, "Groups": ["sg-2", "sg-3"]}]
        account = IamAccount(template={"ImageId": "ami-1", "NetworkInterfaces": interfaces})
        placed = {"InstanceType": "m5.large", "SubnetId": "subnet-1", "Placement": {"GroupName": "close"}}
        config = {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "3"}, "Overrides": [placed]}
        found = asked("ec2", "CreateFleet", account, LaunchTemplateConfigs=[config])
        prefix = f"arn:aws:ec2:{REGION}:{ACCOUNT_ID}:"
        running = {each.resource: each for each in found if each.action == "ec2:RunInstances"}
        groups = sorted(resource for resource in running if ":security-group/" in resource)
        assert groups == [f"{prefix}security-group/sg-{number}" for number in (1, 2, 3)]
        placement = running[f"{prefix}placement-group/close"].context
        assert placement["ec2:placementgroupname"] == ("close",)
        assert placement["ec2:launchtemplate"] == (f"{prefix}launch-template/lt-1",)
        assert placement["ec2:islaunchtemplateresource"] == ("false",)
        fleet = {each.resource for each in found if each.action == "ec2:CreateFleet"}
        assert f"{prefix}placement-group/close" in fleet
        assert not [resource for resource in fleet if ":security-group/" in resource]

    def test_a_fleet_whose_image_a_parameter_names_is_not_decided(self) -> None:
        call = Call(service="ec2", operation="CreateFleet", parameters=CALLS["ec2"]["CreateFleet"])
        account = IamAccount(template={"ImageId": "resolve:ssm:x"})
        assert isinstance(authorizations_of(call, account=account), UnknownCall)

    @pytest.mark.parametrize("template", [{}, {"ImageId": "ami-1", "IamInstanceProfile": {"Name": "missing"}}])
    def test_a_fleet_that_ec2_refuses_passes_no_role(self, template: dict[str, Any]) -> None:
        call = Call(service="ec2", operation="CreateFleet", parameters=CALLS["ec2"]["CreateFleet"])
        found = authorizations_of(call, account=IamAccount(template=template))
        assert isinstance(found, tuple)
        assert "ec2:CreateFleet" in {each.action for each in found}
        assert "iam:PassRole" not in {each.action for each in found}

    def test_a_volume_is_made_tagged_and_encrypted(self) -> None:
        found = asked("ec2", "CreateVolume", AvailabilityZone="a", KmsKeyId="k", TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "run", "Value": "a"}]}
        ])  # fmt: skip
        assert [each.action for each in found] == [
            "ec2:CreateVolume",
            "ec2:CreateTags",
            "kms:DescribeKey",
            "kms:CreateGrant",
            "kms:GenerateDataKeyWithoutPlaintext",
        ]
        assert found[0].context["ec2:encrypted"] == ("true",)
        assert found[0].context["aws:requesttag/run"] == ("a",)
        assert found[1].context["ec2:createaction"] == ("CreateVolume",)

    def test_a_volume_of_a_snapshot_asks_for_the_snapshot(self) -> None:
        snapshot = f"arn:aws:ec2:{REGION}::snapshot/snap-1"
        account = IamAccount(tags_by_arn={snapshot: {"run": "a"}}, encrypted=(snapshot,))
        found = asked("ec2", "CreateVolume", account, AvailabilityZone="a", SnapshotId="snap-1")
        assert [each.action for each in found] == [
            "ec2:CreateVolume",
            "ec2:CreateVolume",
            "kms:ReEncryptFrom",
            "kms:DescribeKey",
            "kms:CreateGrant",
            "kms:GenerateDataKeyWithoutPlaintext",
            "kms:ReEncryptTo",
        ]
        assert found[0].context["ec2:encrypted"] == ("true",)
        assert (found[1].resource, found[1].context["aws:resourcetag/run"]) == (snapshot, ("a",))

    def test_volume_and_instance_are_both_asked_for(self) -> None:
        prefix = f"arn:aws:ec2:{REGION}:{ACCOUNT_ID}:"
        for operation in ("AttachVolume", "DetachVolume"):
            found = asked("ec2", operation, VolumeId="vol-1", InstanceId="i-1")
            assert [each.resource for each in found] == [prefix + "volume/vol-1", prefix + "instance/i-1"]

    def test_an_encrypted_volume_is_attached_with_its_key(self) -> None:
        volume = f"arn:aws:ec2:{REGION}:{ACCOUNT_ID}:volume/vol-1"
        found = asked("ec2", "AttachVolume", IamAccount(encrypted=(volume,)), VolumeId="vol-1", InstanceId="i-1")
        assert [each.action for each in found[2:]] == ["kms:CreateGrant", "kms:Decrypt"]
        assert found[2].context["kms:grantisforawsresource"] == ("true",)
        assert found[2].context["kms:viaservice"] == (f"ec2.{REGION}.amazonaws.com",)

    def test_tags_are_taken_by_their_keys(self) -> None:
        (found,) = asked("ec2", "DeleteTags", **CALLS["ec2"]["DeleteTags"])
        assert found.context["aws:tagkeys"] == ("drill", "other")
        assert found.context["aws:requesttag/drill"] == ("1",)
        assert found.multivalued == {"aws:tagkeys"}


class TestMessages:
    QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT_ID}:queue"
    TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT_ID}:topic"

    @pytest.mark.parametrize(
        ("operation", "actions"),
        [
            ("SendMessage", ["sqs:SendMessage", "kms:GenerateDataKey", "kms:Decrypt"]),
            ("SendMessageBatch", ["sqs:SendMessage", "kms:GenerateDataKey", "kms:Decrypt"]),
            ("ReceiveMessage", ["sqs:ReceiveMessage", "kms:Decrypt"]),
            ("DeleteMessage", ["sqs:DeleteMessage"]),
        ],
    )
    def test_a_queue_is_used_with_its_key(self, operation: str, actions: list[str]) -> None:
        account = IamAccount(encrypted=(self.QUEUE,))
        found = asked("sqs", operation, account, QueueUrl=f"http://127.0.0.1:4566/{ACCOUNT_ID}/queue")
        assert [each.action for each in found] == actions
        assert found[0].resource == self.QUEUE

    def test_a_topic_is_published_to_with_its_key(self) -> None:
        found = asked("sns", "Publish", IamAccount(encrypted=(self.TOPIC,)), TopicArn=self.TOPIC, Message="m")
        assert [each.action for each in found] == ["sns:Publish", "kms:GenerateDataKey", "kms:Decrypt"]
        assert found[1].context["kms:viaservice"] == (f"sns.{REGION}.amazonaws.com",)

    def test_a_subscription_is_its_topics(self) -> None:
        assert names(asked("sns", "Unsubscribe", SubscriptionArn=f"{self.TOPIC}:1-2")) == [
            ("sns:Unsubscribe", self.TOPIC)
        ]

    def test_each_kind_of_event_is_asked_for(self) -> None:
        found = asked("events", "PutEvents", **CALLS["events"]["PutEvents"])
        assert [(each.resource.rpartition("/")[2], each.context["events:source"]) for each in found] == [
            ("default", ("spotkeep.agent",)),
            ("bus", ("other",)),
        ]

    def test_a_schedule_hands_its_role_over_and_has_its_groups_tags(self) -> None:
        account = IamAccount(
            tags_by_arn={f"arn:aws:scheduler:{REGION}:{ACCOUNT_ID}:schedule-group/pools": {"team": "a"}}
        )
        creating, passing = asked("scheduler", "CreateSchedule", account, **CALLS["scheduler"]["CreateSchedule"])
        assert creating.resource == f"arn:aws:scheduler:{REGION}:{ACCOUNT_ID}:schedule/pools/reminder"
        assert creating.context["aws:resourcetag/team"] == ("a",)
        assert (passing.resource, passing.context["iam:passedtoservice"]) == (ROLE, ("scheduler.amazonaws.com",))


class TestStacks:
    @pytest.mark.parametrize(
        ("address", "resource"),
        [
            (f"https://s3.{REGION}.amazonaws.com/assets/a%20b.json", "assets/a b.json"),
            (f"https://assets.s3.{REGION}.amazonaws.com/a.json", "assets/a.json"),
            ("http://127.0.0.1:4566/assets/x/a.json", "assets/x/a.json"),
        ],
    )
    def test_a_template_is_read_by_its_caller(self, address: str, resource: str) -> None:
        found = asked("cloudformation", "UpdateStack", StackName="a", TemplateURL=address)
        stack = f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:stack/a/*"
        assert names(found) == [("cloudformation:UpdateStack", stack), ("s3:GetObject", f"arn:aws:s3:::{resource}")]

    def test_a_role_is_handed_over(self) -> None:
        found = asked("cloudformation", "DeleteStack", StackName="a", RoleARN=ROLE)
        assert found[1].action == "iam:PassRole"
        assert found[1].context["iam:passedtoservice"] == ("cloudformation.amazonaws.com",)

    def test_a_change_set_is_known_by_its_name(self) -> None:
        (found,) = asked("cloudformation", "DeleteChangeSet", **CALLS["cloudformation"]["DeleteChangeSet"])
        assert found.context["cloudformation:changesetname"] == ("cdk",)
        without_stack = Call(service="cloudformation", operation="DeleteChangeSet", parameters={"ChangeSetName": "a"})
        assert isinstance(authorizations_of(without_stack, account=EMPTY), UnknownCall)

    def test_a_role_is_asked_for_with_its_path(self) -> None:
        (there,) = asked("iam", "GetRole", RoleName="r")
        (missing,) = asked("iam", "GetRole", RoleName="missing")
        assert there.resource == f"arn:aws:iam::{ACCOUNT_ID}:role/path/r"
        assert missing.resource == f"arn:aws:iam::{ACCOUNT_ID}:role/missing"

    def test_a_service_job_asks_for_its_queue_its_share_itself_and_its_training_jobs_role(self) -> None:
        found = asked("batch", "SubmitServiceJob", **CALLS["batch"]["SubmitServiceJob"])
        assert [(each.action, each.resource.rpartition(":")[2]) for each in found] == [
            ("batch:SubmitServiceJob", "job-queue/trainings"),
            ("batch:SubmitServiceJob", "job-queue/trainings/quota-share/research"),
            ("batch:SubmitServiceJob", "service-job/*"),
            ("batch:TagResource", "service-job/*"),
            ("iam:PassRole", "role/worker"),
        ]
        assert found[0].context["batch:schedulingpriority"] == ("5",)
        assert found[2].context["aws:requesttag/spotkeep:run"] == ("a",)
        assert found[-1].context["iam:passedtoservice"] == ("sagemaker.amazonaws.com",)
        given = CALLS["batch"]["SubmitServiceJob"] | {"shareIdentifier": "team", "serviceRequestPayload": "no JSON"}
        submitting = asked("batch", "SubmitServiceJob", **given)
        assert submitting[2].context["batch:shareidentifier"] == ("team",)
        assert "iam:PassRole" not in {each.action for each in submitting}

    def test_a_job_queue_asks_for_what_it_stands_on(self) -> None:
        found = asked("batch", "CreateJobQueue", **CALLS["batch"]["CreateJobQueue"])
        assert [(each.action, each.resource.rpartition(":")[2]) for each in found] == [
            ("batch:CreateJobQueue", "job-queue/trainings"),
            ("batch:TagResource", "job-queue/trainings"),
            ("batch:CreateJobQueue", "service-environment/training"),
            ("batch:CreateJobQueue", "scheduling-policy/shares"),
        ]

    def test_an_experiment_asks_for_its_template_and_for_itself(self) -> None:
        found = asked("fis", "StartExperiment", **CALLS["fis"]["StartExperiment"])
        assert [(each.action, each.resource.rpartition(":")[2]) for each in found] == [
            ("fis:StartExperiment", "experiment-template/EXT1"),
            ("fis:StartExperiment", "experiment/*"),
            ("fis:TagResource", "experiment/*"),
        ]

    def test_a_function_is_made_with_its_role_layers_and_code(self) -> None:
        found = asked("lambda", "CreateFunction", **CALLS["lambda"]["CreateFunction"])
        assert [each.action for each in found] == [
            "lambda:CreateFunction",
            "lambda:TagResource",
            "iam:PassRole",
            "lambda:GetLayerVersion",
            "s3:GetObject",
        ]

    def test_a_functions_code_is_replaced_with_what_its_caller_may_read(self) -> None:
        found = asked("lambda", "UpdateFunctionCode", **CALLS["lambda"]["UpdateFunctionCode"])
        assert [each.action for each in found] == ["lambda:UpdateFunctionCode", "s3:GetObject"]
        (given,) = asked("lambda", "UpdateFunctionCode", FunctionName="f", ZipFile=b"")
        assert given.action == "lambda:UpdateFunctionCode"


class TestOthers:
    def test_a_session_with_tags_is_tagged(self) -> None:
        found = asked("sts", "AssumeRole", **CALLS["sts"]["AssumeRole"])
        assert names(found) == [("sts:AssumeRole", ROLE), ("sts:TagSession", ROLE), ("sts:SetSourceIdentity", ROLE)]
        assert found[0].context["sts:rolesessionname"] == ("run-a",)
        assert found[1].context["aws:requesttag/spotkeep:run"] == ("a",)
        assert names(asked("sts", "AssumeRole", RoleArn=ROLE, RoleSessionName="a")) == [("sts:AssumeRole", ROLE)]

    @pytest.mark.parametrize(
        ("given", "function"),
        [
            ({"FunctionName": "f"}, "f"),
            ({"FunctionName": "f:live"}, "f:live"),
            ({"FunctionName": "f", "Qualifier": "3"}, "f:3"),
            ({"FunctionName": f"{ACCOUNT_ID}:function:f"}, "f"),
            ({"FunctionName": f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:f"}, "f"),
        ],
    )
    def test_a_function_is_named_as_lambda_allows(self, given: dict[str, str], function: str) -> None:
        arn = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{function}"
        assert names(asked("lambda", "Invoke", **given)) == [("lambda:InvokeFunction", arn)]

    def test_a_function_url_needs_the_url_and_the_function(self) -> None:
        url, function = asked("lambda", "InvokeFunctionUrl", UrlId="abc")
        assert (url.action, url.context) == ("lambda:InvokeFunctionUrl", {"lambda:functionurlauthtype": ("AWS_IAM",)})
        assert (function.action, function.context) == (
            "lambda:InvokeFunction",
            {"lambda:invokedviafunctionurl": ("true",)},
        )

    def test_a_log_group_is_asked_for_with_what_is_behind_it(self) -> None:
        group = f"arn:aws:logs:{REGION}:{ACCOUNT_ID}:log-group:g:log-stream:"
        assert names(asked("logs", "DescribeLogStreams", logGroupName="g")) == [("logs:DescribeLogStreams", group)]
        assert names(asked("logs", "PutLogEvents", logGroupName="g", logStreamName="s/1")) == [
            ("logs:PutLogEvents", f"{group}s/1")
        ]

    @pytest.mark.parametrize(
        ("name", "parameter"),
        [
            ("/a/b", f"{ACCOUNT_ID}:parameter/a/b"),
            ("a:3", f"{ACCOUNT_ID}:parameter/a"),
            ("/aws/service/ami/x", ":parameter/aws/service/ami/x"),
        ],
    )
    def test_a_parameter_is_named_without_its_slash(self, name: str, parameter: str) -> None:
        assert names(asked("ssm", "GetParameter", Name=name)) == [
            ("ssm:GetParameter", f"arn:aws:ssm:{REGION}:{parameter}")
        ]


class TestSessions:
    DOCUMENT = ("ssm:StartSession", f"arn:aws:ssm:{REGION}::document/AWS-StartInteractiveCommand")

    def test_a_session_on_an_instance_asks_for_the_instance_and_the_document(self) -> None:
        instance = f"arn:aws:ec2:{REGION}:{ACCOUNT_ID}:instance/i-0123456789abcdef0"
        account = IamAccount(tags_by_arn={instance: {"spotkeep:run": "a"}})
        found = asked("ssm", "StartSession", account, **CALLS["ssm"]["StartSession"])
        assert names(found) == [("ssm:StartSession", instance), self.DOCUMENT]
        assert found[0].context["ssm:resourcetag/spotkeep:run"] == ("a",)

    def test_a_session_in_a_training_job_names_its_container(self) -> None:
        target = "sagemaker-training-job:digits-1_algo-1"
        (found,) = asked("ssm", "StartSession", Target=target)
        assert (found.resource, found.context) == ("*", {"ssm:resourcetag/aws:ssmmessages:target-id": (target,)})

    def test_a_document_of_ones_own_is_in_the_account(self) -> None:
        found = asked("ssm", "StartSession", Target="i-1", DocumentName="mine")
        assert names(found)[1] == ("ssm:StartSession", f"arn:aws:ssm:{REGION}:{ACCOUNT_ID}:document/mine")

    def test_another_kind_of_target_is_not_decided(self) -> None:
        call = Call(service="ssm", operation="StartSession", parameters={"Target": "mi-0123456789abcdef0"})
        assert isinstance(authorizations_of(call, account=FULL), UnknownCall)
