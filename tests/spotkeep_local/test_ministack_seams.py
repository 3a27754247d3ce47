"""The contract with ministack's internals: it fails here, and says what moved, the day one of them does.

Importing ministack reads the environment and configures logging, and each test changes what is imported. So a process
of their own has it imported, and a fork of that runs each script.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FORKS = """
import inspect, json, os, sys, traceback
from spotkeep_local import ministack_seams as seams
from spotkeep_local.errors import IncompatibleMinistackError
from ministack import app
from ministack.core import iam_evaluator, lambda_runtime, responses, router
from ministack.services import dynamodb, ec2, eventbridge, iam, kms, lambda_svc, s3, sns, sqs, ssm, sts, tagging
from ministack.services.cloudformation import custom_resource, provisioners, stacks

for line in sys.stdin:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.dup2(writing, 1)
        failed = 0
        try:
            exec(json.loads(line))
        except BaseException:
            traceback.print_exc(file=sys.stdout)
            failed = 1
        sys.stdout.flush()
        os._exit(failed)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    _, status = os.wait()
    print(json.dumps([status, text]), flush=True)
"""
SEAMS = Path(__file__).parents[2] / "local/spotkeep_local/ministack_seams.py"
NAMES = {
    "app.SERVICE_HANDLERS": "dict",
    "app.SERVICE_REGISTRY": "dict",
    "app.app": "(scope, receive, send)",
    "custom_resource.invoke_custom_resource": (
        "(request_type, logical_id, props, stack_name, stack_id, resource_type, physical_id, old_props)"
    ),
    "dynamodb._tables": "AccountRegionScopedDict",
    "dynamodb._transact_write_items": "(data)",
    "dynamodb._txn_token_lookup": "(crt)",
    "ec2._STUB_AMIS": "list",
    "ec2._ensure_defaults_initialized": "()",
    "ec2._launch_templates": "AccountRegionScopedDict",
    "ec2._subnets": "AccountRegionScopedDict",
    "ec2._tags": "AccountRegionScopedDict",
    "eventbridge._invoke_target": "(target, event, rule, view)",
    "eventbridge._put_events": "(data, allow_aws_source)",
    "iam._group_inline_policies": "AccountScopedDict",
    "iam._groups": "AccountScopedDict",
    "iam._instance_profiles": "AccountScopedDict",
    "iam._roles": "AccountScopedDict",
    "iam._user_inline_policies": "AccountScopedDict",
    "iam._users": "AccountScopedDict",
    "iam_evaluator._resolve_managed_policy_document": "(policy_arn, account_id)",
    "iam_evaluator._resource_policy": "(service, resource_arn)",
    "kms._resolve_key": "(key_id_or_arn)",
    "lambda_runtime._lock": "lock",
    "lambda_runtime._workers": "dict",
    "lambda_runtime.execution_credentials": "(config)",
    "lambda_runtime.zipfile": "module",
    "lambda_svc._build_function_url_event": (
        "(url_id, account_id, region, method, path, headers, body, query_params, source_ip, anonymous, trace_root)"
    ),
    "lambda_svc._emit_lambda_logs": "(func, request_id, log_text, error, duration_ms, log_source)",
    "lambda_svc._externalize_code_zip": "(func, referenced)",
    "lambda_svc._internalize_code_zip": "(func, blobs)",
    "lambda_svc._run_sqs_batch": "(esm, func_rec, event, batch, queue_url, queue_name)",
    "lambda_svc.execution_credentials": "(config)",
    "lambda_svc.get_state": "()",
    "lambda_svc.load_persisted_state": "(data)",
    "lambda_svc.resolve_function_url": "(url_id)",
    "provisioners._RESOURCE_HANDLERS": "dict",
    "provisioners._lambda_url_attributes": "(config)",
    "responses._BOTOCORE_NAME": "dict",
    "responses._service_model": "(service)",
    "responses.get_account_id": "()",
    "router.SERVICE_PATTERNS": "dict",
    "router.extract_access_key_id": "(headers, query_params)",
    "s3._bucket_default_sse_headers": "(bucket_name)",
    "s3._bucket_encryption": "AccountScopedDict",
    "s3._buckets": "AccountScopedDict",
    "s3._stored_sse_headers": "(obj)",
    "sns._deliver_to_lambda": "(endpoint, envelope, topic_arn, sub_arn, msg_id, raw_message, message_attributes)",
    "sns._deliver_to_sqs": (
        "(endpoint, envelope, raw, raw_message, message_group_id, message_dedup_id, message_attributes, topic_arn)"
    ),
    "sns._topics": "AccountRegionScopedDict",
    "sqs.DEFAULT_HOST": "str",
    "sqs.DEFAULT_PORT": "str",
    "sqs._CANONICAL_NETLOC": "str",
    "sqs._HOST_EXPLICIT": "bool",
    "sqs._queue_by_arn": "(arn)",
    "ssm._PUBLIC_AMI_PARAMETERS": "dict",
    "ssm._parameters": "AccountRegionScopedDict",
    "stacks._runs_on_worker_thread": "(resource_type)",
    "sts._sessions": "dict",
    "tagging.resource_tags": "(arn)",
}
"""What `ministack_seams` uses of ministack: the parameters of a function, the type of a value."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Runs a script with ministack imported; returns what it prints."""
    state_dir = tmp_path_factory.mktemp("ministack")
    environment = {
        "PERSIST_STATE": "1",
        "STATE_DIR": str(state_dir),
        "S3_DATA_DIR": str(state_dir / "objects"),
        "DOCKER_HOST": f"unix://{state_dir}/none",
        "TMPDIR": str(state_dir),
        "LOG_LEVEL": "ERROR",
    }
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        asked, answered = forks.stdin, forks.stdout

        def run(script: str) -> str:
            print(json.dumps(script), file=asked, flush=True)
            status, text = json.loads(answered.readline())
            assert status == 0, text
            return str(text).strip()

        yield run


