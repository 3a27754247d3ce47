"""The only module that touches ministack's internals.

ministack is pinned exactly because of the names below: they are not its public interface. `check` finds out
at start whether one of them moved, and says which, so that an upgrade fails at once and in one place.

ministack reads its environment while it is imported: `server.ministack_environment` must be in force before
this module is.
"""

from __future__ import annotations

import importlib.metadata
import inspect
import json
from typing import TYPE_CHECKING, Any, Protocol

from ministack import app as _app  # type: ignore[import-untyped]
from ministack.core import persistence as _persistence  # type: ignore[import-untyped]
from ministack.core import router as _router
from ministack.services import ec2 as _ec2  # type: ignore[import-untyped]
from ministack.services import eventbridge as _eventbridge
from ministack.services import ssm as _ssm

from spotkeep_local.errors import IncompatibleMinistackError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
    from pathlib import Path

EXPECTED_VERSION = "1.5.33"

_STUB_AMI_FIELDS = 7
_AMAZON = "137112412989"


class RequestHandler(Protocol):
    """What ministack calls for a request that was routed to a service."""

    def __call__(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        query_params: Mapping[str, list[str]],
    ) -> Awaitable[tuple[int, dict[str, str], bytes]]:
        """Answers one request with status, headers and body."""
        ...


def check() -> None:
    """Makes sure that the installed ministack is the one this package extends.

    Raises:
        IncompatibleMinistackError: Names every seam that moved, and the version found.
    """
    problems = list(_moved_seams())
    version = importlib.metadata.version("ministack")
    if version != EXPECTED_VERSION:
        problems.insert(0, f"the version is {version}")
    if problems:
        raise _incompatible(problems)


def _incompatible(problems: Sequence[str]) -> IncompatibleMinistackError:
    return IncompatibleMinistackError(
        f"the local AWS extends ministack {EXPECTED_VERSION} from the inside, but "
        + "; ".join(problems)
        + f". Install ministack=={EXPECTED_VERSION} (`make setup`), or adapt ministack_seams.py"
    )


def _moved_seams() -> Sequence[str]:
    problems = []
    registry = getattr(_app, "SERVICE_REGISTRY", None)
    if not (isinstance(registry, dict) and registry.get("lambda", {}).get("module") == "lambda_svc"):
        problems.append("app.SERVICE_REGISTRY no longer maps a service to its module")
    handlers = getattr(_app, "SERVICE_HANDLERS", None)
    if not (isinstance(handlers, dict) and inspect.iscoroutinefunction(handlers.get("sqs"))):
        problems.append("app.SERVICE_HANDLERS no longer maps a service to a coroutine function")
    patterns = getattr(_router, "SERVICE_PATTERNS", None)
    if not (isinstance(patterns, dict) and "target_prefixes" in patterns.get("sqs", {})):
        problems.append("router.SERVICE_PATTERNS no longer routes by target_prefixes")
    elif getattr(_router, "detect_service", None) is None:
        problems.append("router.detect_service is gone")
    put_events = getattr(_eventbridge, "_put_events", None)
    if put_events is None or "allow_aws_source" not in inspect.signature(put_events).parameters:
        problems.append("eventbridge._put_events no longer takes allow_aws_source")
    if list(inspect.signature(getattr(_persistence, "save_all", check)).parameters) != ["services"]:
        problems.append("persistence.save_all no longer takes the services to save")
    problems += [
        f"ec2.{name} is gone"
        for name in ("_subnets", "_launch_templates", "_ensure_defaults_initialized")
        if not hasattr(_ec2, name)
    ]
    stubs = getattr(_ec2, "_STUB_AMIS", None)
    if not (isinstance(stubs, list) and all(len(stub) == _STUB_AMI_FIELDS for stub in stubs)):
        problems.append("ec2._STUB_AMIS no longer lists the public images")
    if not isinstance(getattr(_ssm, "_PUBLIC_AMI_PARAMETERS", None), dict):
        problems.append("ssm._PUBLIC_AMI_PARAMETERS no longer maps public parameters to images")
    if not callable(getattr(_app, "_build_persistence_save_dict", None)):
        problems.append("app._build_persistence_save_dict is gone")
    return problems


def asgi_application() -> Callable[..., Awaitable[None]]:
    """The ASGI application that ministack serves."""
    application: Callable[..., Awaitable[None]] = _app.app
    return application


