"""The checkpoint bucket: nothing readable without its key, nothing reachable without TLS, nothing lost by accident."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .conftest import Templates

BUCKET = "CheckpointsBucket"


def rules_of(bucket: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule["Id"]: rule for rule in bucket["LifecycleConfiguration"]["Rules"]}


def test_objects_are_encrypted_with_a_key_that_rotates(templates: Templates) -> None:
    bucket = templates.only("AWS::S3::Bucket", named=BUCKET)
    (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
    assert rule["ServerSideEncryptionByDefault"]["KMSMasterKeyID"] == {"Fn::GetAtt": ["CheckpointsKeyB7C23FB2", "Arn"]}
    assert rule["BucketKeyEnabled"] is True
    assert templates.only("AWS::KMS::Key", stack="Storage")["EnableKeyRotation"] is True


def test_versions_stay_for_a_while_and_unfinished_uploads_do_not(templates: Templates) -> None:
    bucket = templates.only("AWS::S3::Bucket", named=BUCKET)
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    rules = rules_of(bucket)
    assert rules["expire-noncurrent-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert rules["expire-noncurrent-versions"]["ExpiredObjectDeleteMarker"] is True
    assert rules["abort-unfinished-uploads"]["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    assert all(rule["Status"] == "Enabled" for rule in rules.values())


def test_runs_never_expire_unless_a_retention_is_set(
    templates: Templates, templates_with_everything: Templates
) -> None:
    assert "expire-runs" not in rules_of(templates.only("AWS::S3::Bucket", named=BUCKET))
    rules = rules_of(templates_with_everything.only("AWS::S3::Bucket", named=BUCKET)).values()
    expiring = {rule["Prefix"]: rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule}
    assert expiring == dict.fromkeys(("runs/", "sources/", "specs/", "teams/"), 400), "and no bundle"


@pytest.mark.parametrize("name", ["CheckpointsBucket", "CheckpointsAccessLogs"])
def test_nothing_is_public_and_acls_are_off(templates: Templates, name: str) -> None:
    bucket = templates.only("AWS::S3::Bucket", named=name)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert len(bucket["PublicAccessBlockConfiguration"]) == 4
    assert bucket["OwnershipControls"] == {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}


def test_accesses_are_logged_to_a_bucket_that_forgets(templates: Templates) -> None:
    bucket = templates.only("AWS::S3::Bucket", named=BUCKET)
    assert bucket["LoggingConfiguration"]["LogFilePrefix"] == "checkpoints/"
    logs = templates.only("AWS::S3::Bucket", named="CheckpointsAccessLogs")
    assert rules_of(logs)["expire-access-logs"]["ExpirationInDays"] == 90


def test_data_outlives_its_stack_unless_the_setting_says_otherwise(
    templates: Templates, templates_with_everything: Templates
) -> None:
    for kind in ("AWS::S3::Bucket", "AWS::KMS::Key", "AWS::DynamoDB::Table"):
        for resource in templates.resources(kind, stack="Storage").values():
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
        for resource in templates_with_everything.resources(kind, stack="Storage").values():
            assert resource["DeletionPolicy"] == "Delete"
