"""The contract with ministack's internals: it fails here, and says what moved, the day one of them does.

Importing ministack reads the environment and configures logging, so each of these runs in a process of its own.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PRELUDE = """
from spotkeep_local import ministack_seams as seams
from spotkeep_local.errors import IncompatibleMinistackError
from ministack import app
from ministack.core import lambda_runtime, router
from ministack.services import dynamodb, ec2, eventbridge, sqs, ssm
from ministack.services.cloudformation import provisioners

def moved():
    try:
        seams.check()
    except IncompatibleMinistackError as error:
        return str(error)
    return "nothing moved"
"""


def in_a_fresh_process(script: str, state_dir: Path) -> str:
    environment = {
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state_dir),
        "S3_DATA_DIR": str(state_dir / "objects"),
        "DOCKER_HOST": f"unix://{state_dir}/none",
        "TMPDIR": str(state_dir),
        "LOG_LEVEL": "ERROR",
    }
    finished = subprocess.run(
        [sys.executable, "-c", PRELUDE + script], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def test_the_installed_ministack_is_the_one_we_extend(tmp_path: Path) -> None:
    assert in_a_fresh_process("print(moved())", tmp_path) == "nothing moved"


MOVED = [
    ("del app.SERVICE_REGISTRY", "app.SERVICE_REGISTRY no longer maps"),
    ("app.SERVICE_HANDLERS['sqs'] = print", "app.SERVICE_HANDLERS no longer maps"),
    ("router.SERVICE_PATTERNS['sqs'] = {}", "router.SERVICE_PATTERNS no longer routes"),
    ("eventbridge._put_events = lambda data: None", "eventbridge._put_events no longer takes"),
    ("del eventbridge._put_events", "eventbridge._put_events no longer takes"),
    ("del ec2._STUB_AMIS", "ec2._STUB_AMIS no longer lists"),
    ("del ssm._PUBLIC_AMI_PARAMETERS", "ssm._PUBLIC_AMI_PARAMETERS no longer maps"),
    ("dynamodb._transact_write_items = lambda event: None", "dynamodb._transact_write_items no longer takes"),
    ("del dynamodb._txn_token_lookup", "dynamodb._txn_token_lookup is gone"),
    ("del sqs._HOST_EXPLICIT", "sqs._HOST_EXPLICIT is gone"),
    ("del ec2._launch_templates", "ec2._launch_templates is gone"),
    ("app._parse_lambda_url = lambda host, path: None", "app._parse_lambda_url no longer finds"),
    ("del app._handle_lambda_url_request", "app._handle_lambda_url_request no longer answers"),
    ("del lambda_runtime.zipfile", "lambda_runtime.zipfile no longer unpacks"),
    ("lambda_runtime._workers = None", "lambda_runtime._workers no longer holds"),
    ("seams.EXPECTED_VERSION = '9'", "the version is 1.5.33"),
]
ONE_AFTER_THE_OTHER = """
import json
modules = {name: dict(vars(module)) for name, module in globals().copy().items() if hasattr(module, "__file__")}
handlers, patterns = dict(app.SERVICE_HANDLERS), dict(router.SERVICE_PATTERNS)
for change in json.loads(CHANGES):
    exec(change)
    print(moved())
    for name, before in modules.items():
        vars(globals()[name]).update(before)
    app.SERVICE_HANDLERS.update(handlers)
    router.SERVICE_PATTERNS.update(patterns)
"""


def test_a_seam_that_moved_is_named_with_what_to_do(tmp_path: Path) -> None:
    changes = json.dumps([change for change, _ in MOVED])
    answers = in_a_fresh_process(f"CHANGES = {changes!r}\n{ONE_AFTER_THE_OTHER}", tmp_path).splitlines()
    for answer, (_, complaint) in zip(answers, MOVED, strict=True):
        # It alone: what moved before is back.
        assert f" from the inside, but {complaint}" in answer
        assert "adapt ministack_seams.py" in answer


@pytest.mark.long
def test_every_seam_that_moved_is_named_at_once(tmp_path: Path) -> None:
    script = "del app.SERVICE_REGISTRY, ssm._PUBLIC_AMI_PARAMETERS, eventbridge._put_events\nprint(moved())"
    answer = in_a_fresh_process(script, tmp_path)
    assert answer.count(";") == 2


@pytest.mark.long
def test_a_registered_service_is_routed_to(tmp_path: Path) -> None:
    script = """
async def handler(method, path, headers, body, query_params): return 200, {}, b""
seams.register_service("sagemaker", handler=handler, target_prefixes=["SageMaker."], host_patterns=["sagemaker"])
print(router.detect_service("POST", "/", {"x-amz-target": "SageMaker.ListTrainingJobs"}, {}),
      router.detect_service("POST", "/", {"x-amz-target": "AmazonSQS.ListQueues"}, {}),
      app.SERVICE_HANDLERS["sagemaker"] is handler)
"""
    assert in_a_fresh_process(script, tmp_path) == "sagemaker sqs True"


@pytest.mark.long
def test_a_handler_stands_before_ministack_s_own(tmp_path: Path) -> None:
    script = """
theirs = seams.handler_of("ec2")
async def ours(*request): return await theirs(*request)
seams.replace_handler("ec2", ours)
print(app.SERVICE_HANDLERS["ec2"] is ours, seams.handler_of("ec2") is ours)
"""
    assert in_a_fresh_process(script, tmp_path) == "True True"


@pytest.mark.long
def test_a_type_of_resource_is_made_by_whom_we_say(tmp_path: Path) -> None:
    script = """
