"""What AWS documents of actions, resource types and condition keys; what it does not is named."""

from __future__ import annotations

import pytest

from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.reference import Reference

ACCOUNT = "us-west-1:111122223333"
JOB = f"arn:aws:sagemaker:{ACCOUNT}:training-job/a-1"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.mark.parametrize(
    ("action", "resource", "keys"),
    [
        ("s3:GetObject", "arn:aws:s3:::bucket/runs/a/x:y", ["s3:existingobjecttag/run", "aws:SourceIp"]),
        ("s3:ListAllMyBuckets", "*", []),
        ("S3:getobject", "arn:aws:s3:::bucket/x", []),
        (
            "sagemaker:CreateTrainingJob",
            JOB,
            ["aws:requesttag/spotkeep:run", "aws:tagkeys", "sagemaker:KeepAlivePeriod"],
        ),
        ("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:instance/*", ["ec2:InstanceType", "ec2:Region"]),
        ("ec2:CreateTags", f"arn:aws:ec2:{ACCOUNT}:volume/vol-1", ["ec2:CreateAction"]),
        ("kms:Decrypt", f"arn:aws:kms:{ACCOUNT}:key/1", ["kms:EncryptionContext:aws:s3:arn", "kms:ViaService"]),
        ("iam:PassRole", "arn:aws:iam::111122223333:role/team/a", ["iam:PassedToService", "aws:PrincipalTag/run"]),
        ("logs:PutLogEvents", f"arn:aws:logs:{ACCOUNT}:log-group:/aws/lambda/f:log-stream:2026/s", []),
    ],
)
def test_what_aws_documents_has_no_problem(reference: Reference, action: str, resource: str, keys: list[str]) -> None:
    asked = Authorization(action=action, resource=resource, context=dict.fromkeys(keys, ("a",)))
    assert reference.problem_of(asked) is None


@pytest.mark.parametrize(
    ("action", "resource", "keys", "problem"),
    [
        ("s3:GetObjects", "*", [], "there is no action s3:GetObjects"),
        ("nowhere:GetObject", "*", [], "there is no action nowhere:GetObject"),
        ("../s3:GetObject", "*", [], "there is no action ../s3:GetObject"),
        ("GetObject", "*", [], "there is no action GetObject"),
        ("s3:GetObject", "arn:aws:s3:::bucket", [], "only accesspointobject, object"),
        ("s3:ListBucket", "arn:aws:s3:::bucket/x", [], "only accesspoint, bucket"),
        ("sqs:SendMessage", f"arn:aws:sns:{ACCOUNT}:topic", [], "only queue"),
        ("s3:ListAllMyBuckets", "arn:aws:s3:::bucket", [], "takes no resource; arn:aws:s3:::bucket was asked for"),
        ("iam:PassRole", "*", [], "takes a resource of type role; none was named"),
        ("sagemaker:StopTrainingJob", JOB, ["aws:RequestTag/a", "sagemaker:KeepAlivePeriod"],
         "has no condition key aws:RequestTag/a, sagemaker:KeepAlivePeriod"),
        ("ec2:RunInstances", f"arn:aws:ec2:{ACCOUNT}:subnet/subnet-1", ["ec2:InstanceType"], "key ec2:InstanceType"),
        ("sqs:SendMessage", f"arn:aws:sqs:{ACCOUNT}:queue", ["aws:Sourcearns"], "has no condition key aws:Sourcearns"),
    ],
)  # fmt: skip
def test_what_aws_does_not_document_is_named(
    reference: Reference, action: str, resource: str, keys: list[str], problem: str
) -> None:
    asked = Authorization(action=action, resource=resource, context=dict.fromkeys(keys, ("a",)))
    assert problem in str(reference.problem_of(asked))
