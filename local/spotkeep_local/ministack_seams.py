"""The only module that touches ministack's internals.

ministack is pinned exactly because of the names below: they are not its public interface. `check` refuses every other
version, and the tests of this module say which name has moved, so that an upgrade fails at once and in one place.

ministack reads its environment while it is imported: `server.server_environment` must be in force before this module
is.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import json
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore.exceptions import UnknownServiceError
from ministack import app as _app  # type: ignore[import-untyped]
from ministack.core import iam_evaluator as _iam_evaluator  # type: ignore[import-untyped]
from ministack.core import lambda_runtime as _lambda_runtime
from ministack.core import responses as _responses
from ministack.core import router as _router
from ministack.services import dynamodb as _dynamodb  # type: ignore[import-untyped]
from ministack.services import ec2 as _ec2
from ministack.services import eventbridge as _eventbridge
from ministack.services import iam as _iam
from ministack.services import kms as _kms
from ministack.services import lambda_svc as _lambda_svc
from ministack.services import s3 as _s3
from ministack.services import sns as _sns
from ministack.services import sqs as _sqs
from ministack.services import ssm as _ssm
from ministack.services import sts as _sts
from ministack.services import tagging as _tagging

from spotkeep_local.access.issued_credentials import AccessKey, Principal
from spotkeep_local.errors import IncompatibleMinistackError
from spotkeep_local.iam.authorization import ServiceCall
from spotkeep_local.service_base.service_models import service_model

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence

    from botocore.model import ServiceModel

    from spotkeep_local.unpacked_archives import UnpackedArchives

EXPECTED_VERSION = "1.5.33"

FUNCTION_URL_PATH = "/_aws/lambda-url/"
"""What ministack serves a function URL below, followed by its id: without DNS, by the address alone."""

_QUEUE_PORT = "4566"
_AMAZON = "137112412989"


StoredPolicy: TypeAlias = "str | Mapping[str, Any]"
"""A policy document, as text or read: ministack keeps it as it came."""

NO_POLICY: StoredPolicy = {}
"""Stands for a managed policy that is gone: as a boundary or a session policy it allows nothing."""

RequestHandler: TypeAlias = "Callable[..., Awaitable[tuple[int, dict[str, str], bytes]]]"
"""What ministack calls for a request that was routed to a service: with method, path, headers, body and query."""


def check() -> None:
    """Make sure that the installed ministack is the one this package extends.

    Raises:
        IncompatibleMinistackError: It is another version. Names what to do.
    """
    version = importlib.metadata.version("ministack")
    if version != EXPECTED_VERSION:
        raise IncompatibleMinistackError(
            f"the local AWS extends ministack {EXPECTED_VERSION} from the inside, but the version is {version}. "
            f"Install ministack=={EXPECTED_VERSION} (`make setup`), or adapt ministack_seams.py"
        )


def asgi_application() -> Callable[..., Awaitable[None]]:
    """Return the ASGI application that ministack serves."""
    application: Callable[..., Awaitable[None]] = _app.app
    return application


def register_service(
    name: str, *, handler: RequestHandler, target_prefixes: Sequence[str], host_patterns: Sequence[str] = ()
) -> None:
    """Route requests to a service that ministack lacks.

    Args:
        name: The service's signing name, for example `sagemaker`.
        handler: Answers its requests.
        target_prefixes: Beginnings of `X-Amz-Target` that belong to it.
        host_patterns: Regular expressions of host names that belong to it.
    """
    registry: MutableMapping[str, Any] = _app.SERVICE_REGISTRY
    registry[name] = {"module": name}
    _app.SERVICE_HANDLERS[name] = handler
    _router.SERVICE_PATTERNS[name] = {
        "target_prefixes": list(target_prefixes),
        "host_patterns": list(host_patterns),
    }


def handler_of(name: str) -> RequestHandler:
    """Return the handler of one of ministack's own services, for example `ec2`."""
    handler: RequestHandler = _app.SERVICE_HANDLERS[name]
    return handler


