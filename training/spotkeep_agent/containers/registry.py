"""The password of a private registry of Amazon ECR, which is good for twelve hours.

Source: GetAuthorizationToken, Amazon ECR API reference.
"""

from __future__ import annotations

import base64
import binascii

from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.errors import AwsRefusedError, AwsUnavailableError, ImageRefusedError, ImageUnavailableError

_TARGET = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"


def registry_login(calls: AwsCalls) -> tuple[str, str]:
    """Ask for the user and the password of the registries in the region of the calls.

    Raises:
        ImageRefusedError: If the run may not have them.
        ImageUnavailableError: If ECR does not answer.
    """
    try:
        answer = calls.json("ecr", _TARGET, {}, version="1.1")
        token = answer["authorizationData"][0]["authorizationToken"]
        user, colon, password = base64.b64decode(token, validate=True).decode("utf-8").partition(":")
    except AwsRefusedError as error:
        raise ImageRefusedError(
            f"Amazon ECR gives this run no password: {error}. Deploy again: the run role may have one since this "
            "version, unless a permissions boundary or a policy of the organization denies it"
        ) from error
    except (AwsUnavailableError, KeyError, IndexError, TypeError, ValueError, binascii.Error) as error:
        raise ImageUnavailableError(f"Amazon ECR gives no password: {error}") from error
    if not colon:
        raise ImageUnavailableError("Amazon ECR gives a token that holds no user and password")
    return user, password