def register_service(
    name: str, *, handler: RequestHandler, target_prefixes: Sequence[str], host_patterns: Sequence[str]
) -> None:
    """Routes requests to a service that ministack lacks.

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
    """The handler of one of ministack's own services, for example `ec2`."""
    handler: RequestHandler = _app.SERVICE_HANDLERS[name]
    return handler


def replace_handler(name: str, handler: RequestHandler) -> None:
    """Puts a handler in the place of `handler_of(name)`, which it may call for what it leaves to ministack."""
    _app.SERVICE_HANDLERS[name] = handler


def on_first_request(name: str, prepare: Callable[[], None]) -> None:
    """Has something done before one of ministack's services answers for the first time.

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
    snapshot: Callable[[str, dict[str, Any]], None] | None = None,
) -> None:
    """Lets CloudFormation make a type of resource that ministack lacks.

    The functions are called from a thread of their own, so they may block, and call this server.

    Args:
        resource_type: For example `AWS::EC2::Volume`.
        create: From logical id, properties and stack name to physical id and attributes.
        update: From physical id, old properties, new properties and stack name to the same. Another physical id
            replaces the resource.
        delete: Of a physical id and its properties; nothing happens when it is not there.
        snapshot: Called before the deletion where the deletion policy is Snapshot.

    Raises:
        IncompatibleMinistackError: ministack keeps resource types elsewhere by now.
    """
    # Late: this module of ministack's imports every service, which takes longer than all of the start.
    from ministack.services.cloudformation import provisioners, stacks  # type: ignore[import-untyped]

    known = getattr(provisioners, "_RESOURCE_HANDLERS", None)
    if not (isinstance(known, dict) and {"create", "update", "delete"} <= set(known.get("AWS::EC2::Subnet", ()))):
        raise _incompatible(["provisioners._RESOURCE_HANDLERS no longer maps a resource type to its functions"])
    blocks = getattr(stacks, "_runs_on_worker_thread", None)
    if blocks is None or list(inspect.signature(blocks).parameters) != ["resource_type"]:
        raise _incompatible(["stacks._runs_on_worker_thread no longer says which types of resource block"])
    ours = resource_type
    stacks._runs_on_worker_thread = lambda resource_type: resource_type == ours or blocks(resource_type)
    handlers: dict[str, Any] = {"create": create, "update": update, "delete": delete}
    if snapshot is not None:
        handlers["snapshot"] = snapshot
    known[resource_type] = handlers


def subnets() -> list[dict[str, Any]]:
    """Every subnet of the account and region: SubnetId, VpcId, AvailabilityZone, CidrBlock, DefaultForAz."""
    _ec2._ensure_defaults_initialized()
    return list(_ec2._subnets.values())


def add_public_image(image_id: str, *, parameter: str, name: str, root_device: str) -> None:
    """Lets everybody see an image of Amazon's, and read its id from a public parameter of the Parameter Store.

    Args:
        image_id: Its id.
        parameter: The parameter's name.
        name: Of the image.
        root_device: Its root device.
    """
    _ec2._STUB_AMIS.append((image_id, name, name, "", root_device, _AMAZON, "amazon"))
    _ssm._PUBLIC_AMI_PARAMETERS[parameter] = image_id


def launch_templates() -> list[dict[str, Any]]:
    """Every launch template: LaunchTemplateId, LaunchTemplateName, version numbers and `Versions` with their data."""
    return list(_ec2._launch_templates.values())


def publish_event(*, source: str, detail_type: str, detail: Mapping[str, Any], resources: Sequence[str]) -> None:
    """Puts an event on the default bus as AWS itself would: the public call refuses `aws.*` sources.

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


def state_getters() -> dict[str, Callable[[], dict[str, Any] | None]]:
    """For each service that was used, what returns its state; the key names its file."""
    getters: dict[str, Callable[[], dict[str, Any] | None]] = _app._build_persistence_save_dict()
    return getters


def write_state(key: str, state: Mapping[str, Any]) -> None:
    """Writes one service's state to its file, atomically. ministack logs what fails and goes on."""
    _persistence.save_all({key: lambda: state})


def state_file(state_dir: Path, key: str) -> Path:
    """Where `write_state` puts a service's state, below ministack's STATE_DIR."""
    return state_dir / f"{key}.json"
