"""Requests as boto3 sends them, and for each operation that the local AWS judges one with parameters of every kind."""

from __future__ import annotations

import functools
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from botocore import xform_name
from botocore.awsrequest import AWSPreparedRequest
from botocore.client import BaseClient
from botocore.config import Config
from botocore.session import Session

from spotkeep_local.iam.calls import INVOKE_BY_URL
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.clients import with_shared_models
from tests.models.iam_account import ACCOUNT_ID, REGION, ROLE

_ITEM: Final = {"pk": {"S": "run#a"}, "sk": {"S": "run"}, "state": {"S": "Running"}}
_KEY: Final = {"pk": {"S": "run#a"}, "sk": {"S": "run"}}
_TAGS: Final = [{"Key": "spotkeep:run", "Value": "a"}, {"Key": "Name", "Value": "x y"}]
_OBJECT: Final = {"Bucket": "bucket", "Key": "runs/a b/ü%2F+.pt"}
_JOB: Final = {"TrainingJobName": "Digits-1"}
_JOB_ARN: Final = f"arn:aws:sagemaker:{REGION}:{ACCOUNT_ID}:training-job/digits-1"
_STREAM: Final = {"logGroupName": "/aws/sagemaker/TrainingJobs", "logStreamName": "a/algo-1"}
_GROUP: Final = {"logGroupName": "/aws/sagemaker/TrainingJobs"}
_STACK: Final = f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:stack/a/1-2-3"
_TOPIC: Final = f"arn:aws:sns:{REGION}:{ACCOUNT_ID}:topic"
_ONCE: Final = {"ClientRequestToken": 32 * "a"}
_URL: Final = f"http://127.0.0.1:4566/{ACCOUNT_ID}/queue"

_BATCH: Final = f"arn:aws:batch:{REGION}:{ACCOUNT_ID}"
_SHARE: Final = f"{_BATCH}:job-queue/trainings/quota-share/research"
_LIMITS: Final = [{"maxCapacity": 4, "capacityUnit": "ml.g5.xlarge"}]
_SHARING: Final = {
    "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 50},
    "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
}

