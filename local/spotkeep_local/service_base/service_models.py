"""botocore's descriptions of AWS's services, read once in a process for any number of sessions and clients.

Without this, each session reads them for itself. That takes most of the time of making a client, 130 ms of CPU against
20 ms with the descriptions at hand.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import botocore.session
from botocore.loaders import Loader

if TYPE_CHECKING:
    from botocore.model import ServiceModel
    from botocore.session import Session


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
