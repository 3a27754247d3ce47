import json

import pytest

from spotkeep_local.training.api_model import parse_request, shape_answer
from spotkeep_local.training.errors import SerializationError, ValidationError

SMALLEST = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/training-role",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
}


def parse(operation="CreateTrainingJob", /, **request):
    return parse_request(operation, json.dumps(request).encode())


def test_a_request_that_fits_comes_back_as_it_is():
    assert parse(**SMALLEST) == SMALLEST


def test_times_come_back_as_epoch_seconds():
    request = parse("ListTrainingJobs", CreationTimeAfter="2026-11-21T00:00:00Z", CreationTimeBefore=1.5)
    assert request == {"CreationTimeAfter": 1795219200.0, "CreationTimeBefore": 1.5}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"TrainingJobName": "-no"}, "satisfy regular expression pattern"),
        ({"TrainingJobName": "n" * 64}, "have length less than or equal to 63"),
        ({"AlgorithmSpecification": {"TrainingInputMode": "Fast"}}, "satisfy enum value set: [Pipe, File"),
        ({"AlgorithmSpecification": {}}, "'algorithmSpecification.trainingInputMode' failed to satisfy"),
        ({"OutputDataConfig": None}, "Value null at 'outputDataConfig'"),
        ({"Environment": {"1x": "y"}}, "'environment key'"),
        ({"Tags": [{"Key": "a" * 129, "Value": ""}]}, "'tags.1.member.key'"),
        ({"StoppingCondition": {"MaxRuntimeInSeconds": 0}}, "have value greater than or equal to 1"),
        ({"Colour": "blue"}, "'colour' is not a parameter"),
    ],
)
def test_each_constraint_of_the_model_is_enforced(change, problem):
    with pytest.raises(ValidationError) as refused:
        parse(**SMALLEST | change)
    assert problem in str(refused.value)


def test_all_problems_are_counted_and_named():
    with pytest.raises(ValidationError, match=r"^3 validation errors detected: "):
        parse(**SMALLEST | {"TrainingJobName": "-", "RoleArn": "a-role-without-an-arn", "Colour": "blue"})


@pytest.mark.parametrize("body", [b"{", b"[]", b'"text"', b'{"TrainingJobName": 3}', b'{"Tags": {}}'])
def test_what_is_no_such_document_is_a_serialization_error(body):
    with pytest.raises(SerializationError):
        parse_request("CreateTrainingJob", body)


def test_letters_of_any_script_are_fine_in_tags():
    request = SMALLEST | {"Tags": [{"Key": "Équipe", "Value": "données 1"}]}
    assert parse(**request) == request


def test_an_answer_holds_what_the_model_knows_and_no_nothing():
    answer = shape_answer("DescribeTrainingJob", {"TrainingJobName": "job", "FailureReason": None, "New": 1})
    assert answer == {"TrainingJobName": "job"}