CALLS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "batch": {
        "CreateJobQueue": {
            "jobQueueName": "trainings",
            "jobQueueType": "SAGEMAKER_TRAINING",
            "priority": 1,
            "schedulingPolicyArn": f"{_BATCH}:scheduling-policy/shares",
            "serviceEnvironmentOrder": [{"order": 1, "serviceEnvironment": "training"}],
            "tags": {"a": "b"},
        },
        "CreateQuotaShare": {
            "quotaShareName": "research",
            "jobQueue": "trainings",
            "capacityLimits": _LIMITS,
            **_SHARING,
            "tags": {"a": "b"},
        },
        "CreateSchedulingPolicy": {"name": "shares", "tags": {"a": "b"}},
        "CreateServiceEnvironment": {
            "serviceEnvironmentName": "training",
            "serviceEnvironmentType": "SAGEMAKER_TRAINING",
            "capacityLimits": _LIMITS,
        },
        "DeleteJobQueue": {"jobQueue": "trainings"},
        "DeleteQuotaShare": {"quotaShareArn": _SHARE},
        "DeleteSchedulingPolicy": {"arn": f"{_BATCH}:scheduling-policy/shares"},
        "DeleteServiceEnvironment": {"serviceEnvironment": f"{_BATCH}:service-environment/training"},
        "DescribeJobQueues": {"jobQueues": ["trainings"]},
        "DescribeQuotaShare": {"quotaShareArn": _SHARE},
        "DescribeSchedulingPolicies": {"arns": [f"{_BATCH}:scheduling-policy/shares"]},
        "DescribeServiceEnvironments": {},
        "DescribeServiceJob": {"jobId": "1-2-3"},
        "ListQuotaShares": {"jobQueue": f"{_BATCH}:job-queue/trainings", "maxResults": 5},
        "ListServiceJobs": {"jobQueue": "trainings", "filters": [{"name": "JOB_NAME", "values": ["a*"]}]},
        "ListTagsForResource": {"resourceArn": _SHARE},
        "SubmitServiceJob": {
            "jobName": "Digits-1",
            "jobQueue": "trainings",
            "serviceJobType": "SAGEMAKER_TRAINING",
            "serviceRequestPayload": f'{{"RoleArn": "{ROLE}"}}',
            "schedulingPriority": 5,
            "quotaShareName": "research",
            "tags": {"spotkeep:run": "a"},
            "clientToken": "once",
        },
        "TagResource": {"resourceArn": f"{_BATCH}:service-job/1-2-3", "tags": {"a": "b"}},
        "TerminateServiceJob": {"jobId": f"{_BATCH}:service-job/1-2-3", "reason": "not needed"},
        "UntagResource": {"resourceArn": f"{_BATCH}:job-queue/trainings", "tagKeys": ["a", "b c"]},
        "UpdateJobQueue": {
            "jobQueue": "trainings",
            "state": "DISABLED",
            "schedulingPolicyArn": f"{_BATCH}:scheduling-policy/shares",
        },
        "UpdateQuotaShare": {"quotaShareArn": _SHARE, "state": "DISABLED"},
        "UpdateSchedulingPolicy": {"arn": f"{_BATCH}:scheduling-policy/shares"},
        "UpdateServiceEnvironment": {"serviceEnvironment": "training", "state": "DISABLED"},
        "UpdateServiceJob": {"jobId": "1-2-3", "schedulingPriority": 7},
    },
    "cloudformation": {
        "CreateChangeSet": {
            "StackName": "Spotkeep-Jobs",
            "ChangeSetName": "cdk-deploy-change-set",
            "TemplateURL": f"https://s3.{REGION}.amazonaws.com/assets/a%20b.json",
            "RoleARN": ROLE,
            "Parameters": [{"ParameterKey": "a", "ParameterValue": ""}],
            "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
            "Tags": _TAGS,
        },
        "CreateStack": {"StackName": "a", "TemplateBody": "{}"},
        "DeleteChangeSet": {
            "StackName": _STACK,
            "ChangeSetName": f"arn:aws:cloudformation:{REGION}:{ACCOUNT_ID}:changeSet/cdk/1",
        },
        "DeleteStack": {"StackName": "a", "RoleARN": ROLE},
        "DescribeChangeSet": {"StackName": "a", "ChangeSetName": "cdk", "IncludePropertyValues": True},
        "DescribeEvents": {"StackName": "a"},
        "DescribeStackEvents": {"StackName": _STACK},
        "DescribeStackResources": {"StackName": "a"},
        "DescribeStacks": {"StackName": "a"},
        "ExecuteChangeSet": {"StackName": "a", "ChangeSetName": "cdk", "DisableRollback": False},
        "GetTemplate": {"StackName": "a", "TemplateStage": "Original"},
        "GetTemplateSummary": {"StackName": "a"},
        "ListStackResources": {"StackName": "a"},
        "ListStacks": {"StackStatusFilter": ["CREATE_COMPLETE", "DELETE_FAILED"]},
        "UpdateStack": {"StackName": "a", "TemplateBody": "{}"},
        "UpdateTerminationProtection": {"StackName": "a", "EnableTerminationProtection": True},
    },
    "cloudwatch": {
        "DescribeAlarms": {"AlarmNames": ["a", "b"]},
        "PutMetricAlarm": {
            "AlarmName": "a",
            "ComparisonOperator": "GreaterThanThreshold",
            "EvaluationPeriods": 1,
            "AlarmActions": [_TOPIC],
            "Tags": _TAGS,
        },
        "PutMetricData": {
            "Namespace": "/aws/sagemaker/TrainingJobs",
            "MetricData": [{"MetricName": "loss", "Value": 0.5}],
        },
        "SetAlarmState": {"AlarmName": "a", "StateValue": "OK", "StateReason": "test"},
    },
    "dynamodb": {
        "BatchGetItem": {"RequestItems": {"table": {"Keys": [_KEY]}}},
        "BatchWriteItem": {
            "RequestItems": {"table": [{"PutRequest": {"Item": _ITEM}}, {"DeleteRequest": {"Key": _KEY}}]}
        },
        "CreateTable": {
            "TableName": "table",
            "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "BillingMode": "PAY_PER_REQUEST",
            "Tags": _TAGS,
        },
        "DeleteItem": {"TableName": "table", "Key": _KEY, "ReturnValues": "ALL_OLD"},
        "DeleteTable": {"TableName": "table"},
        "DescribeContinuousBackups": {"TableName": "table"},
        "DescribeTable": {"TableName": "table"},
        "DescribeTimeToLive": {"TableName": "table"},
        "GetItem": {"TableName": "table", "Key": _KEY, "ConsistentRead": True},
        "ListTables": {},
        "PutItem": {"TableName": "table", "Item": _ITEM, "ConditionExpression": "attribute_not_exists(pk)"},
        "Query": {
            "TableName": "table",
            "IndexName": "by-state",
            "KeyConditionExpression": "#s = :s AND begins_with(sk, :k)",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":s": {"S": "Running"}, ":k": {"S": "run"}},
        },
        "Scan": {"TableName": "table", "ProjectionExpression": "pk, state"},
        "TransactGetItems": {"TransactItems": [{"Get": {"TableName": "table", "Key": _KEY}}]},
        "TransactWriteItems": {
            "TransactItems": [
                {"ConditionCheck": {"TableName": "table", "Key": _KEY, "ConditionExpression": "attribute_exists(pk)"}},
                {"Delete": {"TableName": "table", "Key": _KEY}},
                {"Put": {"TableName": "table", "Item": _ITEM}},
                {"Update": {"TableName": "table", "Key": _KEY, "UpdateExpression": "REMOVE x"}},
            ],
            "ClientRequestToken": "once",
        },
        "UpdateItem": {
            "TableName": "table",
            "Key": _KEY,
            "UpdateExpression": "SET #s = :s",
            "ExpressionAttributeNames": {"#s": "state"},
            "ExpressionAttributeValues": {":s": {"S": "Ended"}},
        },
    },
    "ec2": {
        "AttachVolume": {"VolumeId": "vol-1", "InstanceId": "i-1", "Device": "/dev/sdf"},
        "CreateFleet": {
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "3"},
                    "Overrides": [
                        {"InstanceType": "m5.large", "SubnetId": "subnet-1", "Priority": 1.5},
                        {"InstanceType": "m6i.large", "SubnetId": "subnet-2"},
                    ],
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
            "ReplaceUnhealthyInstances": False,
            "Type": "maintain",
            "ClientToken": "once",
            "TagSpecifications": [{"ResourceType": "fleet", "Tags": _TAGS}],
        },
        "CreateLaunchTemplate": {
            "LaunchTemplateName": "spot",
            "ClientToken": "once",
            "LaunchTemplateData": {"ImageId": "ami-1"},
            "TagSpecifications": [{"ResourceType": "launch-template", "Tags": _TAGS}],
        },
        "CreateLaunchTemplateVersion": {
            "LaunchTemplateId": "lt-1",
            "SourceVersion": "1",
            "ClientToken": "once",
            "LaunchTemplateData": {"TagSpecifications": [{"ResourceType": "instance", "Tags": _TAGS}]},
        },
        "CreateSnapshot": {
            "VolumeId": "vol-1",
            "TagSpecifications": [{"ResourceType": "snapshot", "Tags": _TAGS}],
        },
        "CreateTags": {"Resources": ["i-1", "vol-1"], "Tags": _TAGS},
        "CreateVolume": {
            "AvailabilityZone": "eu-west-1a",
            "SnapshotId": "snap-1",
            "Encrypted": True,
            "Size": 8,
            "VolumeType": "gp3",
            "ClientToken": "once",
            "TagSpecifications": [{"ResourceType": "volume", "Tags": _TAGS}],
        },
        "DeleteFleets": {"FleetIds": ["fleet-1-2-3"], "TerminateInstances": True},
        "DeleteLaunchTemplate": {"LaunchTemplateName": "spot"},
        "DeleteLaunchTemplateVersions": {"LaunchTemplateName": "spot", "Versions": ["2", "3"]},
        "DeleteSnapshot": {"SnapshotId": "snap-1"},
        "DeleteTags": {"Resources": ["i-1"], "Tags": [{"Key": "drill", "Value": "1"}, {"Key": "other"}]},
        "DeleteVolume": {"VolumeId": "vol-1"},
        "DescribeAvailabilityZones": {},
        "DescribeFleetHistory": {"FleetId": "fleet-1-2-3", "StartTime": "2026-11-23T10:00:00Z"},
        "DescribeFleetInstances": {"FleetId": "fleet-1-2-3"},
        "DescribeFleets": {"Filters": [{"Name": "tag:spotkeep:run", "Values": ["a", "b"]}]},
        "DescribeImages": {"ImageIds": ["ami-1"]},
        "DescribeInstanceTypes": {"InstanceTypes": ["m5.large"]},
        "DescribeInstances": {"InstanceIds": ["i-1", "i-2"], "MaxResults": 5},
        "DescribeLaunchTemplateVersions": {"LaunchTemplateId": "lt-1", "Versions": ["$Default"]},
        "DescribeLaunchTemplates": {"LaunchTemplateIds": ["lt-1"]},
        "AuthorizeSecurityGroupEgress": {"GroupId": "sg-1", "IpPermissions": [{"IpProtocol": "-1"}]},
        "AuthorizeSecurityGroupIngress": {"GroupId": "sg-1", "IpPermissions": [{"IpProtocol": "-1"}]},
        "CreateNetworkInterface": {"SubnetId": "subnet-1", "Groups": ["sg-1"], "ClientToken": "once"},
        "CreatePlacementGroup": {"GroupName": "close", "Strategy": "cluster"},
        "CreateSecurityGroup": {"GroupName": "nodes", "Description": "nodes", "VpcId": "vpc-1"},
        "DeleteNetworkInterface": {"NetworkInterfaceId": "eni-1"},
        "DescribeNetworkInterfaces": {"NetworkInterfaceIds": ["eni-1"]},
        "DescribePlacementGroups": {"GroupNames": ["close"]},
        "DescribeRouteTables": {"Filters": [{"Name": "vpc-id", "Values": ["vpc-1"]}]},
        "DescribeSecurityGroups": {"GroupIds": ["sg-1"]},
        "DescribeSnapshots": {"OwnerIds": ["self"]},
        "DescribeSpotPriceHistory": {"InstanceTypes": ["m5.large"], "ProductDescriptions": ["Linux/UNIX"]},
        "DescribeSubnets": {"SubnetIds": ["subnet-1"]},
        "DescribeTags": {"Filters": [{"Name": "resource-id", "Values": ["i-1"]}]},
        "DescribeVolumes": {"VolumeIds": ["vol-1"]},
        "DescribeVpcEndpoints": {},
        "DescribeVpcs": {"VpcIds": ["vpc-1"]},
        "DetachVolume": {"VolumeId": "vol-1", "InstanceId": "i-1"},
        "GetConsoleOutput": {"InstanceId": "i-1"},
        "GetSpotPlacementScores": {"TargetCapacity": 1, "InstanceTypes": ["m5.large"]},
        "RebootInstances": {"InstanceIds": ["i-1"]},
        "RevokeSecurityGroupIngress": {"GroupId": "sg-1", "IpPermissions": [{"IpProtocol": "-1"}]},
        "StopInstances": {"InstanceIds": ["i-1"]},
        "TerminateInstances": {"InstanceIds": ["i-1", "i-2"]},
    },
    "ecr": {"GetAuthorizationToken": {}},
    "events": {
        "DeleteRule": {"Name": "a"},
        "DescribeRule": {"Name": "a", "EventBusName": "bus"},
        "ListRules": {},
        "ListTargetsByRule": {"Rule": "a"},
        "PutEvents": {
            "Entries": [
                {"Source": "spotkeep.agent", "DetailType": "Spotkeep Instance Change", "Detail": "{}"},
                {"Source": "other", "DetailType": "x", "Detail": "{}", "EventBusName": "bus"},
            ]
        },
        "PutRule": {"Name": "a", "EventPattern": '{"source": ["aws.ec2"]}', "RoleArn": ROLE, "Tags": _TAGS},
        "PutTargets": {"Rule": "a", "Targets": [{"Id": "1", "Arn": _TOPIC, "RoleArn": ROLE}]},
        "RemoveTargets": {"Rule": "a", "Ids": ["1"]},
    },
    "fis": {
        "CreateExperimentTemplate": {
            "clientToken": "once",
            "description": "drill",
            "stopConditions": [{"source": "none"}],
            "targets": {"one": {"resourceType": "aws:ec2:spot-instance", "selectionMode": "COUNT(1)"}},
            "actions": {
                "interrupt": {
                    "actionId": "aws:ec2:send-spot-instance-interruptions",
                    "targets": {"SpotInstances": "one"},
                }
            },
            "roleArn": ROLE,
            "tags": {"a": "b"},
        },
        "GetExperiment": {"id": "EXP1"},
        "StartExperiment": {"clientToken": "once", "experimentTemplateId": "EXT1", "tags": {"a": "b"}},
    },
    "iam": {
        "AddRoleToInstanceProfile": {"InstanceProfileName": "p", "RoleName": "r"},
        "AttachRolePolicy": {"RoleName": "r", "PolicyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"},
        "AttachUserPolicy": {"UserName": "u", "PolicyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"},
        "CreateInstanceProfile": {"InstanceProfileName": "p", "Tags": _TAGS},
        "CreateRole": {
            "RoleName": "r",
            "Path": "/a/b/",
            "AssumeRolePolicyDocument": '{"Version": "2012-10-17"}',
            "PermissionsBoundary": f"arn:aws:iam::{ACCOUNT_ID}:policy/boundary",
            "Tags": _TAGS,
        },
        "DeleteRole": {"RoleName": "r"},
        "DeleteRolePolicy": {"RoleName": "r", "PolicyName": "p"},
        "DeleteUserPolicy": {"UserName": "u", "PolicyName": "p"},
        "DetachRolePolicy": {"RoleName": "r", "PolicyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"},
        "GetInstanceProfile": {"InstanceProfileName": "p"},
        "GetRole": {"RoleName": "r"},
        "GetRolePolicy": {"RoleName": "r", "PolicyName": "p"},
        "ListAttachedRolePolicies": {"RoleName": "r"},
        "ListRolePolicies": {"RoleName": "r"},
        "PutRolePolicy": {"RoleName": "r", "PolicyName": "p", "PolicyDocument": "{}"},
        "PutUserPolicy": {"UserName": "u", "PolicyName": "p", "PolicyDocument": "{}"},
        "SimulatePrincipalPolicy": {"PolicySourceArn": ROLE, "ActionNames": ["s3:GetObject"]},
        "UpdateAssumeRolePolicy": {"RoleName": "r", "PolicyDocument": "{}"},
    },
    "kms": {
        "Decrypt": {"KeyId": "k", "EncryptionContext": {"a": "b"}},
        "DescribeKey": {"KeyId": "alias/a"},
        "Encrypt": {"KeyId": "k", "EncryptionContext": {"a": "b"}},
        "GenerateDataKey": {"KeyId": "k", "KeySpec": "AES_256"},
        "GenerateDataKeyWithoutPlaintext": {"KeyId": "k", "KeySpec": "AES_256"},
    },
    "lambda": {
        "CreateFunction": {
            "FunctionName": "f",
            "Role": ROLE,
            "Code": {"S3Bucket": "bucket", "S3Key": "a.zip"},
            "Layers": [f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:layer:l:1"],
            "VpcConfig": {"SubnetIds": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
            "Tags": {"a": "b"},
        },
        "DeleteFunction": {"FunctionName": "f"},
        "GetFunction": {"FunctionName": "f"},
        "GetFunctionConfiguration": {"FunctionName": "f"},
        "GetFunctionUrlConfig": {"FunctionName": "f"},
        "GetPolicy": {"FunctionName": "f"},
        "Invoke": {"FunctionName": f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:f", "Qualifier": "live"},
        INVOKE_BY_URL: {"UrlId": "abc"},
        "ListFunctions": {"MaxItems": 50},
        "ListTags": {"Resource": f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:f"},
        "PublishLayerVersion": {"LayerName": "l", "Content": {"S3Bucket": "bucket", "S3Key": "l.zip"}},
        "UpdateFunctionCode": {"FunctionName": "f", "S3Bucket": "bucket", "S3Key": "f.zip"},
    },
    "logs": {
        "CreateLogGroup": {**_GROUP, "tags": {"team": "a"}},
        "CreateLogStream": _STREAM,
        "DeleteLogGroup": _GROUP,
        "DeleteLogStream": _STREAM,
        "DescribeLogGroups": {"logGroupNamePrefix": "/aws"},
        "DescribeLogStreams": {**_GROUP, "logStreamNamePrefix": "a/"},
        "FilterLogEvents": {**_GROUP, "logStreamNames": ["a/algo-1"], "filterPattern": "spotkeep"},
        "GetLogEvents": {**_STREAM, "startFromHead": True},
        "PutLogEvents": {**_STREAM, "logEvents": [{"timestamp": 1, "message": "ü"}]},
        "PutRetentionPolicy": {**_GROUP, "retentionInDays": 7},
    },
    "pricing": {"GetProducts": {"ServiceCode": "AmazonEC2"}},
    "s3": {
        "AbortMultipartUpload": {**_OBJECT, "UploadId": "u"},
        "CompleteMultipartUpload": {**_OBJECT, "UploadId": "u", "IfNoneMatch": "*"},
        "CopyObject": {**_OBJECT, "CopySource": "other/a.pt?versionId=3", "TaggingDirective": "REPLACE"},
        "CreateBucket": {"Bucket": "bucket"},
        "CreateMultipartUpload": {**_OBJECT, "ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "k"},
        "DeleteBucket": {"Bucket": "bucket"},
        "DeleteBucketPolicy": {"Bucket": "bucket"},
        "DeleteObject": _OBJECT,
        "DeleteObjectTagging": {**_OBJECT, "VersionId": "3"},
        "DeleteObjects": {
            "Bucket": "bucket",
            "Delete": {"Objects": [{"Key": "a <&> b"}, {"Key": "c", "VersionId": "3"}], "Quiet": True},
        },
        "GetBucketAcl": {"Bucket": "bucket"},
        "GetBucketEncryption": {"Bucket": "bucket"},
        "GetBucketLifecycleConfiguration": {"Bucket": "bucket"},
        "GetBucketLocation": {"Bucket": "bucket"},
        "GetBucketNotificationConfiguration": {"Bucket": "bucket"},
        "GetBucketPolicy": {"Bucket": "bucket"},
        "GetBucketTagging": {"Bucket": "bucket"},
        "GetBucketVersioning": {"Bucket": "bucket"},
        "GetObject": {**_OBJECT, "VersionId": "3", "Range": "bytes=0-1"},
        "GetObjectTagging": _OBJECT,
        "GetPublicAccessBlock": {"Bucket": "bucket"},
        "HeadBucket": {"Bucket": "bucket"},
        "HeadObject": _OBJECT,
        "ListBuckets": {},
        "ListMultipartUploads": {"Bucket": "bucket", "Prefix": "runs/"},
        "ListObjectVersions": {"Bucket": "bucket", "Prefix": "runs/"},
        "ListObjects": {"Bucket": "bucket", "Prefix": ""},
        "ListObjectsV2": {"Bucket": "bucket", "Prefix": "runs/a b/", "Delimiter": "/", "MaxKeys": 2},
        "ListParts": {**_OBJECT, "UploadId": "u"},
        "PutBucketEncryption": {
            "Bucket": "bucket",
            "ServerSideEncryptionConfiguration": {
                "Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]
            },
        },
        "PutBucketLifecycleConfiguration": {
            "Bucket": "bucket",
            "LifecycleConfiguration": {"Rules": [{"ID": "a", "Status": "Enabled", "Filter": {"Prefix": "x"}}]},
        },
        "PutBucketNotificationConfiguration": {
            "Bucket": "bucket",
            "NotificationConfiguration": {"EventBridgeConfiguration": {}},
        },
        "PutBucketPolicy": {"Bucket": "bucket", "Policy": "{}"},
        "PutBucketTagging": {"Bucket": "bucket", "Tagging": {"TagSet": _TAGS}},
        "PutBucketVersioning": {"Bucket": "bucket", "VersioningConfiguration": {"Status": "Enabled"}},
        "PutObject": {
            **_OBJECT,
            "Metadata": {"sha": "x"},
            "Tagging": "a=1&b=2",
            "ACL": "private",
            "ObjectLockMode": "GOVERNANCE",
            "ObjectLockLegalHoldStatus": "ON",
            "BucketKeyEnabled": True,
        },
        "PutObjectTagging": {**_OBJECT, "Tagging": {"TagSet": _TAGS}},
        "PutPublicAccessBlock": {
            "Bucket": "bucket",
            "PublicAccessBlockConfiguration": {"BlockPublicAcls": True},
        },
        "UploadPart": {**_OBJECT, "UploadId": "u", "PartNumber": 2},
        "UploadPartCopy": {**_OBJECT, "UploadId": "u", "PartNumber": 2, "CopySource": "other/a"},
    },
    "sagemaker": {
        "AddTags": {"ResourceArn": _JOB_ARN, "Tags": _TAGS},
        "CreateTrainingJob": {
            **_JOB,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
                "TrainingInputMode": "File",
            },
            "RoleArn": ROLE,
            "OutputDataConfig": {"S3OutputPath": "s3://bucket/x", "KmsKeyId": "k"},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 5,
                "KeepAlivePeriodInSeconds": 600,
                "VolumeKmsKeyId": "k",
            },
            "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
            "InputDataConfig": [
                {
                    "ChannelName": "data",
                    "DataSource": {
                        "FileSystemDataSource": {
                            "FileSystemId": "fs-12345678901",
                            "FileSystemAccessMode": "ro",
                            "FileSystemType": "EFS",
                            "DirectoryPath": "/data",
                        }
                    },
                }
            ],
            "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
            "EnableNetworkIsolation": False,
            "RemoteDebugConfig": {"EnableRemoteDebug": True},
            "Tags": _TAGS,
        },
        "DeleteTags": {"ResourceArn": _JOB_ARN, "TagKeys": ["a"]},
        "DescribeTrainingJob": _JOB,
        "ListTags": {"ResourceArn": _JOB_ARN},
        "ListTrainingJobs": {"MaxResults": 5},
        "Search": {"Resource": "TrainingJob"},
        "StopTrainingJob": _JOB,
        "UpdateTrainingJob": {**_JOB, "ResourceConfig": {"KeepAlivePeriodInSeconds": 0}},
    },
    "scheduler": {
        "CreateSchedule": {
            "Name": "reminder",
            "GroupName": "pools",
            "ClientToken": "once",
            "ScheduleExpression": "at(2026-11-23T10:00:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": _TOPIC, "RoleArn": ROLE},
        },
        "CreateScheduleGroup": {"Name": "pools", "ClientToken": "once", "Tags": _TAGS},
        "DeleteSchedule": {"Name": "reminder", "GroupName": "pools", "ClientToken": "once"},
        "DeleteScheduleGroup": {"Name": "pools", "ClientToken": "once"},
        "GetSchedule": {"Name": "reminder", "GroupName": "pools"},
        "GetScheduleGroup": {"Name": "pools"},
        "ListSchedules": {"GroupName": "pools"},
        "UpdateSchedule": {
            "Name": "reminder",
            "ClientToken": "once",
            "ScheduleExpression": "at(2026-11-23T10:00:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": _TOPIC, "RoleArn": ROLE},
        },
    },
    "secretsmanager": {
        "CreateSecret": {"Name": "hook", "SecretString": "a", "KmsKeyId": "alias/a", "Tags": _TAGS, **_ONCE},
        "DeleteSecret": {"SecretId": "hook", "RecoveryWindowInDays": 7},
        "DescribeSecret": {"SecretId": "hook"},
        "PutSecretValue": {"SecretId": "hook", "SecretString": "b", **_ONCE},
        "RestoreSecret": {"SecretId": "hook"},
        "GetSecretValue": {"SecretId": "hook", "VersionStage": "AWSCURRENT"},
    },
    "efs": {
        "CreateFileSystem": {"Tags": _TAGS, "CreationToken": "once"},
        "CreateMountTarget": {"FileSystemId": "fs-0123abcd", "SubnetId": "subnet-0123abcd"},
        "DeleteFileSystem": {"FileSystemId": "fs-0123abcd"},
        "DescribeMountTargetSecurityGroups": {"MountTargetId": "fsmt-0123abcd"},
        "DescribeMountTargets": {"FileSystemId": "fs-0123abcd"},
    },
    "fsx": {
        "CreateFileSystem": {"FileSystemType": "LUSTRE", "SubnetIds": ["subnet-0123abcd"], "Tags": _TAGS, **_ONCE},
        "DeleteFileSystem": {"FileSystemId": "fs-0123abcd", **_ONCE},
        "DescribeFileSystems": {"FileSystemIds": ["fs-0123abcd"]},
    },
    "service-quotas": {"ListServiceQuotas": {"ServiceCode": "sagemaker"}},
    "sns": {
        "CreateTopic": {"Name": "topic", "Tags": _TAGS},
        "DeleteTopic": {"TopicArn": _TOPIC},
        "GetTopicAttributes": {"TopicArn": _TOPIC},
        "ListSubscriptionsByTopic": {"TopicArn": _TOPIC},
        "ListTopics": {},
        "Publish": {
            "TopicArn": _TOPIC,
            "Message": "m",
            "MessageAttributes": {"run": {"DataType": "String", "StringValue": "a"}},
        },
        "SetTopicAttributes": {"TopicArn": _TOPIC, "AttributeName": "DisplayName", "AttributeValue": "a"},
        "Subscribe": {
            "TopicArn": _TOPIC,
            "Protocol": "sqs",
            "Endpoint": f"arn:aws:sqs:{REGION}:{ACCOUNT_ID}:queue",
            "Attributes": {"RawMessageDelivery": "true"},
            "ReturnSubscriptionArn": True,
        },
        "Unsubscribe": {"SubscriptionArn": f"{_TOPIC}:1-2-3"},
    },
    "sqs": {
        "ChangeMessageVisibility": {"QueueUrl": _URL, "ReceiptHandle": "r", "VisibilityTimeout": 0},
        "CreateQueue": {"QueueName": "queue", "tags": {"a": "b"}},
        "DeleteMessage": {"QueueUrl": _URL, "ReceiptHandle": "r"},
        "DeleteMessageBatch": {"QueueUrl": _URL, "Entries": [{"Id": "1", "ReceiptHandle": "r"}]},
        "DeleteQueue": {"QueueUrl": _URL},
        "GetQueueAttributes": {"QueueUrl": _URL, "AttributeNames": ["QueueArn"]},
        "GetQueueUrl": {"QueueName": "queue"},
        "ListQueues": {"QueueNamePrefix": "q"},
        "PurgeQueue": {"QueueUrl": _URL},
        "ReceiveMessage": {"QueueUrl": _URL, "WaitTimeSeconds": 1},
        "SendMessage": {"QueueUrl": _URL, "MessageBody": "m"},
        "SendMessageBatch": {"QueueUrl": _URL, "Entries": [{"Id": "1", "MessageBody": "m"}]},
        "SetQueueAttributes": {"QueueUrl": _URL, "Attributes": {"VisibilityTimeout": "1"}},
    },
    "ssm": {
        "DeleteParameter": {"Name": "/a/b"},
        "GetParameter": {"Name": "/cdk-bootstrap/hnb659fds/version", "WithDecryption": True},
        "GetParameters": {"Names": ["a", "/b/c"]},
        "PutParameter": {"Name": "/a/b", "Value": "1", "Type": "SecureString", "KeyId": "k", "Tags": _TAGS},
        "StartSession": {
            "Target": "i-0123456789abcdef0",
            "DocumentName": "AWS-StartInteractiveCommand",
            "Parameters": {"command": ["nvidia-smi"]},
        },
    },
    "sts": {
        "AssumeRole": {
            "RoleArn": ROLE,
            "RoleSessionName": "run-a",
            "DurationSeconds": 900,
            "Tags": _TAGS,
            "TransitiveTagKeys": ["Name"],
            "SourceIdentity": "someone",
        },
        "GetCallerIdentity": {},
    },
}
"""For each service, by botocore's names: its operations, each with parameters."""

