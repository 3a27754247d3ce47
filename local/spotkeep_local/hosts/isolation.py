"""How a local host is kept apart from the machine. Apart from the options: a command's help loads no pydantic."""

from __future__ import annotations

from enum import StrEnum


class Isolation(StrEnum):
    """How a local training job or instance is kept apart from the machine."""

    AUTO = "auto"
    """A private mount namespace where the machine allows one, a relocated base directory elsewhere."""
    NAMESPACE = "namespace"
    """Always a private mount namespace. Starting a job fails where the machine refuses it."""
    RELOCATED = "relocated"
    """Always a relocated base directory, named to the job by `SAGEMAKER_BASE_DIR`."""
