"""The run table: paid by use, restorable, forgetful of old runs, with the two indexes that readers use."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .conftest import Templates


def test_it_is_paid_by_use_restorable_to_any_second_and_forgets_ended_runs(templates: Templates) -> None:
    table = templates.only("AWS::DynamoDB::Table")
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}


def test_its_indexes_hold_whole_items(templates: Templates) -> None:
    table = templates.only("AWS::DynamoDB::Table")
    indexes = {
        index["IndexName"]: ([key["AttributeName"] for key in index["KeySchema"]], index["Projection"])
        for index in table["GlobalSecondaryIndexes"]
    }
    assert indexes == {
        "by-created": (["listing", "created_at"], {"ProjectionType": "ALL"}),
        "in-flight": (["in_flight", "updated_at"], {"ProjectionType": "ALL"}),
    }
    assert {attribute["AttributeType"] for attribute in table["AttributeDefinitions"]} == {"S"}
    assert "StreamSpecification" not in table


def test_it_refuses_to_be_deleted_while_data_is_kept(
    templates: Templates, templates_with_everything: Templates
) -> None:
    assert templates.only("AWS::DynamoDB::Table")["DeletionProtectionEnabled"] is True
    assert templates_with_everything.only("AWS::DynamoDB::Table")["DeletionProtectionEnabled"] is False


def test_its_name_is_left_to_aws_so_that_a_kept_table_is_not_in_the_way(templates: Templates) -> None:
    assert "TableName" not in templates.only("AWS::DynamoDB::Table")
    assert all("BucketName" not in bucket["Properties"] for bucket in templates.resources("AWS::S3::Bucket").values())
