"""What a request may hold and how services answer, shown with SageMaker's model, FIS's REST and the control plane."""

import json

import pytest

from spotkeep_local.service_base.aws_service import (
    AwsService,
    HttpRequest,
    JsonProtocol,
    RestJsonProtocol,
    SerializationError,
    ServiceError,
    ValidationError,
    control_service,
)

SAGEMAKER = JsonProtocol("sagemaker", target="SageMaker")
SMALLEST = {
    "TrainingJobName": "job",
    "AlgorithmSpecification": {"TrainingInputMode": "File"},
    "RoleArn": "arn:aws:iam::000000000000:role/training-role",
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
}


def parse(operation="CreateTrainingJob", /, **request):
    return parse_body(json.dumps(request).encode(), operation)


def parse_body(body, operation="CreateTrainingJob"):
    return SAGEMAKER.parameters(operation, HttpRequest(body=body))


def answer_of(service, target, body=b"{}"):
    status, headers, answer = service.answer(HttpRequest(headers={"x-amz-target": target}, body=body))
    return status, headers.get("x-amzn-errortype"), json.loads(answer)


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
        parse_body(body)


def test_letters_of_any_script_are_fine_in_tags():
    request = SMALLEST | {"Tags": [{"Key": "Équipe", "Value": "données 1"}]}
    assert parse(**request) == request


def test_an_answer_holds_what_the_model_knows_and_no_nothing():
    answer = SAGEMAKER.answer("DescribeTrainingJob", {"TrainingJobName": "job", "FailureReason": None, "New": 1})
    assert json.loads(answer[2]) == {"TrainingJobName": "job"}


@pytest.mark.parametrize("target", ["SageMaker.CreateEndpoint", "SageMaker", "Other.StopTrainingJob", ""])
def test_an_operation_outside_the_table_is_refused_by_name(target):
    service = AwsService(SAGEMAKER, {"StopTrainingJob": lambda _: {}})
    status, code, answer = answer_of(service, target)
    assert (status, code, answer["__type"]) == (400, "UnknownOperationException", "UnknownOperationException")


def test_an_operation_that_is_not_admitted_is_not_read():
    def refuse(operation):
        raise ServiceError(f"{operation} comes too early", code="ServiceUnavailable", status=503)

    service = AwsService(SAGEMAKER, {"StopTrainingJob": lambda _: {}}, admit=refuse)
    status, code, answer = answer_of(service, "SageMaker.StopTrainingJob", b"{")
    assert (status, code, answer["message"]) == (503, "ServiceUnavailable", "StopTrainingJob comes too early")


def test_rest_parameters_come_from_path_and_body():
    fis = RestJsonProtocol("fis")
    get = HttpRequest(method="GET", path="/experimentTemplates/EXT1%2D2")
    assert fis.operation(get) == "GetExperimentTemplate"
    assert fis.parameters("GetExperimentTemplate", get) == {"id": "EXT1-2"}
    change = HttpRequest(method="PATCH", path="/experimentTemplates/EXT1", body=b'{"description": "d"}')
    assert fis.parameters(fis.operation(change), change) == {"id": "EXT1", "description": "d"}
    with pytest.raises(ServiceError, match="the local AWS has no PATCH /experiments"):
        fis.operation(HttpRequest(method="PATCH", path="/experiments"))


def test_what_the_control_plane_finds_wrong_is_a_refusal():
    def count(request):
        return {"twice": 2 * int(request["number"])}

    service = control_service("Control", {"Count": count})
    assert answer_of(service, "Control.Count", b'{"number": 3}') == (200, None, {"twice": 6})
    status, code, answer = answer_of(service, "Control.Count", b'{"number": "three"}')
    assert (status, code) == (400, "ValidationException")
    assert "three" in answer["message"]