def test_the_installed_ministack_is_the_one_we_extend(run: Callable[[str], str]) -> None:
    assert run("seams.check()") == ""
    script = """
seams.EXPECTED_VERSION = "9"
try:
    seams.check()
except IncompatibleMinistackError as error:
    print(error)
"""
    installed = importlib.metadata.version("ministack")
    assert f"but the version is {installed}. Install ministack==9 (`make setup`), or adapt" in run(script)


def names_used() -> set[str]:
    """The names of ministack's that `ministack_seams` uses, such as `app.SERVICE_REGISTRY`."""
    tree = ast.parse(SEAMS.read_text())
    modules = {
        name.asname or name.name: name.name
        for imported in ast.walk(tree)
        if isinstance(imported, ast.ImportFrom) and (imported.module or "").startswith("ministack")
        for name in imported.names
    }
    return {
        f"{modules[used.value.id]}.{used.attr}"
        for used in ast.walk(tree)
        if isinstance(used, ast.Attribute) and isinstance(used.value, ast.Name) and used.value.id in modules
    }


def test_each_name_of_ministack_that_is_used_is_what_it_was(run: Callable[[str], str]) -> None:
    script = f"""
found = {{}}
for name in {sorted(names_used())!r}:
    module, _, attribute = name.partition(".")
    value = getattr(globals()[module], attribute, None)
    of_function = inspect.isroutine(value) and f"({{', '.join(inspect.signature(value).parameters)}})"
    found[name] = of_function or type(value).__name__
print(json.dumps(found))
"""
    assert json.loads(run(script)) == NAMES


def test_a_registered_service_is_routed_to(run: Callable[[str], str]) -> None:
    script = """
async def handler(method, path, headers, body, query_params): return 200, {}, b""
seams.register_service("sagemaker", handler=handler, target_prefixes=["SageMaker."], host_patterns=["sagemaker"])
print(router.detect_service("POST", "/", {"x-amz-target": "SageMaker.ListTrainingJobs"}, {}),
      router.detect_service("POST", "/", {"x-amz-target": "AmazonSQS.ListQueues"}, {}),
      app.SERVICE_HANDLERS["sagemaker"] is handler)
"""
    assert run(script) == "sagemaker sqs True"


