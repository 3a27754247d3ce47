"""boto3 clients of one local AWS, whatever credentials and settings this machine has.

botocore's descriptions of AWS's services are read once in a process. A session that reads them for itself takes 130 ms
of CPU for a client, against 20 ms with the descriptions at hand.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader

if TYPE_CHECKING:
    from botocore.model import ServiceModel
    from botocore.session import Session

    from spotkeep_local.principals import AccessKey


class _SharedModels(Loader):
    """A loader that has boto3's folder already. Otherwise each `boto3.Session` would add it to the list again."""

    @property
    def search_paths(self) -> list[str]:
        return list(super().search_paths)


@functools.cache
def _models() -> Loader:
    return _SharedModels(extra_search_paths=[str(Path(boto3.__file__).parent / "data")])


def with_shared_models(session: Session) -> Session:
    """Make a session, before its first client, read the descriptions that all such sessions of this process share.

    Returns:
        The session itself.
    """
    session.register_component("data_loader", _models())
    return session


@functools.cache
def service_model(service: str) -> ServiceModel:
    """Return a service's model in the installed botocore.

    Args:
        service: botocore's name, for example `sagemaker`.
    """
    return _session().get_service_model(service)


@functools.cache
def _session() -> Session:
    return with_shared_models(botocore.session.Session())


# (name in a configuration file, environment variable, default, conversion): no profile, no files of the user's.
_NO_CONFIGURATION: Final = {
    "profile": (None, None, None, None),
    "config_file": (None, None, os.devnull, None),
    "credentials_file": (None, None, os.devnull, None),
}
_DIRECT: Final = Config(
    proxies={}, s3={"addressing_style": "path"}, retries={"mode": "standard", "total_max_attempts": 5}
)
FROM_INSIDE: Final = Config(
    retries={"mode": "standard", "total_max_attempts": 8},
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
    max_pool_connections=32,
    connect_timeout=5,
)
"""The configuration of services that live in the local AWS and call it, many at once, and before it answers."""


class _Session(boto3.Session):
    """A session with clients of one endpoint, for a library that accepts nothing but a session of boto3."""

    endpoint_url: str

    def client(self, service_name: str, *arguments: Any, **keywords: Any) -> Any:
        """Return a boto3 client. With a configuration of the caller's, without proxies all the same."""
        keywords = {"endpoint_url": self.endpoint_url, **keywords, "config": _direct(keywords.get("config"))}
        return super().client(service_name, *arguments, **keywords)  # type: ignore[call-overload]


class LocalSession:
    """Makes boto3 clients and resources for one local AWS.

    Args:
        endpoint_url: The address of the local AWS.
        region: The region of its resources.
        access_key: The access key of its calls.
    """

    def __init__(self, *, endpoint_url: str, region: str, access_key: AccessKey) -> None:
        self._endpoint_url = endpoint_url
        self.boto3_session = _Session(
            botocore_session=with_shared_models(botocore.session.Session(session_vars=_NO_CONFIGURATION)),
            aws_access_key_id=access_key.access_key_id,
            aws_secret_access_key=access_key.secret_access_key,
            aws_session_token=access_key.session_token,
            region_name=region,
        )
        self.boto3_session.endpoint_url = endpoint_url

    def client(self, service: str, *, config: Config | None = None) -> Any:
        """Return a boto3 client."""
        return self.boto3_session.client(service, config=config)

    def resource(self, service: str, *, config: Config | None = None) -> Any:
        """Return a boto3 resource."""
        return self.boto3_session.resource(  # type: ignore[call-overload]
            service, endpoint_url=self._endpoint_url, config=_direct(config)
        )


def _direct(config: Config | None) -> Config:
    return _DIRECT if config is None else _DIRECT.merge(config)
