"""The entries into ministack, such as its version, its application, its services and the region of a request."""

from __future__ import annotations

import functools
import importlib.metadata
from typing import TYPE_CHECKING, Any, TypeAlias

from botocore.exceptions import UnknownServiceError
from ministack import app as _app  # type: ignore[import-untyped]
from ministack.core import responses as _responses  # type: ignore[import-untyped]
from ministack.core import router as _router

from spotkeep_local.errors import IncompatibleMinistackError
from spotkeep_local.service_base.clients import service_model

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence

    from botocore.model import ServiceModel

EXPECTED_VERSION = "1.5.33"


RequestHandler: TypeAlias = "Callable[..., Awaitable[tuple[int, dict[str, str], bytes]]]"
"""The handler of requests to one service of ministack. It takes method, path, headers, body and query."""


def check() -> None:
    """Make sure that the installed ministack is the one this package extends.

    Raises:
        IncompatibleMinistackError: It is another version. The message names the remedy.
    """
    version = importlib.metadata.version("ministack")
    if version != EXPECTED_VERSION:
        raise IncompatibleMinistackError(
            f"the local AWS extends ministack {EXPECTED_VERSION} from the inside, but the version is {version}. "
            f"Install ministack=={EXPECTED_VERSION} (`make setup`), or adapt spotkeep_local/ministack"
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
    """Replace `handler_of(name)` by another handler, which may call it for requests that it leaves to ministack."""
    _app.SERVICE_HANDLERS[name] = handler


def on_first_request(name: str, prepare: Callable[[], None]) -> None:
    """Run a function before one of ministack's services answers for the first time.

    Args:
        name: The service, for example `cloudformation`.
        prepare: The function, with work that is too slow for every start.
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


def begin_request(region: str | None) -> None:
    """Make `request_region` return a region, until the next request.

    Args:
        region: The one that the request is signed for. None: that of the local AWS.
    """
    _responses.set_request_region(region)


def request_region() -> str:
    """Return the region of the present request. Without a request, that of the local AWS."""
    region: str = _responses.get_region()
    return region


def share_service_models() -> None:
    """Make ministack read botocore's descriptions of services where this package does, so that each is read once.

    ministack finds in them the encoding of a service's answers, in a session of its own.
    """

    @functools.cache
    def shared_model(service: str) -> ServiceModel | None:
        try:
            return service_model(_responses._BOTOCORE_NAME.get(service, service))
        except UnknownServiceError:
            return None

    _responses._service_model = shared_model
