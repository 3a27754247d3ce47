"""What an unsure AWS does to a call of a function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from tests.models import unsureness
from tests.models.account import Account
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Process
from tests.models.sagemaker import REPLICA_LAG_SECONDS
from tests.models.unsureness import Unsureness

KEY = {"pk": {"S": "run#a"}, "sk": {"S": "item"}}
BY_STATE = {
    "TableName": "runs",
    "KeyConditionExpression": "pk = :pk AND begins_with(sk, :sk)",
    "ExpressionAttributeValues": {":pk": {"S": "run#a"}, ":sk": {"S": ""}},
}


def invoked(account: Account, work: Callable[[], object]) -> Process:
    process = Process("launcher", work, began=account.seconds, timeout=60, skew=0)
    process.go_on()
    return process


def put(account: Account) -> object:
    return account.put_item(TableName="runs", Item=KEY)


def always(monkeypatch: pytest.MonkeyPatch, share: str) -> Unsureness:
    """An AWS to whose every call the same happens."""
    monkeypatch.setattr(unsureness, "THROTTLED_SHARE", float(share == "throttled"))
    monkeypatch.setattr(unsureness, "LOST_SHARE", float(share == "lost"))
    return Unsureness(1)


def test_a_throttled_call_has_no_effect_and_its_services_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    account = Account()
    account.unsureness = always(monkeypatch, "throttled")
    error = invoked(account, lambda: put(account)).error
    assert isinstance(error, ClientError)
    assert error.response["Error"]["Code"] == "ProvisionedThroughputExceededException"
    assert not account.dynamodb.items
    assert account.unsureness.met == {"throttled: dynamodb": 1}


def test_an_answer_is_lost_after_the_call_took_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []
    unsure = always(monkeypatch, "lost")
    for _ in range(20):
        account = Account()
        account.unsureness = unsure
        errors.append(invoked(account, lambda account=account: put(account)).error)
        assert account.dynamodb.items
    assert {type(error) for error in errors} == {ClientError, ReadTimeoutError}
    answers = [error.response for error in errors if isinstance(error, ClientError)]
    assert {answer["Error"]["Code"] for answer in answers} == {"InternalServerError"}
    assert {answer["ResponseMetadata"]["HTTPStatusCode"] for answer in answers} == {500}


def test_only_consistent_reads_of_dynamodb_see_what_was_just_written() -> None:
    dynamodb = InMemoryDynamoDb()
    dynamodb.let_indexes_lag()
    dynamodb.put_item(TableName="runs", Item=KEY)

    def found(*, consistent: bool) -> tuple[bool, int]:
        item = dynamodb.get_item(TableName="runs", Key=KEY, ConsistentRead=consistent)
        return "Item" in item, len(dynamodb.query(**BY_STATE, ConsistentRead=consistent)["Items"])

    assert found(consistent=True) == (True, 1)
    assert found(consistent=False) == (False, 0)
    dynamodb.let_indexes_catch_up()
    assert found(consistent=False) == (True, 1)


def test_the_tags_of_a_new_job_come_late() -> None:
    account = Account()
    account.replicas_lag = True
    account.is_made_by_hand("new-1", tags={"spotkeep:deployment": "a"})
    arn = account.jobs["new-1"].arn
    assert account.list_tags(ResourceArn=arn, MaxResults=10) == {"Tags": []}
    account.seconds += REPLICA_LAG_SECONDS
    assert account.list_tags(ResourceArn=arn, MaxResults=10)["Tags"]