CONTENT: Final[dict[str, dict[str, Any]]] = {
    "CompleteMultipartUpload": {"MultipartUpload": {"Parts": [{"ETag": "e", "PartNumber": 1}]}},
    "Decrypt": {"CiphertextBlob": b"content"},
    "Encrypt": {"Plaintext": b"content"},
    "PutObject": {"Body": b"content"},
    "UploadPart": {"Body": b"content"},
}
"""What operations are sent with beside those parameters: no permission depends on it."""


@functools.cache
def client(service: str) -> BaseClient:
    """Return a client whose requests go nowhere."""
    made: BaseClient = with_shared_models(Session()).create_client(
        service,
        region_name=REGION,
        aws_access_key_id="AKIAEXAMPLE",
        aws_secret_access_key="secret",
        endpoint_url="http://127.0.0.1:4566",
        config=Config(s3={"addressing_style": "path"}),
    )
    return made


def sent(service: str, operation: str, parameters: dict[str, Any]) -> HttpRequest:
    """Return the request that boto3 sends."""
    caught: list[AWSPreparedRequest] = []

    class _CaughtError(Exception):
        pass

    def catch(request: AWSPreparedRequest, **_: object) -> None:
        caught.append(request)
        raise _CaughtError

    calling = client(service)
    calling.meta.events.register_first("before-send", catch)
    try:
        getattr(calling, xform_name(operation))(**parameters)
    except _CaughtError:
        return received(caught[0])
    finally:
        calling.meta.events.unregister("before-send", catch)
    raise AssertionError(f"{service} sent no {operation}")


def received(request: AWSPreparedRequest) -> HttpRequest:
    """Return a request as the local AWS receives it."""
    address = urlsplit(request.url)
    headers = {
        name.lower(): value.decode("latin-1") if isinstance(value, bytes) else value
        for name, value in request.headers.items()
    }
    # What boto3 streams is the content of an object.
    body = request.body.encode() if isinstance(request.body, str) else request.body
    return HttpRequest(
        method=request.method,
        path=address.path,
        headers=headers,
        body=body if isinstance(body, bytes) else b"",
        query=parse_qs(address.query, keep_blank_values=True),
    )