def replace_handler(name: str, handler: RequestHandler) -> None:
    """Put a handler in the place of `handler_of(name)`, which it may call for what it leaves to ministack."""
    _app.SERVICE_HANDLERS[name] = handler


def on_first_request(name: str, prepare: Callable[[], None]) -> None:
    """Have something done before one of ministack's services answers for the first time.

    Args:
        name: The service, for example `cloudformation`.
        prepare: What is too slow to be done at every start.
    """
    handler = handler_of(name)
    prepared = False

    async def prepared_handler(
        method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        nonlocal prepared
        if not prepared:
            prepare()
            prepared = True
        return await handler(method, path, headers, body, query_params)

    replace_handler(name, prepared_handler)


def add_resource_type(
    resource_type: str,
    *,
    create: Callable[[str, dict[str, Any], str], tuple[str, dict[str, str]]],
    update: Callable[[str, dict[str, Any], dict[str, Any], str], tuple[str, dict[str, str]]],
    delete: Callable[[str, dict[str, Any]], None],
) -> None:
    """Let CloudFormation make a type of resource that ministack lacks.

    The functions are called from a thread of their own, so they may block, and call this server.

    Args:
        resource_type: For example `AWS::FIS::ExperimentTemplate`.
        create: From logical id, properties and stack name to physical id and attributes.
        update: From physical id, old properties, new properties and stack name to the same. Another physical id
            replaces the resource.
        delete: Takes a physical id and its properties; nothing happens when it is not there.
    """
    # Late: this module of ministack's imports every service, which takes longer than all of the start.
    from ministack.services.cloudformation import provisioners, stacks  # type: ignore[import-untyped]

    blocks, ours = stacks._runs_on_worker_thread, resource_type
    stacks._runs_on_worker_thread = lambda resource_type: resource_type == ours or blocks(resource_type)
    provisioners._RESOURCE_HANDLERS[resource_type] = {"create": create, "update": update, "delete": delete}


def judge_custom_resources(may_invoke: Callable[[str, str], bool]) -> None:
    """Have CloudFormation ask before it invokes the function of a custom resource; a denial fails the resource.

    Args:
        may_invoke: Decides, from the function's ARN and the stack's id.
    """
    from ministack.services.cloudformation import custom_resource

    invoke = custom_resource.invoke_custom_resource

    def invoke_allowed(*arguments: Any, **further: Any) -> Any:
        given = inspect.signature(invoke).bind(*arguments, **further).arguments
        function = str(given["props"].get("ServiceToken", ""))
        if not may_invoke(function, str(given["stack_id"])):
            raise PermissionError(
                f"The role of the stack is not authorized to perform: lambda:InvokeFunction on {function}"
            )
        return invoke(*arguments, **further)

    custom_resource.invoke_custom_resource = invoke_allowed


def begin_request(region: str | None) -> None:
    """Have `request_region` answer a region, until the next request.

    Args:
        region: The one that the request is signed for. None: that of the local AWS.
    """
    _responses.set_request_region(region)


def request_region() -> str:
    """Return the region that is asked: of a request its own, otherwise that of the local AWS."""
    region: str = _responses.get_region()
    return region


def refuse_taken_names() -> None:
    """Have CloudFormation refuse a managed policy or a dashboard whose name the account has, in whatever region.

    As AWS does; ministack takes the other's place.
    """
    from ministack.services import cloudwatch
    from ministack.services.cloudformation import provisioners

    def policies() -> set[str]:
        return {policy["PolicyName"] for policy in _iam._policies.values()}

    def dashboards() -> set[str]:
        account = _responses.get_account_id()
        return {name for owner, _, name in cloudwatch._dashboards._data if owner == account}

    for resource_type, field, taken in (
        ("AWS::IAM::ManagedPolicy", "ManagedPolicyName", policies),
        ("AWS::CloudWatch::Dashboard", "DashboardName", dashboards),
    ):
        handlers = provisioners._RESOURCE_HANDLERS[resource_type]
        handlers["create"] = _unless_taken(handlers["create"], field=field, taken=taken)


def _unless_taken(create: Callable[..., Any], *, field: str, taken: Callable[[], set[str]]) -> Callable[..., Any]:
    def create_under_a_free_name(logical_id: str, properties: dict[str, Any], *further: Any) -> Any:
        if (name := properties.get(field)) in taken():
            raise ValueError(f"{name} already exists in this account. {field} has to be another in each of its regions")
        return create(logical_id, properties, *further)

    return create_under_a_free_name


def resolve_function_urls_to(endpoint_url: str) -> None:
    """Have `Fn::GetAtt` of a function URL give an address that answers here: AWS's own is of no use on this machine.

    Args:
        endpoint_url: Where this server listens.
    """
    from ministack.services.cloudformation import provisioners

    attributes = provisioners._lambda_url_attributes

    def reachable(config: Mapping[str, str]) -> dict[str, str]:
        given = attributes(config)
        url_id = given["FunctionUrl"].removeprefix("https://").partition(".")[0]
        return {**given, "FunctionUrl": f"{endpoint_url}{FUNCTION_URL_PATH}{url_id}/"}

    provisioners._lambda_url_attributes = reachable


def name_callers_of_function_urls(find: Callable[[str], AccessKey | None]) -> None:
    """Have events of function URLs with AuthType AWS_IAM say who calls, as AWS does.

    Args:
        find: The key with an id. None for one that was not issued: the event then names no caller.
    """
    build = _lambda_svc._build_function_url_event

    def build_with_caller(*arguments: Any, **further: Any) -> dict[str, Any]:
        given = inspect.signature(build).bind(*arguments, **further)
        given.apply_defaults()
        event: dict[str, Any] = build(*arguments, **further)
        if not given.arguments["anonymous"]:
            key = find(_router.extract_access_key_id(given.arguments["headers"], given.arguments["query_params"]))
            if key is not None:
                caller = {
                    "accessKey": key.access_key_id,
                    "accountId": key.principal.account_id,
                    "callerId": key.principal.user_id,
                    "userArn": key.principal.arn,
                    "userId": key.principal.user_id,
                }
                nothing = {"cognitoIdentity": None, "principalOrgId": None}
                event["requestContext"] |= {"authentication": None, "authorizer": {"iam": {**nothing, **caller}}}
        return event

    _lambda_svc._build_function_url_event = build_with_caller


def subnets() -> list[dict[str, Any]]:
    """Return every subnet of the account and region: SubnetId, VpcId, AvailabilityZone, CidrBlock, DefaultForAz."""
    _ec2._ensure_defaults_initialized()
    return list(_ec2._subnets.values())


def add_public_image(image_id: str, *, parameter: str, name: str, root_device: str) -> None:
    """Make an image of Amazon's public and its id readable from a public parameter of the Parameter Store.

    Args:
        image_id: Its id.
        parameter: The parameter's name.
        name: The name of the image.
        root_device: Its root device.
    """
    _ec2._STUB_AMIS.append((image_id, name, name, "", root_device, _AMAZON, "amazon"))
    _ssm._PUBLIC_AMI_PARAMETERS[parameter] = image_id


def launch_template(*, template_id: str | None, name: str | None) -> dict[str, Any] | None:
    """Return a launch template: LaunchTemplateId, LaunchTemplateName, numbers and `Versions` with their data."""
    found: dict[str, Any] | None = next(
        (
            template
            for template in _ec2._launch_templates.values()
            if template_id in (None, template["LaunchTemplateId"]) and name in (None, template["LaunchTemplateName"])
        ),
        None,
    )
    return found


def delete_template_version(template: dict[str, Any], version: dict[str, Any]) -> None:
    """Remove a version, not the default one, from what `launch_template` returned."""
    template["Versions"].remove(version)
    template["LatestVersionNumber"] = max(each["VersionNumber"] for each in template["Versions"])


def publish_event(*, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str]) -> None:
    """Put an event on the default bus as AWS itself would: the public call refuses `aws.*` sources.

    Matching targets are called before this returns; Lambda functions run in the background.

    Raises:
        IncompatibleMinistackError: The bus refused the event.
    """
    entry = {
        "Source": source,
        "DetailType": detail_type,
        "Detail": json.dumps(detail),
        "Resources": list(resources),
    }
    _status, _headers, body = _eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)
    answer = json.loads(body)
    if answer["FailedEntryCount"]:
        raise IncompatibleMinistackError(f"the event bus refused an event of {source}: {answer['Entries']}")


