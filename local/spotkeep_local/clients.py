"""boto3 clients of the local AWS, for the services that live in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config

from spotkeep_local.service_models import with_shared_models

if TYPE_CHECKING:
    from spotkeep_local.issued_credentials import AccessKey


def local_client(service: str, *, endpoint_url: str, region: str, access_key: AccessKey) -> Any:
    """A boto3 client for the local AWS, whatever credentials and settings this machine has."""
    session = boto3.Session(
        botocore_session=with_shared_models(botocore.session.Session()),
        aws_access_key_id=access_key.access_key_id,
        aws_secret_access_key=access_key.secret_access_key,
        region_name=region,
    )
    return session.client(
        service,  # type: ignore[call-overload]
        endpoint_url=endpoint_url,
        config=Config(
            s3={"addressing_style": "path"},
            retries={"mode": "standard", "total_max_attempts": 8},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            max_pool_connections=32,
            connect_timeout=5,
            proxies={},
        ),
    )
