"""The registry of Amazon ECR in an image's name. Any other registry is asked without credentials.

Source: "Amazon ECR registry concepts", section registry URI (Amazon ECR user guide).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PUBLIC_GALLERY = "public.ecr.aws"
"""AWS's registry of public images, which needs no login."""

_PRIVATE = re.compile(r"[0-9]{12}\.dkr\.ecr(?:-fips)?\.([a-z0-9-]+)\.amazonaws\.com(\.cn)?")


@dataclass(frozen=True)
class EcrRegistry:
    """A private registry of Amazon ECR.

    Attributes:
        host: Its host name, such as `123456789012.dkr.ecr.us-east-1.amazonaws.com`.
        region: Its AWS region.
    """

    host: str
    region: str

    @property
    def right_host(self) -> str:
        """The host as it is in the registry's region. It ends with `.cn` in China, and there alone."""
        return self.host.removesuffix(".cn") + (".cn" if self.region.startswith("cn-") else "")


def ecr_registry(image: str) -> EcrRegistry | None:
    """Return the private registry of an image. None where it is in another registry.

    Args:
        image: With its tag or digest.
    """
    host = image.partition("/")[0]
    found = _PRIVATE.fullmatch(host)
    return None if found is None else EcrRegistry(host=host, region=found[1])


def names_a_registry(image: str) -> bool:
    """Return True if an image begins with the host of a registry. Docker reads any other as one of Docker Hub.

    Source: https://github.com/distribution/reference (normalize.go, splitDockerDomain)

    Args:
        image: With its tag or digest.
    """
    host, slash, _ = image.partition("/")
    return bool(slash) and ("." in host or ":" in host or host == "localhost")


def is_in_public_gallery(image: str) -> bool:
    """Return True if an image is in AWS's registry of public images.

    Args:
        image: With its tag or digest.
    """
    return image.startswith(f"{PUBLIC_GALLERY}/")