def name_queues_alike_on_every_port() -> None:
    """Have queues keep their address whatever the port is, and answers name it with the port that was asked.

    ministack keys a queue by its address, and looks for a function's queue under the address of today. A state that
    comes up on another port (the old one is taken, or the directory is a copy) would keep its queues where no function
    looks.
    """
    _sqs.DEFAULT_PORT = _QUEUE_PORT
    _sqs._CANONICAL_NETLOC = f"{_sqs.DEFAULT_HOST}:{_QUEUE_PORT}"
    _sqs._HOST_EXPLICIT = False


def know_transactions_by_what_was_sent() -> None:
    """Answer a transaction that is sent again, with the same token, as the first time.

    ministack compares it with the first request, in which it has rewritten numbers meanwhile (1.50 is 1.5), and refuses
    it as another one. A client whose answer was lost would never get one.
    """
    write = _dynamodb._transact_write_items

    def write_once(data: dict[str, Any]) -> Any:
        token, sent = data.get("ClientRequestToken"), json.dumps(data, sort_keys=True)
        known = _dynamodb._txn_token_lookup(token)
        if known is not None and known.get("sent") == sent:
            known["signature"] = {name: value for name, value in data.items() if name != "ClientRequestToken"}
        answer = write(data)
        written = _dynamodb._txn_token_lookup(token)
        if known is None and written is not None:
            written["sent"] = sent
        return answer

    _dynamodb._transact_write_items = write_once