def create(logical_id, properties, stack_name): return "id-1", {"Arn": "arn"}
def update(physical_id, old, new, stack_name): return physical_id, {"Arn": new["Arn"]}
def delete(physical_id, properties): print("deleted", physical_id)
for name in ("AWS::Test::Thing", "AWS::Test::Other"):
    seams.add_resource_type(name, create=create, update=update, delete=delete)
print(provisioners._provision_resource("AWS::Test::Thing", "Thing", {}, "stack"))
print(provisioners._update_resource("AWS::Test::Thing", "id-1", {"Arn": "a"}, {"Arn": "b"}, "stack", "Thing"))
provisioners._delete_resource("AWS::Test::Thing", "id-1", {})
from ministack.services.cloudformation import stacks
print([stacks._runs_on_worker_thread(name) for name in ("AWS::Test::Thing", "AWS::Test::Other", "AWS::S3::Bucket")])
"""
    assert in_a_fresh_process(script, tmp_path).splitlines() == [
        "('id-1', {'Arn': 'arn'})",
        "('id-1', {'Arn': 'b'})",
        "deleted id-1",
        "[True, True, False]",
    ]


@pytest.mark.long
def test_a_custom_resource_whose_function_may_not_be_invoked_fails(tmp_path: Path) -> None:
    script = """
from ministack.services.cloudformation import custom_resource
custom_resource.invoke_custom_resource = lambda request_type, logical_id, props, stack_name, stack_id: "invoked"
seams.judge_custom_resources(lambda function, stack: (function, stack) == ("ours", "stack-1"))
print(custom_resource.invoke_custom_resource("Create", "Thing", {"ServiceToken": "ours"}, "stack", "stack-1"))
try:
    custom_resource.invoke_custom_resource("Create", "Thing", {"ServiceToken": "theirs"}, "stack", "stack-1")
except PermissionError as error:
    print(error)
custom_resource.invoke_custom_resource = print
try:
    seams.judge_custom_resources(print)
except IncompatibleMinistackError as error:
    print(error)
"""
    invoked, denied, moved = in_a_fresh_process(script, tmp_path).splitlines()
    assert invoked == "invoked"
    assert "not authorized to perform: lambda:InvokeFunction on theirs" in denied
    assert "custom_resource.invoke_custom_resource no longer" in moved


@pytest.mark.long
def test_a_seam_of_function_urls_that_moved_is_named_when_it_is_used(tmp_path: Path) -> None:
    script = """
from ministack.services import lambda_svc
del provisioners._lambda_url_attributes
lambda_svc._build_function_url_event = lambda url_id: {}
for use, argument in ((seams.resolve_function_urls_to, "http://h"), (seams._put_callers_into_events, print)):
    try:
        use(argument)
    except IncompatibleMinistackError as error:
        print(error)
"""
    answer = in_a_fresh_process(script, tmp_path)
    assert "provisioners._lambda_url_attributes no longer" in answer
    assert "lambda_svc._build_function_url_event no longer" in answer


@pytest.mark.long
@pytest.mark.parametrize("name", ["provisioners._RESOURCE_HANDLERS", "stacks._runs_on_worker_thread"])
def test_what_moved_is_named_when_a_type_of_resource_is_added(tmp_path: Path, name: str) -> None:
    script = f"""
from ministack.services.cloudformation import stacks
del {name}
try:
    seams.add_resource_type("AWS::Test::Thing", create=print, update=print, delete=print)
except IncompatibleMinistackError as error:
    print(error)
"""
    assert f"{name} no longer" in in_a_fresh_process(script, tmp_path)


@pytest.mark.long
def test_what_is_slow_is_done_before_the_first_request_and_once(tmp_path: Path) -> None:
    script = """
import asyncio
async def theirs(*request): return "answered"
seams.replace_handler("cloudformation", theirs)
seams.on_first_request("cloudformation", lambda: print("prepared"))
for _ in range(2):
    print(asyncio.run(seams.handler_of("cloudformation")("GET", "/", {}, b"", {})))
"""
    assert in_a_fresh_process(script, tmp_path).split() == ["prepared", "answered", "answered"]


@pytest.mark.long
def test_the_default_subnets_and_launch_templates_are_there_to_be_read(tmp_path: Path) -> None:
    script = """
print(sorted(subnet["AvailabilityZone"] for subnet in seams.subnets() if subnet["DefaultForAz"]))
ec2._create_launch_template({"LaunchTemplateName": ["t"], "LaunchTemplateData.ImageId": ["ami-1"]})
t = seams.launch_template(template_id=None, name="t")
print(t["LaunchTemplateName"], t["Versions"][0]["LaunchTemplateData"])
print(seams.launch_template(template_id="x", name=None))
"""
    assert in_a_fresh_process(script, tmp_path).splitlines() == [
        "['us-east-1a', 'us-east-1b', 'us-east-1c']",
        "t {'ImageId': 'ami-1'}",
        "None",
    ]


@pytest.mark.long
def test_an_event_of_aws_reaches_the_default_bus(tmp_path: Path) -> None:
    script = """
seams.publish_event(source="aws.sagemaker", detail_type="T", detail={"a": 1}, resources=["arn"])
print([(e["Source"], e["DetailType"], e["Detail"], e["Resources"]) for e in eventbridge._events_log_list()])
"""
    assert in_a_fresh_process(script, tmp_path) == str([("aws.sagemaker", "T", '{"a": 1}', ["arn"])])