def test_a_handler_stands_before_ministack_s_own(run: Callable[[str], str]) -> None:
    script = """
theirs = seams.handler_of("ec2")
async def ours(*request): return await theirs(*request)
seams.replace_handler("ec2", ours)
print(app.SERVICE_HANDLERS["ec2"] is ours, seams.handler_of("ec2") is ours)
"""
    assert run(script) == "True True"


def test_a_type_of_resource_is_made_by_whom_we_say(run: Callable[[str], str]) -> None:
    script = """
def create(logical_id, properties, stack_name): return "id-1", {"Arn": "arn"}
def update(physical_id, old, new, stack_name): return physical_id, {"Arn": new["Arn"]}
def delete(physical_id, properties): print("deleted", physical_id)
for name in ("AWS::Test::Thing", "AWS::Test::Other"):
    seams.add_resource_type(name, create=create, update=update, delete=delete)
print(provisioners._provision_resource("AWS::Test::Thing", "Thing", {}, "stack"))
print(provisioners._update_resource("AWS::Test::Thing", "id-1", {"Arn": "a"}, {"Arn": "b"}, "stack", "Thing"))
provisioners._delete_resource("AWS::Test::Thing", "id-1", {})
print([stacks._runs_on_worker_thread(name) for name in ("AWS::Test::Thing", "AWS::Test::Other", "AWS::S3::Bucket")])
"""
    assert run(script).splitlines() == [
        "('id-1', {'Arn': 'arn'})",
        "('id-1', {'Arn': 'b'})",
        "deleted id-1",
        "[True, True, False]",
    ]


def test_a_custom_resource_whose_function_may_not_be_invoked_fails(run: Callable[[str], str]) -> None:
    script = """
custom_resource.invoke_custom_resource = lambda request_type, logical_id, props, stack_name, stack_id: "invoked"
seams.judge_custom_resources(lambda function, stack: (function, stack) == ("ours", "stack-1"))
print(custom_resource.invoke_custom_resource("Create", "Thing", {"ServiceToken": "ours"}, "stack", "stack-1"))
try:
    custom_resource.invoke_custom_resource("Create", "Thing", {"ServiceToken": "theirs"}, "stack", "stack-1")
except PermissionError as error:
    print(error)
"""
    invoked, denied = run(script).splitlines()
    assert invoked == "invoked"
    assert "not authorized to perform: lambda:InvokeFunction on theirs" in denied


def test_what_is_slow_is_done_before_the_first_request_and_once(run: Callable[[str], str]) -> None:
    script = """
import asyncio
async def theirs(*request): return "answered"
seams.replace_handler("cloudformation", theirs)
seams.on_first_request("cloudformation", lambda: print("prepared"))
for _ in range(2):
    print(asyncio.run(seams.handler_of("cloudformation")("GET", "/", {}, b"", {})))
"""
    assert run(script).split() == ["prepared", "answered", "answered"]


def test_the_default_subnets_and_launch_templates_are_there_to_be_read(run: Callable[[str], str]) -> None:
    script = """
print(sorted(subnet["AvailabilityZone"] for subnet in seams.subnets() if subnet["DefaultForAz"]))
ec2._create_launch_template({"LaunchTemplateName": ["t"], "LaunchTemplateData.ImageId": ["ami-1"]})
t = seams.launch_template(template_id=None, name="t")
print(t["LaunchTemplateName"], t["Versions"][0]["LaunchTemplateData"])
print(seams.launch_template(template_id="x", name=None))
"""
    assert run(script).splitlines() == [
        "['us-east-1a', 'us-east-1b', 'us-east-1c']",
        "t {'ImageId': 'ami-1'}",
        "None",
    ]


def test_an_event_of_aws_reaches_the_default_bus(run: Callable[[str], str]) -> None:
    script = """
seams.publish_event(source="aws.sagemaker", detail_type="T", detail={"a": 1}, resources=["arn"])
print([(e["Source"], e["DetailType"], e["Detail"], e["Resources"]) for e in eventbridge._events_log_list()])
"""
    assert run(script) == str([("aws.sagemaker", "T", '{"a": 1}', ["arn"])])