def share_service_models() -> None:
    """Have ministack read botocore's descriptions of services where this package does, so that each is read once.

    ministack looks up in them how a service's answers are encoded, in a session of its own.
    """

    @functools.cache
    def shared_model(service: str) -> ServiceModel | None:
        try:
            return service_model(_responses._BOTOCORE_NAME.get(service, service))
        except UnknownServiceError:
            return None

    _responses._service_model = shared_model


def save_layers_as_files() -> None:
    """Have the archives of layers saved as files, as ministack saves those of functions.

    ministack writes them into its state as text, once for each layer that has the same archive: 87 MB for one
    deployment, which take two seconds to write at the end and one to read at each start.
    """
    get_state, load_persisted_state = _lambda_svc.get_state, _lambda_svc.load_persisted_state

    def get_state_without_archives() -> dict[str, Any]:
        state: dict[str, Any] = get_state()
        for version in _layer_versions(state):
            code = {"code_zip": version["_zip_data"]}
            _lambda_svc._externalize_code_zip(code, set())
            version["_zip_data"] = code["code_zip"]
        return state

    def load_state_and_archives(state: dict[str, Any]) -> None:
        archives: dict[str, bytes | None] = {}
        for version in _layer_versions(state):
            code = {"code_zip": version["_zip_data"]}
            _lambda_svc._internalize_code_zip(code, archives)
            version["_zip_data"] = code["code_zip"]
        load_persisted_state(state)

    _lambda_svc.get_state, _lambda_svc.load_persisted_state = get_state_without_archives, load_state_and_archives


def _layer_versions(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for layer in state["layers"]._data.values():
        yield from layer["versions"]


def give_functions_credentials(credentials_of: Callable[[str, str, str], dict[str, str]]) -> None:
    """Decide what functions find in their environment as credentials.

    Args:
        credentials_of: From a function's ARN, its name and its role's ARN to environment variables.
    """

    def execution_credentials(config: Mapping[str, Any]) -> dict[str, str]:
        return credentials_of(config["FunctionArn"], config["FunctionName"], config.get("Role", ""))

    # Both modules call it by a name of their own.
    _lambda_runtime.execution_credentials = _lambda_svc.execution_credentials = execution_credentials


def unpack_once(archives: UnpackedArchives) -> None:
    """Have the processes of a function share what its archive and its layers hold.

    Args:
        archives: Where they are unpacked.
    """

    @contextmanager
    def linked_archive(file: str) -> Iterator[SimpleNamespace]:
        # Of each name in a layer ministack asks whether it leaves the directory: half a second of processor time for
        # 1,800 of them. It is given none: zipfile, which unpacks them here, lets none leave it.
        yield SimpleNamespace(namelist=list, extractall=lambda directory: archives.link(Path(file), Path(directory)))

    _lambda_runtime.zipfile = SimpleNamespace(
        ZipFile=linked_archive, BadZipFile=zipfile.BadZipFile, LargeFileError=zipfile.LargeZipFile
    )


def end_invocations(function: str) -> int:
    """Kill the process of each invocation of a function that is under way, as when its machine dies.

    Args:
        function: The function's name.

    Returns:
        How many there were.
    """
    with _lambda_runtime._lock:
        processes = [
            worker._proc
            for workers in _lambda_runtime._workers.values()
            for worker in workers
            if worker.func_name == function and worker.in_use and worker._proc is not None
        ]
    at_work = [process for process in processes if process.poll() is None]
    for process in at_work:
        process.kill()
    return len(at_work)


class StsSessions:
    """The sessions that ministack knows, for the registry of access keys.

    sts:GetCallerIdentity answers with their principals, events of function URLs name them, and presigned requests of
    S3, whose signatures ministack verifies, are taken. ministack goes through them in the thread of the event loop, so
    they change there.

    Args:
        loop: The event loop.
        account_id: The account id of the principals.
    """

    def __init__(self, loop: AbstractEventLoop, *, account_id: str) -> None:
        self._loop = loop
        self._account_id = account_id

    def find(self, access_key_id: str) -> AccessKey | None:
        """Return the session with this key; None when there is none."""
        session = _sts._sessions.get(access_key_id)
        if session is None:
            return None
        return AccessKey(
            access_key_id=access_key_id,
            secret_access_key=session["SecretAccessKey"],
            session_token=session["SessionToken"],
            expires_at=session["Expiration"],
            principal=Principal(arn=session["Arn"], user_id=session["UserId"], account_id=self._account_id),
        )

    def add(self, key: AccessKey) -> None:
        """Make a key known, as if STS had handed it out."""
        session = {
            "Arn": key.principal.arn,
            "UserId": key.principal.user_id,
            "SecretAccessKey": key.secret_access_key,
            "SessionToken": key.session_token,
            "Expiration": None,
        }
        self._loop.call_soon_threadsafe(_sts._sessions.__setitem__, key.access_key_id, session)

    def remove(self, key: AccessKey) -> None:
        """Forget a key."""
        self._loop.call_soon_threadsafe(_sts._sessions.pop, key.access_key_id, None)


@dataclass(frozen=True, kw_only=True)
class StoredIdentity:
    """What IAM keeps of a role or a user.

    Attributes:
        arn: With its path.
        documents: Its policies, inline and attached, those of a user's groups with them: by name, as they were stored.
        boundary: Name and document of its permissions boundary; None without one.
        tags: Its own.
    """

    arn: str
    documents: Mapping[str, StoredPolicy]
    boundary: tuple[str, StoredPolicy] | None
    tags: Mapping[str, str]


def stored_role(name: str) -> StoredIdentity | None:
    """Return what IAM keeps of a role; None where there is no such role."""
    role = _iam._roles.get(name)
    return None if role is None else _stored(role, name=name, inline=role["InlinePolicies"], groups=())


def stored_user(name: str) -> StoredIdentity | None:
    """Return what IAM keeps of a user; None where there is no such user."""
    user = _iam._users.get(name)
    groups = [group for group in _iam._groups.items() if name in group[1].get("Users", ())]
    inline = _iam._user_inline_policies.get(name) or {}
    return None if user is None else _stored(user, name=name, inline=inline, groups=groups)


def stored_identities() -> Mapping[str, StoredIdentity]:
    """Return what IAM keeps of every role and user, by name."""
    roles = {name: stored_role(name) for name in list(_iam._roles)}
    users = {name: stored_user(name) for name in list(_iam._users)}
    return {name: found for name, found in (roles | users).items() if found is not None}


def _stored(
    identity: Mapping[str, Any],
    *,
    name: str,
    inline: Mapping[str, StoredPolicy],
    groups: Sequence[tuple[str, Mapping[str, Any]]],
) -> StoredIdentity:
    documents = {f"{name}/{policy}": document for policy, document in inline.items()}
    attached = list(identity.get("AttachedPolicies", ()))
    for group, record in groups:
        documents |= {
            f"{group}/{policy}": document for policy, document in (_iam._group_inline_policies.get(group) or {}).items()
        }
        attached += record.get("AttachedPolicies", ())
    documents |= {_policy_name(arn): document for arn in attached if (document := managed_policy(arn)) is not None}
    boundary = identity.get("PermissionsBoundary")
    return StoredIdentity(
        arn=identity["Arn"],
        documents=documents,
        boundary=(_policy_name(boundary), managed_policy(boundary) or NO_POLICY) if boundary else None,
        tags={tag["Key"]: tag["Value"] for tag in identity.get("Tags", ())},
    )


def managed_policy(arn: str) -> StoredPolicy | None:
    """Return the default version of a managed policy, AWS's or the account's own; None where there is no such one."""
    document: StoredPolicy | None = _iam_evaluator._resolve_managed_policy_document(arn, _responses.get_account_id())
    return document


def _policy_name(arn: str) -> str:
    return arn.rpartition("/")[2]


def session_of(access_key_id: str) -> tuple[Mapping[str, str], Sequence[StoredPolicy] | None]:
    """Return the tags that a session was made with, and its session policies; None where it has none of these."""
    session = _sts._sessions.get(access_key_id) or {}
    tags = {tag["Key"]: tag["Value"] for tag in session.get("SessionTags") or ()}
    passed = session.get("SessionPolicies")
    if passed is None:
        return tags, None
    documents = [passed["Policy"]] if passed.get("Policy") else []
    return tags, [*documents, *(managed_policy(arn) or NO_POLICY for arn in passed.get("PolicyArns", ()))]


def judge_service_calls(is_allowed: Callable[[ServiceCall], bool]) -> None:
    """Have ministack ask before a service acts by itself, and leave what is not allowed.

    Args:
        is_allowed: Decides.
    """
    delivery = {"lambda": "lambda:InvokeFunction", "sqs": "sqs:SendMessage", "sns": "sns:Publish"}
    invoke_target = _eventbridge._invoke_target

    def invoke_allowed_target(target: Mapping[str, Any], event: Mapping[str, Any], rule: Any, view: Any = None) -> None:
        arn = str(target.get("Arn", ""))
        service = arn.split(":")[2] if arn.count(":") > 1 else ""
        scheduled = event.get("Source") == "aws.scheduler"
        call = ServiceCall(
            service="scheduler.amazonaws.com" if scheduled else "events.amazonaws.com",
            # A target of another kind asks for what AWS does not have, and so gets nothing.
            actions=(delivery.get(service, f"{service}:Unknown"),),
            resource=arn,
            source_arn=str(rule.get("Arn") or (event.get("resources") or event.get("Resources") or [""])[0]),
            role_arn=target.get("RoleArn") if scheduled else None,
        )
        if is_allowed(call):
            invoke_target(_with_scheduled_time(target, event) if scheduled else target, event, rule, view)

    _eventbridge._invoke_target = invoke_allowed_target
    deliver_to_queue, deliver_to_function = _sns._deliver_to_sqs, _sns._deliver_to_lambda

    def deliver_to_allowed_queue(endpoint: str, *message: Any, topic_arn: str = "", **more: Any) -> None:
        call = ServiceCall(
            service="sns.amazonaws.com", actions=("sqs:SendMessage",), resource=endpoint, source_arn=topic_arn
        )
        if is_allowed(call):
            deliver_to_queue(endpoint, *message, topic_arn=topic_arn, **more)

    def deliver_to_allowed_function(endpoint: str, envelope: str, topic_arn: str, *message: Any) -> None:
        call = ServiceCall(
            service="sns.amazonaws.com", actions=("lambda:InvokeFunction",), resource=endpoint, source_arn=topic_arn
        )
        if is_allowed(call):
            deliver_to_function(endpoint, envelope, topic_arn, *message)

    _sns._deliver_to_sqs, _sns._deliver_to_lambda = deliver_to_allowed_queue, deliver_to_allowed_function
    _judge_calls_of_functions(is_allowed)


def _with_scheduled_time(target: Mapping[str, Any], event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schedule's target with the firing's time where its input asks for it: ministack leaves that as it is.

    Source: https://docs.aws.amazon.com/scheduler/latest/UserGuide/managing-schedule-context-attributes.html
    """
    at = datetime.fromtimestamp(float(event["Time"]), tz=UTC)
    written = str(target.get("Input") or "").replace("<aws.scheduler.scheduled-time>", f"{at:%Y-%m-%dT%H:%M:%SZ}")
    return {**target, "Input": written} if written else target


def _judge_calls_of_functions(is_allowed: Callable[[ServiceCall], bool]) -> None:
    run_batch, emit_logs = _lambda_svc._run_sqs_batch, _lambda_svc._emit_lambda_logs
    reading = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")

    def run_allowed_batch(esm: Mapping[str, Any], function: Mapping[str, Any], *batch: Any) -> None:
        config = function["config"]
        call = ServiceCall(
            service="lambda.amazonaws.com",
            actions=reading,
            resource=esm["EventSourceArn"],
            source_arn=config["FunctionArn"],
            role_arn=config["Role"],
        )
        if is_allowed(call):
            run_batch(esm, function, *batch)

    def emit_allowed_logs(function: Mapping[str, Any], *lines: Any, **more: Any) -> Any:
        config = function["config"]
        _arn, _aws, _lambda, region, account, *_function = config["FunctionArn"].split(":")
        group = (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"
        stream = f"arn:aws:logs:{region}:{account}:log-group:{group}:log-stream:any"
        call = ServiceCall(
            service="lambda.amazonaws.com",
            actions=("logs:CreateLogStream", "logs:PutLogEvents"),
            resource=stream,
            source_arn=config["FunctionArn"],
            role_arn=config["Role"],
        )
        return emit_logs(function, *lines, **more) if is_allowed(call) else None

    _lambda_svc._run_sqs_batch, _lambda_svc._emit_lambda_logs = run_allowed_batch, emit_allowed_logs


def resource_policy(service: str, arn: str) -> StoredPolicy | None:
    """Return the policy of a bucket, key, queue, topic, function, table or secret; None where it has none.

    Args:
        service: As in actions: `s3`; `sts` for the trust policy of a role.
        arn: The ARN of the resource, or of an object in a bucket.
    """
    if service == "sts":
        role = _iam._roles.get(arn.rpartition("/")[2])
        return None if role is None else _without_empty_principals(role["AssumeRolePolicyDocument"])
    # Of a role it is the trust policy, which says nothing of iam:PassRole.
    found = None if service == "iam" else _iam_evaluator._resource_policy(service, arn)
    return None if found is None else found[0] or None


def resource_tags(arn: str) -> Mapping[str, str]:
    """Return the tags of a resource that ministack keeps; none where there is no such resource."""
    service, resource = arn.split(":")[2], arn.rpartition("/")[2]
    if service == "ec2":
        return {tag["Key"]: tag["Value"] for tag in _ec2._tags.get(resource) or ()}
    if service == "iam":
        role = _iam._roles.get(resource) or _iam._instance_profiles.get(resource) or {}
        return {tag["Key"]: tag["Value"] for tag in role.get("Tags", ())}
    return dict(_tagging.resource_tags(arn) or {})


def key_arn(key_id: str) -> str | None:
    """Return the ARN of the KMS key with an id, an ARN or an alias; None where there is none."""
    key = _kms._resolve_key(key_id)
    return None if key is None else str(key["Arn"])


def has_object(bucket: str, key: str) -> bool:
    """Return whether S3 has an object, in its current version."""
    return key in (_s3._buckets.get(bucket) or {}).get("objects", {})


def encryption_headers(bucket: str, key: str | None) -> Mapping[str, str]:
    """Return the encryption of an object as S3 answers it, or a bucket's default.

    Args:
        bucket: Its name.
        key: The key of the object; None for the bucket. An object that is not there would get the bucket's.
    """
    record = (_s3._buckets.get(bucket) or {}).get("objects", {}).get(key) if key is not None else None
    found: Mapping[str, str] = (
        _s3._stored_sse_headers(record) if record is not None else _s3._bucket_default_sse_headers(bucket)
    )
    return found


def bucket_key_enabled(bucket: str) -> bool:
    """Return whether the bucket's default encryption uses an S3 Bucket Key."""
    return "<BucketKeyEnabled>true<" in (_s3._bucket_encryption.get(bucket) or "")


def table(name: str) -> Mapping[str, Any] | None:
    """Return a table of DynamoDB as it is described; None where there is none."""
    found: Mapping[str, Any] | None = _dynamodb._tables.get(name)
    return found


def queue_attributes(arn: str) -> Mapping[str, str]:
    """Return the attributes of a queue; none where there is no such queue."""
    queue = _sqs._queue_by_arn(arn)
    return {} if queue is None else queue["attributes"]


def topic(arn: str) -> Mapping[str, Any] | None:
    """Return a topic: `attributes`, and `subscriptions` with arn, protocol and endpoint; None where there is none."""
    found: Mapping[str, Any] | None = _sns._topics.get(arn)
    return found


def parameter(name: str) -> Mapping[str, Any] | None:
    """Return a parameter of the Parameter Store; None where there is none."""
    found: Mapping[str, Any] | None = _ssm._parameters.get(name)
    return found


def instance_profile(name: str) -> Mapping[str, Any] | None:
    """Return an instance profile: its name, Arn, InstanceProfileId and the names of its Roles; None for none."""
    found: Mapping[str, Any] | None = _iam._instance_profiles.get(name)
    return found


def instance_profile_roles(name: str) -> Sequence[str]:
    """Return the names of the roles in an instance profile; none where there is no such profile."""
    return list((instance_profile(name) or {}).get("Roles", ()))


def function_url(url_id: str) -> tuple[str, str] | None:
    """Return the function's ARN, with its alias, and the AuthType of a function URL; None where there is none."""
    found = _lambda_svc.resolve_function_url(url_id)
    if found is None:
        return None
    _account, _region, _name, qualifier, config = found
    return config["FunctionArn"] + (f":{qualifier}" if qualifier else ""), config["AuthType"]


def _without_empty_principals(stored: StoredPolicy) -> StoredPolicy:
    """Leave out statements without a principal: ministack keeps what `Fn::If` leaves out of a list that is empty."""
    document = json.loads(stored) if isinstance(stored, str) else stored
    statements = document["Statement"]
    kept = (
        [each for each in statements if each.get("Principal") not in ({"AWS": ""}, {"AWS": [""]}, {"AWS": []})]
        if isinstance(statements, list)
        else statements
    )
    return {**document, "Statement": kept}


def role_id(name: str) -> str:
    """Return the unique id of a role; an invented one where there is no such role, as STS does here."""
    role = _iam._roles.get(name) or {}
    return str(role.get("RoleId") or f"AROA{name.upper()[:17]}")
